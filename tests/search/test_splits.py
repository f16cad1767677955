"""How well the splits of a merge tree hold, and the order in which they are given up."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import matthews_corrcoef
from support.trees import random_tree

from converge_to_surprise.model.merge_tree import MergeStep, MergeTree
from converge_to_surprise.search import splits


@given(st.integers(2, 12), st.integers(0, 999))
def test_splits_divide_one_cluster_after_the_other(clusters: int, seed: int) -> None:
    tree = random_tree(clusters, seed)
    found = splits.splits_of(tree)
    assert found.into.shape == found.merged.shape == (clusters - 1, clusters)
    assert (found.into[0] ^ found.merged[0]).all(), "the first one divides everything"
    for n_clusters, (into, merged) in enumerate(zip(*found, strict=True), start=2):
        before, after = tree.groups(n_clusters - 1), tree.groups(n_clusters)
        assert not (into & merged).any()
        divided = into | merged
        assert len({before[k] for k in np.flatnonzero(divided)}) == 1
        assert len({after[k] for k in np.flatnonzero(divided)}) == 2
        assert [before[k] for k in np.flatnonzero(~divided)] == [after[k] for k in np.flatnonzero(~divided)]


def pairs_from(table: np.ndarray) -> list[tuple[int, int]]:
    return [(a, b) for a, b in itertools.product(range(len(table)), repeat=2) for _ in range(int(table[a, b]))]


@settings(max_examples=30)
@given(st.integers(2, 7), st.integers(0, 999))
def test_crossing_is_the_correlation_of_the_sides_of_pairs(clusters: int, seed: int) -> None:
    """A slow twin: one row per pair of views with both outputs in the cluster that is split."""
    table = np.random.default_rng(seed).integers(0, 9, (clusters, clusters))
    table += table.T
    found = splits.splits_of(random_tree(clusters, seed))
    for into, merged, phi in zip(*found, splits.crossing(found, table.astype(float)), strict=True):
        inside = [(a, b) for a, b in pairs_from(table) if (into | merged)[a] and (into | merged)[b]]
        expected = matthews_corrcoef([into[a] for a, _ in inside], [into[b] for _, b in inside]) if inside else 0.0
        assert phi == pytest.approx(expected)


@settings(max_examples=30)
@given(st.integers(2, 6), st.integers(1, 5), st.integers(0, 999))
def test_reproduced_is_the_correlation_with_what_the_other_head_says(clusters: int, others: int, seed: int) -> None:
    """A slow twin, image by image: the side of the other head's output is that of most images in the other half."""
    drawn = np.random.default_rng(seed)
    own, other = drawn.integers(0, clusters, 60), drawn.integers(0, others, 60)
    found = splits.splits_of(random_tree(clusters, seed))
    got = splits.reproduced(found, own, other[:, None])
    for into, merged, phi in zip(*found, got, strict=True):
        inside = [image for image in range(60) if (into | merged)[own[image]]]
        sides = [bool(into[own[image]]) for image in inside]
        told = []
        for image in inside:
            judges = [j for j in inside if j % 2 != image % 2 and other[j] == other[image]]
            told.append(2 * sum(bool(into[own[j]]) for j in judges) > len(judges))
        expected = matthews_corrcoef(sides, told) if inside else 0.0
        assert phi == pytest.approx(expected)


def test_a_split_that_other_heads_have_is_reproduced_and_a_random_one_is_not() -> None:
    drawn = np.random.default_rng(0)
    classes = drawn.integers(0, 2, 4000)
    own = 2 * classes + drawn.integers(0, 2, 4000)  # each class is cut in two at random
    others = np.stack([2 * classes + drawn.integers(0, 2, 4000) for _ in range(3)], 1)
    tree = MergeTree([MergeStep(0, 1, 0), MergeStep(2, 3, 0), MergeStep(0, 2, 0)], 4, 4)
    found = splits.reproduced(splits.splits_of(tree), own, others)
    assert found[0] == pytest.approx(1.0)
    assert np.abs(found[1:]).max() < 0.1
    assert splits.reproduced(splits.splits_of(tree), own, others[:, :0]).tolist() == [1, 1, 1]


