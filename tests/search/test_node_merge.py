from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.search.node_merge import CLEAR_BOUNDARY, boundaries, boundary_tree, merge_node


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
    assert tree.steps[0].strength < CLEAR_BOUNDARY < tree.steps[1].strength
    assert tree.groups(2)[:3] in ([0, 0, 2], [1, 1, 2])


def test_tiny_outputs_are_dissolved_where_they_are_confused() -> None:
    table = np.diag([50.0, 45.0, 1.0])
    table[1, 2] = table[2, 1] = 1
    assert boundary_tree(table).groups(2) == [0, 1, 1]


def labels_and_tables(crossed: float) -> tuple[np.ndarray, torch.Tensor, np.ndarray]:
    """Two heads with three outputs each, of which the first two are crossed by this fraction of the pairs."""
    table = np.diag([30.0, 30.0, 40.0])
    table[0, 1] = table[1, 0] = 30 * crossed
    table[0, 0] = table[1, 1] = 30 * (1 - crossed)
    labels = np.repeat(np.arange(3), (30, 30, 40))
    return np.stack([table, table]), torch.from_numpy(np.stack([table, table])).long(), np.stack([labels, labels], 1)


def test_as_many_sub_clusters_as_have_a_clear_boundary() -> None:
    clear = merge_node(*labels_and_tables(0.02))
    assert clear is not None
    assert sorted(clear.groups) == [0, 1, 2]
    assert clear.groups[2] == 0  # the largest
    assert clear.agreement == pytest.approx(1.0)
    weak = merge_node(*labels_and_tables(0.4))
    assert weak is not None
    assert weak.groups == [0, 0, 1]


def test_a_node_in_one_output_is_one_group() -> None:
    table = np.diag([30.0, 0.0])
    assert merge_node(table[None], torch.from_numpy(table)[None].long(), np.zeros((30, 1), dtype=np.int64)) is None
