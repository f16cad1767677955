from __future__ import annotations

import itertools

import numpy as np
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.config import Config, Merge
from converge_to_surprise.search import co_assignment
from converge_to_surprise.search.co_assignment import CoAssignments
from converge_to_surprise.search.copies import groups_within
from converge_to_surprise.search.granularity import with_boundaries
from converge_to_surprise.search.merge import build_merge_tree, build_trees, select_kind


@given(st.integers(5, 60), st.integers(1, 3), st.integers(2, 5), st.integers(0, 999))
def test_pairs_are_counted_as_by_the_slow_loop(images: int, heads: int, outputs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, outputs, (images, 2, heads))
    near = np.stack([rng.permutation(np.delete(np.arange(images), own)) for own in range(images)])
    counts = CoAssignments.count(torch.from_numpy(labels), torch.from_numpy(near), outputs, images)
    assert list(counts.widths) == co_assignment.widths(images)
    for place, width in enumerate(counts.widths):
        for head in range(heads):
            expected = reference.co_assignments(labels[:, :, head].tolist(), near[:, :width].tolist(), outputs)
            np.testing.assert_allclose(counts.tables[place, head], expected)


@given(st.integers(2, 100_000))
def test_widths_grow_by_steps_up_to_the_widest(images: int) -> None:
    found = co_assignment.widths(images)
    assert found == sorted(set(found))
    assert found[-1] == min(images - 1, max(co_assignment.NARROWEST, round(images ** (2 / 3) / 3)))
    assert all(wide <= 1.6 * narrow for narrow, wide in itertools.pairwise(found))


def test_fewer_neighbors_than_wanted_are_one_width() -> None:
    counts = CoAssignments.count(torch.zeros(50, 2, 1, dtype=torch.long), torch.ones(50, 2, dtype=torch.long), 3, 50)
    assert counts.widths == (2,)
    assert counts.tables[0, 0, 0, 0] == 100


def empty(images: int) -> CoAssignments:
    found = tuple(co_assignment.widths(images))
    return CoAssignments(np.zeros((len(found), 1, 2, 2)), found, images)


@pytest.mark.parametrize(("images", "clusters"), [(6000, 2), (6000, 20), (6000, 100), (300, 3), (300, 15)])
def test_a_neighborhood_is_never_much_wider_than_its_share_of_a_cluster(images: int, clusters: int) -> None:
    counts = empty(images)
    width = counts.widths[counts.place(clusters)]
    wanted = min(images ** (2 / 3) / 3, co_assignment.SHARE * images / clusters)
    assert width == pytest.approx(max(co_assignment.NARROWEST, wanted), rel=0.25)


def test_more_clusters_are_never_tested_by_wider_neighborhoods() -> None:
    places = [empty(6000).place(clusters) for clusters in range(2, 500)]
    assert places == sorted(places, reverse=True)
    assert places[0] > places[-1] == 0


def test_trees_and_splits_read_the_table_of_their_number_of_clusters() -> None:
    """In the wide tables 0 and 1 are one thing and 2 and 3 another; in the narrow one 0 and 2 are, and 1 and 3."""
    images, together = 400, 40.0
    found = co_assignment.widths(images)
    tables = np.zeros((len(found), 1, 4, 4))
    for place in range(len(found)):
        a, b = ((0, 2), (1, 3)) if place == 0 else ((0, 1), (2, 3))
        tables[place, 0] = np.diag([100.0] * 4)
        for one, other in (a, b):
            tables[place, 0, one, other] = tables[place, 0, other, one] = together
    counts = CoAssignments(tables, tuple(found), images)
    (tree,) = build_trees(counts, Merge())
    assert tree.groups(2)[0] == tree.groups(2)[1] != tree.groups(2)[2]
    narrow = build_merge_tree(tables[0, 0], Merge())
    assert narrow.groups(2)[0] == narrow.groups(2)[2] != narrow.groups(2)[1]
    assert with_boundaries([tree], counts)[0].strength(2) == pytest.approx(1.0)
    assert with_boundaries([narrow], counts)[0].strength(2) < 0.8, "the wide table crosses its split"


def test_groups_of_copies_within_a_sample_are_named_by_their_first_image_there() -> None:
    groups = torch.tensor([0, 1, 0, 3, 1, 0])
    assert groups_within(groups, torch.tensor([5, 4, 2, 3, 1])).tolist() == [0, 1, 0, 3, 1]


def test_where_heads_tell_the_number_only_the_nearest_neighbors_count() -> None:
    """Two clusters in the narrow table, one in the wider ones."""
    images = 400
    found = co_assignment.widths(images)
    tables = np.full((len(found), 2, 2, 2), 50.0)
    tables[0] = np.diag([100.0, 100.0])
    counts = CoAssignments(tables, tuple(found), images)
    labels = np.repeat(np.arange(2), 50)[:, None].repeat(2, 1)
    by_agreement = Config(merge=Merge(number_by="agreement"))
    assert select_kind(counts, labels, [range(2)], by_agreement).selection.result.n_clusters == 2
    assert select_kind(counts, labels, [range(2)], Config()).selection.result.n_clusters == 1


def test_copies_do_not_widen_a_neighborhood() -> None:
    """Of eight copies of each picture one is looked at, and there are eight times fewer neighbors of the same kind."""
    labels, near = torch.zeros(800, 2, 1, dtype=torch.long), torch.ones(800, 80, dtype=torch.long)
    counts = CoAssignments.count(labels, near, 2, 100)
    assert list(counts.widths) == co_assignment.widths(100) != co_assignment.widths(800)
    alone = CoAssignments.count(labels[:100], near[:100], 2, 100)
    assert [counts.place(clusters) for clusters in (2, 5, 20)] == [alone.place(clusters) for clusters in (2, 5, 20)]
