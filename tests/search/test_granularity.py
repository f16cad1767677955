"""The evidence for a number of clusters and the levels that follow from it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, mutual_info_score

from converge_to_surprise.config import Merge
from converge_to_surprise.model.merge_tree import LITTLE_EVIDENCE, Level, MergeTree
from converge_to_surprise.search.granularity import (
    MAX_LEVELS,
    NEGLIGIBLE,
    NO_EVIDENCE,
    ONE,
    UNKNOWN,
    evidence_curve,
    find_levels,
)
from converge_to_surprise.search.merge import build_merge_tree


def nested_heads(heads: int, seed: int = 0) -> tuple[list[MergeTree], np.ndarray]:
    """Heads that find two groups of three classes each, and split every class in two at random places.

    Boundaries are strong between groups, strong between classes and weak between the halves of a class.
    """
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 6, 1200)
    trees, columns = [], []
    for _ in range(heads):
        halves = rng.integers(0, 2, len(classes))
        table = np.zeros((12, 12))
        for a, b in itertools.product(range(12), repeat=2):
            if a == b:
                table[a, b] = 100
            elif a // 2 == b // 2:
                table[a, b] = 80
            elif a // 6 == b // 6:
                table[a, b] = 1
        trees.append(build_merge_tree(table, Merge()))
        columns.append(2 * classes + halves)
    return trees, np.stack(columns, 1)


def test_the_evidence_is_that_of_the_formula() -> None:
    """A slow twin with scikit-learn's measures."""
    trees, labels = nested_heads(3)
    curve = evidence_curve(trees, labels)
    assert [level.n_clusters for level in curve] == list(range(2, 13))
    crossing = [1 - np.median([tree.boundary(n) for tree in trees]) for n in range(2, 13)] + [UNKNOWN]
    for position, level in enumerate(curve):
        cut = [np.array(tree.groups(level.n_clusters))[labels[:, head]] for head, tree in enumerate(trees)]
        pairs = list(itertools.combinations(cut, 2))
        information = np.mean([mutual_info_score(a, b) for a, b in pairs])
        agreement = np.mean([adjusted_rand_score(a, b) for a, b in pairs])
        boundary = np.median([tree.boundary(level.n_clusters) for tree in trees])
        assert level.information == pytest.approx(information)
        assert level.agreement == pytest.approx(agreement)
        assert level.boundary == pytest.approx(boundary)
        own, following = (max(crossing[: position + 1 + more]) + NEGLIGIBLE for more in (0, 1))
        held = (max(0, agreement) * max(0, boundary)) ** 2
        expected = information**1.25 * held * (np.log(following / own) + 0.2)
        assert level.evidence == pytest.approx(expected)


def test_classes_that_all_heads_find_are_the_first_level() -> None:
    trees, labels = nested_heads(4)
    levels = find_levels(evidence_curve(trees, labels))
    assert levels[0].n_clusters == 6
    assert levels[0].agreement == pytest.approx(1.0)


def test_numbers_that_few_heads_have_do_not_count() -> None:
    few, labels = nested_heads(1)
    coarse = build_merge_tree(np.diag([100.0] * 6 + [0.0] * 6), Merge())
    classes = labels[:, 0] // 2
    trees = [*few, coarse, coarse]
    curve = evidence_curve(trees, np.stack([labels[:, 0], classes, classes], 1))
    assert curve[-1].n_clusters == 6


def test_a_single_head_is_judged_by_its_boundaries() -> None:
    trees, labels = nested_heads(1)
    assert find_levels(evidence_curve(trees, labels))[0].n_clusters == 6


@given(st.lists(st.floats(0, 2), max_size=40))
def test_levels_are_local_maxima_most_evidence_first(values: list[float]) -> None:
    curve = [Level(n, evidence, 1.0, 1.0, 1.0) for n, evidence in enumerate(values, start=2)]
    levels = find_levels(curve)
    assert 1 <= len(levels) <= MAX_LEVELS
    found = [level for level in levels if level != ONE]
    assert [level.evidence for level in found] == sorted((level.evidence for level in found), reverse=True)
    for level in found:
        around = [values[n - 2] for n in (level.n_clusters - 1, level.n_clusters + 1) if 2 <= n < len(values) + 2]
        assert level.evidence == max([level.evidence, *around])
    most = max(values, default=0.0)
    assert (ONE in levels) == (most < LITTLE_EVIDENCE)
    assert levels[0] == ONE if most < NO_EVIDENCE else levels[0].evidence == most


def test_a_number_that_is_one_too_few_has_less_evidence_than_the_right_one() -> None:
    """With five of six classes a boundary that holds is given up; with seven one that does not hold is kept."""
    curve = {level.n_clusters: level for level in evidence_curve(*nested_heads(4))}
    assert curve[6].evidence > 10 * max(curve[5].evidence, curve[7].evidence)


def test_without_evidence_there_is_one_cluster() -> None:
    assert find_levels([]) == [ONE]
    assert find_levels([Level(2, 0.0, 0.0, 0.0, 0.0)]) == [ONE]
