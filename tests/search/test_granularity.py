"""The evidence for a number of clusters and the levels that follow from it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, mutual_info_score

from converge_to_surprise.config import Merge
from converge_to_surprise.model.merge_tree import HOLDS, Level, MergeTree
from converge_to_surprise.search.co_assignment import CoAssignments
from converge_to_surprise.search.granularity import (
    EVIDENT,
    MAX_LEVELS,
    NEARLY,
    NEGLIGIBLE,
    NOISE,
    ONE,
    agreement_curve,
    find_levels,
    levels_of_agreement,
    prune,
    split_strengths,
    stability_curve,
    with_boundaries,
)
from converge_to_surprise.search.merge import build_merge_tree

TABLE = np.array(
    [
        [100 if a == b else 80 if a // 2 == b // 2 else 1 if a // 6 == b // 6 else 0 for b in range(12)]
        for a in range(12)
    ],
    dtype=float,
)
"""Pairs hardly cross from one group of three classes to the other, some cross from class to class, and many between the
halves of a class."""


def nested_heads(heads: int, seed: int = 0) -> tuple[list[MergeTree], np.ndarray]:
    """Pruned trees of heads that find two groups of three classes each, and split every class in two at random."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 6, 1200)
    labels = np.stack([2 * classes + rng.integers(0, 2, len(classes)) for _ in range(heads)], 1)
    tables = np.stack([TABLE] * heads)
    trees = [build_merge_tree(one, Merge()) for one in tables]
    return prune(trees, split_strengths(trees, CoAssignments.of_one_width(tables), labels), labels), labels


def test_the_evidence_is_that_of_the_formula() -> None:
    """A slow twin with scikit-learn's measures."""
    trees, labels = nested_heads(3)
    curve = stability_curve(trees, labels)
    assert [level.n_clusters for level in curve] == list(range(2, 13))
    strengths = {n: np.median([tree.strength(n) for tree in trees]) for n in range(2, 13)}
    for level in curve:
        cut = [np.array(tree.groups(level.n_clusters))[labels[:, head]] for head, tree in enumerate(trees)]
        pairs = list(itertools.combinations(cut, 2))
        information = np.mean([mutual_info_score(a, b) for a, b in pairs])
        assert level.information == pytest.approx(information)
        assert level.agreement == pytest.approx(np.mean([adjusted_rand_score(a, b) for a, b in pairs]))
        assert level.strength == pytest.approx(strengths[level.n_clusters])
        after = strengths.get(2 * level.n_clusters, 0.0)  # of twice as many clusters
        lost, more = (1 - strength + NEGLIGIBLE for strength in (strengths[level.n_clusters], after))
        assert level.evidence == pytest.approx(information * np.log(more / lost))


def test_classes_that_all_heads_find_are_selected() -> None:
    levels = find_levels(stability_curve(*nested_heads(4)))
    assert levels[0].n_clusters == 6
    assert levels[0].agreement == pytest.approx(1.0)
    assert levels[0].strength > 0.95


def test_halves_that_each_head_cuts_elsewhere_do_not_hold() -> None:
    curve = {level.n_clusters: level for level in stability_curve(*nested_heads(4))}
    assert curve[7].strength < 0.1


def six_clusters() -> MergeTree:
    """A tree of six clusters that no pair crosses, with no other head to reproduce its splits."""
    tree = build_merge_tree(np.diag([100.0] * 6 + [0.0] * 6), Merge())
    return tree._replace(steps=[step._replace(strength=0.0) for step in tree.steps])


def test_numbers_that_few_heads_have_do_not_count() -> None:
    fine, labels = nested_heads(1)
    coarse = six_clusters()
    classes = labels[:, 0] // 2
    curve = stability_curve([*fine, coarse, coarse], np.stack([labels[:, 0], classes, classes], 1))
    assert curve[-1].n_clusters == 6


def test_a_head_with_fewer_clusters_counts_against_more() -> None:
    """Two of five heads have all twelve clusters: the median strength there is 0."""
    fine, labels = nested_heads(2)
    coarse = six_clusters()
    classes = labels[:, :1] // 2
    curve = stability_curve([*fine, *[coarse] * 3], np.concatenate([labels, *[classes] * 3], 1))
    assert [level.strength for level in curve if level.n_clusters > 6] == [0.0] * 6


def test_a_single_head_is_judged_by_the_pairs_that_cross() -> None:
    assert find_levels(stability_curve(*nested_heads(1)))[0].n_clusters == 6


