from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from converge_to_surprise.core import metrics

pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40)
SIZES = st.lists(st.integers(0, 10_000), min_size=1, max_size=70).filter(any)


@given(pairs)
def test_accuracy_and_purity_agree_with_brute_force(labels: list[tuple[int, int]]) -> None:
    clusters, classes = (np.array(side) for side in zip(*labels, strict=True))
    assert metrics.accuracy(clusters, classes) == pytest.approx(reference.accuracy(clusters.tolist(), classes.tolist()))
    assert metrics.purity(clusters, classes) == pytest.approx(reference.purity(clusters.tolist(), classes.tolist()))


@given(pairs)
def test_indices_agree_with_scikit_learn(labels: list[tuple[int, int]]) -> None:
    clusters, classes = (np.array(side) for side in zip(*labels, strict=True))
    assert metrics.normalized_mutual_information(clusters, classes) == pytest.approx(
        normalized_mutual_info_score(classes, clusters)
    )
    assert metrics.adjusted_rand_index(clusters, classes) == pytest.approx(adjusted_rand_score(classes, clusters))
    table = metrics.confusion(clusters, classes)
    used = table[table.sum(1) > 0][:, table.sum(0) > 0]
    np.testing.assert_array_equal(used, contingency_matrix(clusters, classes))


def test_more_clusters_than_classes_by_hand() -> None:
    clusters, classes = np.array([0, 0, 1, 2, 2, 2]), np.array([0, 0, 0, 1, 1, 0])
    assert metrics.accuracy(clusters, classes) == pytest.approx(4 / 6)
    assert metrics.purity(clusters, classes) == pytest.approx(5 / 6)
    assert metrics.dominant(clusters, classes) == {0: (0, 1.0), 1: (0, 1.0), 2: (1, pytest.approx(2 / 3))}


@pytest.mark.parametrize(
    ("clusters", "classes", "message"),
    [([0, 1], [0], "2 cluster labels but 1"), ([], [], "no labels"), ([-1], [0], "negative")],
)
def test_wrong_labels_are_refused(clusters: list[int], classes: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.confusion(np.array(clusters, dtype=int), np.array(classes, dtype=int))


@given(SIZES)
def test_balance_agrees_with_the_oracle(sizes: list[int]) -> None:
    assert metrics.balance(sizes) == pytest.approx(reference.balance(sizes), abs=1e-12)


@given(SIZES, st.integers(2, 9))
def test_balance_is_largest_for_equal_sizes_only_and_depends_on_fractions_only(sizes: list[int], factor: int) -> None:
    found, held = metrics.balance(sizes), [size for size in sizes if size]
    most = 1 - 1 / len(held)
    assert -1e-12 <= found <= most + 1e-9
    assert (found > most - 1e-12) == (len(set(held)) == 1)
    assert metrics.balance([factor * size for size in sizes]) == pytest.approx(found, abs=1e-12)
    assert metrics.balance([*sizes, 0]) == found


@given(st.integers(1, 60), st.integers(1, 100))
def test_more_clusters_of_one_size_are_better_balanced(clusters: int, size: int) -> None:
    """A collapsed clustering is never preferred: a single cluster has the smallest balance."""
    assert metrics.balance([size] * clusters) < metrics.balance([size] * (clusters + 1))


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=20), st.data())
def test_moving_an_image_from_a_larger_to_a_smaller_cluster_improves_the_balance(
    sizes: list[int], data: st.DataObject
) -> None:
    large, small = data.draw(st.permutations(range(len(sizes))).map(lambda order: order[:2]))
    if sizes[large] < sizes[small] + 2:
        return
    moved = list(sizes)
    moved[large] -= 1
    moved[small] += 1
    assert metrics.balance(moved) > metrics.balance(sizes)


def test_balance_does_not_depend_on_the_order_of_the_sizes() -> None:
    """Bit for bit: of two initializations with the same sizes the first is selected on every machine."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        sizes = rng.integers(1, 5000, 10).tolist()
        assert metrics.balance(sizes) == metrics.balance(sorted(sizes)) == metrics.balance(sizes[::-1])
