from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.model.merge_tree import MergeTree
from converge_to_surprise.search.node_merge import boundaries, boundary_tree, merge_node


def slow_phi(table: np.ndarray, a: int, b: int) -> float:
    """The phi coefficient of the pairs within a and b, one pair of views after the other."""
    first, second = [], []
    for row in (a, b):
        for column in (a, b):
            first += [row == a] * int(table[row, column])
            second += [column == a] * int(table[row, column])
    return float(np.corrcoef(first, second)[0, 1])


@given(st.lists(st.integers(1, 30), min_size=6, max_size=6))
def test_boundaries_are_phi_coefficients(values: list[int]) -> None:
    table = np.zeros((3, 3))
    table[np.triu_indices(3)] = values
    table = table + np.triu(table, 1).T + 5 * np.eye(3)
    found = boundaries(table)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert found[a, b] == pytest.approx(slow_phi(table, a, b), abs=1e-9)


def test_the_weakest_boundary_is_given_up_first() -> None:
    table = np.diag([40.0, 40.0, 40.0, 0.0])
    table[0, 1] = table[1, 0] = 20
    table[1, 2] = table[2, 1] = 2
    tree = boundary_tree(table)
    assert tree.n_clusters == 3
    assert {tree.steps[0].into, tree.steps[0].merged} == {0, 1}
    assert tree.steps[0].strength < 0.65 < tree.steps[1].strength
    assert tree.groups(2)[:3] in ([0, 0, 2], [1, 1, 2])


def test_tiny_outputs_are_dissolved_where_they_are_confused() -> None:
    table = np.diag([50.0, 45.0, 1.0])
    table[1, 2] = table[2, 1] = 1
    assert boundary_tree(table).groups(2) == [0, 1, 1]


def three_heads(*strengths: tuple[float, float]) -> tuple[list[MergeTree], torch.Tensor, np.ndarray]:
    """Heads with three outputs each, and the strengths of their splits into two and into three."""
    table = np.diag([30.0, 30.0, 40.0]) + 1
    labels = np.repeat(np.arange(3), (30, 30, 40))
    tree = boundary_tree(table)
    trees = [
        tree._replace(steps=[step._replace(strength=value) for step, value in zip(tree.steps, own[::-1], strict=True)])
        for own in strengths
    ]
    return trees, torch.from_numpy(np.stack([table] * 3)).long(), np.stack([labels] * 3, 1)


def test_as_many_sub_clusters_as_hold_in_most_heads() -> None:
    three = merge_node(*three_heads((0.9, 0.1), (0.95, 0.9), (0.95, 0.85)))
    assert three is not None
    assert sorted(three.groups) == [0, 1, 2]
    assert three.groups[2] == 0  # the largest
    assert three.agreement == pytest.approx(1.0)
    assert three.head == 1  # they do not hold in the first one
    assert three.splits.into.shape == (2, 3)
    two = merge_node(*three_heads((0.9, 0.1), (0.95, 0.9), (0.95, 0.7)))
    assert two is not None
    assert max(two.groups) == 1
    assert two.splits.into.shape == (1, 3)


def test_two_sub_clusters_are_those_of_a_head_in_which_they_hold() -> None:
    one = merge_node(*three_heads((0.7, 0.6), (0.7, 0.6), (0.9, 0.6)))
    assert one is not None
    assert (max(one.groups), one.head) == (1, 2)
    none = merge_node(*three_heads((0.7, 0.6), (0.7, 0.6), (0.8, 0.6)))
    assert none is not None
    assert (max(none.groups), none.head) == (1, 0)


def test_a_node_in_one_output_is_one_group() -> None:
    table = np.diag([30.0, 0.0])
    none = torch.from_numpy(table)[None].long()
    assert merge_node([boundary_tree(table)], none, np.zeros((30, 1), dtype=np.int64)) is None