@given(st.integers(2, 9), st.integers(0, 999))
def test_added_entropies_add_up_to_the_entropy_of_the_clusters(clusters: int, seed: int) -> None:
    own = np.random.default_rng(seed).integers(0, clusters, 300)
    added = splits.added_entropy(splits.splits_of(random_tree(clusters, seed)), own)
    share = np.bincount(own) / 300
    assert added.sum() == pytest.approx(-(share[share > 0] * np.log(share[share > 0])).sum())
    assert (added > -1e-12).all()


def best_value(tree: MergeTree, strength: np.ndarray, weight: np.ndarray, least: float) -> tuple[float, frozenset[int]]:
    """Slow twin of pruning at one strength: of all sets of splits that hold together, the one that gains most."""
    steps = [tree.step_at(n) for n in range(2, tree.n_clusters + 1)]
    parent = splits._parents(steps)
    best: tuple[float, frozenset[int]] = (0.0, frozenset())
    for kept in itertools.chain.from_iterable(
        itertools.combinations(range(len(steps)), k) for k in range(len(steps) + 1)
    ):
        if all(parent[split] in (-1, *kept) for split in kept):
            best = max(
                best, (sum(weight[s] * (strength[s] - least) for s in kept), frozenset(kept)), key=lambda b: b[0]
            )
    return best


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 8), st.integers(0, 9999), st.floats(0.05, 0.95))
def test_the_order_is_that_of_the_best_pruned_tree_at_every_strength(clusters: int, seed: int, least: float) -> None:
    drawn = np.random.default_rng(seed)
    tree = random_tree(clusters, seed)
    strength, weight = drawn.random(clusters - 1), drawn.uniform(0.01, 1, clusters - 1)
    pruned = splits.reordered(tree, strength, weight)
    left = 1 + sum(step.strength >= least for step in pruned.steps)
    kept = {(step.into, step.merged) for step in pruned.steps if step.strength >= least}
    _, expected = best_value(tree, strength, weight, least)
    steps = [tree.step_at(n) for n in range(2, tree.n_clusters + 1)]
    assert kept == {(steps[split].into, steps[split].merged) for split in expected}
    assert len(set(pruned.groups(left))) == left


@given(st.integers(2, 12), st.integers(0, 999))
def test_a_reordered_tree_has_the_same_merges_the_weakest_first(clusters: int, seed: int) -> None:
    drawn = np.random.default_rng(seed)
    tree = random_tree(clusters, seed)
    pruned = splits.reordered(tree, drawn.random(clusters - 1), drawn.random(clusters - 1))
    assert sorted(step[:2] for step in pruned.steps) == sorted(step[:2] for step in tree.steps)
    strengths = [step.strength for step in pruned.steps]
    assert strengths == sorted(strengths)
    for left in range(1, clusters + 1):
        assert len(set(pruned.groups(left))) == left


def test_a_small_thing_that_is_apart_survives_the_weak_split_beside_it() -> None:
    """Everything is cut in two by a weak split; within one half lies something that is clearly apart."""
    tree = MergeTree([MergeStep(0, 2, 0), MergeStep(0, 3, 0), MergeStep(0, 1, 0)], 4, 4)
    # Splits from the root: 1 from the rest (strong), 3 from the rest (weak), 2 from 0 (strong, small).
    pruned = splits.reordered(tree, np.array([0.95, 0.4, 0.95]), np.array([0.6, 0.5, 0.05]))
    assert [step.strength for step in pruned.steps] == pytest.approx([0.45, 0.45, 0.95])
    assert pruned.steps[0][:2] == (0, 2), "what lies below is merged first"


def test_dissolved_clusters_stay_dissolved() -> None:
    tree = MergeTree([MergeStep(0, 4, 0), MergeStep(0, 1, 0), MergeStep(0, 2, 0)], 5, 3)
    pruned = splits.reordered(tree, np.array([0.9, 0.1]), np.array([0.5, 0.5]))
    assert pruned.steps[0] == MergeStep(0, 4, 0)
    assert pruned.n_clusters == 3
    assert splits.splits_of(tree).into[:, 4].all()
