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


@given(pairs)
def test_accuracy_and_purity_agree_with_brute_force(labels: list[tuple[int, int]]) -> None:
    clusters, classes = (np.array(side) for side in zip(*labels, strict=True))
    assert metrics.accuracy(clusters, classes) == pytest.approx(reference.accuracy(clusters.tolist(), classes.tolist()))
    assert metrics.purity(clusters, classes) == pytest.approx(reference.purity(clusters.tolist(), classes.tolist()))


@given(pairs)
def test_indices_agree_with_scikit_learn(labels: list[tuple[int, int]]) -> None:
    clusters, classes = (np.array(side) for side in zip(*labels, strict=True))
    assert metrics.normalised_mutual_information(clusters, classes) == pytest.approx(
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