@given(st.lists(st.floats(0, 1), max_size=40))
def test_the_finest_clustering_that_holds_is_selected(values: list[float]) -> None:
    strengths = sorted(values, reverse=True)
    curve = [Level(n, 1.0, 1.0, 1.0, strength) for n, strength in enumerate(strengths, start=2)]
    levels = find_levels(curve)
    assert 1 <= len(levels) <= MAX_LEVELS
    first = max(values, default=0.0)
    least = HOLDS if first >= HOLDS else NEARLY * first
    expected = 1 if first < NOISE else 1 + sum(strength >= least for strength in strengths)
    assert levels[0].n_clusters == expected
    assert (ONE in levels) == (first < HOLDS), "if not even two clusters hold, one is a level"
    assert len({level.n_clusters for level in levels}) == len(levels)


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 1)), min_size=1, max_size=20))
def test_the_selected_number_is_the_largest_evident_one_that_holds(values: list[tuple[float, float]]) -> None:
    strengths = sorted((strength for _, strength in values), reverse=True)
    curve = [Level(n, e, 1.0, 1.0, s) for n, ((e, _), s) in enumerate(zip(values, strengths, strict=True), start=2)]
    held = [level for level in curve if level.strength >= HOLDS]
    if held:
        most = max(level.evidence for level in held)
        expected = max(level.n_clusters for level in held if level.evidence >= EVIDENT * most)
        assert find_levels(curve)[0].n_clusters == expected


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0.5, 0.7)), min_size=1, max_size=40))
def test_the_other_levels_are_local_maxima_most_evidence_first(drawn: list[tuple[float, float]]) -> None:
    values = [evidence for evidence, _ in drawn]
    curve = [Level(n, e, 1.0, 1.0, 0.9 if n == 2 else s) for n, (e, s) in enumerate(drawn, start=2)]
    selected, *others = find_levels(curve)
    assert selected.n_clusters == 2
    assert all(level.strength >= NOISE for level in others), "noise has splits that are as strong"
    above = [-1.0, *values, -1.0]
    peaks = [n for n, (a, b, c) in enumerate(zip(above, values, above[2:], strict=False), start=2) if a <= b > c and b]
    stable = [n for n in peaks if n > 2 and curve[n - 2].strength >= NOISE]
    assert len(others) == min(MAX_LEVELS - 1, len(stable))
    assert [level.evidence for level in others] == sorted((level.evidence for level in others), reverse=True)
    for level in others:
        around = [values[n - 2] for n in (level.n_clusters - 1, level.n_clusters + 1) if 2 <= n < len(values) + 2]
        assert level.evidence == max([level.evidence, *around])


def nested_on_features(heads: int) -> tuple[list[MergeTree], np.ndarray]:
    """The same heads with trees as for stored features."""
    return with_boundaries(
        [build_merge_tree(TABLE, Merge())] * heads, CoAssignments.of_one_width(np.stack([TABLE] * heads))
    ), nested_heads(heads)[1]


def test_on_stored_features_the_number_on_which_heads_agree_is_selected() -> None:
    """A slow twin of the evidence with scikit-learn's measures."""
    trees, labels = nested_on_features(3)
    curve = agreement_curve(trees, labels)
    assert levels_of_agreement(curve)[0].n_clusters == 6
    for level in curve:
        cut = [np.array(tree.groups(level.n_clusters))[labels[:, head]] for head, tree in enumerate(trees)]
        pairs = list(itertools.combinations(cut, 2))
        information = np.mean([mutual_info_score(a, b) for a, b in pairs])
        agreement = max(0.0, float(np.mean([adjusted_rand_score(a, b) for a, b in pairs])))
        assert level.evidence == pytest.approx(information * (agreement * level.strength) ** 2)
    strengths = [level.strength for level in curve]
    assert strengths == sorted(strengths, reverse=True)
    assert strengths[4] == pytest.approx((364**2 - 4**2) / 368**2, rel=1e-2), "pairs cross from class to class"
    assert strengths[5] == pytest.approx((100**2 - 80**2) / 180**2), "and between the halves of a class"


@pytest.mark.parametrize(("evidence", "expected"), [(0.05, [1, 2]), (0.2, [2, 1]), (0.5, [2])])
def test_on_stored_features_little_evidence_makes_one_cluster_a_level(evidence: float, expected: list[int]) -> None:
    found = levels_of_agreement([Level(2, evidence, 1.0, 1.0, 1.0)])
    assert [level.n_clusters for level in found] == expected
    assert levels_of_agreement([]) == [ONE]


def test_without_clusters_there_is_one() -> None:
    assert find_levels([]) == [ONE]
    assert find_levels([Level(2, 0.0, 0.0, 0.0, 0.0)]) == [ONE]
