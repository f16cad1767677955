"""The verdict on a run, from evidence without classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from converge_to_surprise.core.measures import Measures
from converge_to_surprise.model.assessment import Assessment, Cluster
from converge_to_surprise.model.judgment import explained_by_light, judge
from converge_to_surprise.model.merge_tree import Level, MergeResult


def assessed(n_clusters: int, surprising: int | None = None, agreement: float = 0.95) -> Assessment:
    rows = [Cluster(k, k, 10, 0.1, 50.0, agreement, True, None, None) for k in range(n_clusters)]
    labels = np.arange(10 * n_clusters) % n_clusters
    found = n_clusters if surprising is None else surprising
    measures = Measures(1.0, 1.5, agreement, found, n_clusters)
    return Assessment(labels, labels, list(range(n_clusters)), measures, rows, None)


def merged(n_clusters: int, agreement: float = 0.97, strength: float = 0.9, heads: int = 2) -> MergeResult:
    level = Level(n_clusters, 1.0, 2.0, agreement, strength)
    return MergeResult(n_clusters, 0, list(range(n_clusters)), [], {}, [], [1.0] * heads, [level])


def test_clusters_that_hold_are_strong() -> None:
    verdict = judge(assessed(5), merged(5), 0.3, has_backbone=False)
    assert verdict.strength == "strong"
    assert verdict.advice == []
    assert "independent heads agree (0.97)" in verdict.text


def test_a_single_head_is_not_said_to_agree_with_others() -> None:
    verdict = judge(assessed(5), merged(5, agreement=1.0, heads=1), 0.3, has_backbone=False)
    assert verdict.strength == "strong"
    assert "independent heads" not in verdict.text


@pytest.mark.parametrize(
    ("assessment", "result", "explained", "reason"),
    [
        (assessed(5), merged(5, agreement=0.6), 0.3, "found different clusters (agreement 0.60)"),
        (assessed(5), merged(5, strength=0.7), 0.3, "the splits between clusters hardly hold (0.70)"),
        (assessed(5, agreement=0.7), merged(5), 0.3, "both views agree for 70% of the images only"),
        (assessed(4), merged(5), 0.3, "1 clusters were lost in refining"),
        (assessed(2), merged(2), 0.97, "light and color alone tell the clusters apart (97%)"),
    ],
)
def test_every_doubt_makes_it_weak(assessment: Assessment, result: MergeResult, explained: float, reason: str) -> None:
    verdict = judge(assessment, result, explained, has_backbone=False)
    assert verdict.strength == "weak"
    assert any(reason in found for found in verdict.reasons)
    assert "--backbone" in verdict.text


def test_a_split_may_be_weaker_where_coarser_ones_clearly_hold() -> None:
    result = merged(5, strength=0.8)
    assert judge(assessed(5), result, 0.3, has_backbone=False).strength == "strong"
    one = Level(1, 0.0, 0.0, 1.0, 1.0)
    doubtful = result._replace(levels=[*result.levels, one])
    assert judge(assessed(5), doubtful, 0.3, has_backbone=False).strength == "weak"


def test_splits_on_stored_features_may_be_weaker() -> None:
    weaker = merged(5, strength=0.7)
    assert judge(assessed(5), weaker, 0.3, has_backbone=True).strength == "strong"
    assert judge(assessed(5), weaker, 0.3, has_backbone=False, kind="embeddings").strength == "strong"
    assert judge(assessed(5), merged(5, strength=0.5), 0.3, has_backbone=True).strength == "weak"


@pytest.mark.parametrize(("n_clusters", "surprising"), [(1, 1), (1, 0), (3, 1), (3, 0)])
def test_nothing_is_found_without_two_surprising_clusters(n_clusters: int, surprising: int) -> None:
    assert judge(assessed(n_clusters, surprising), None, 0.0, has_backbone=True).strength == "nothing found"


def pictures(brightness: np.ndarray) -> Tensor:
    """Noise of these mean brightnesses."""
    noise = np.random.default_rng(0).normal(0, 25, (len(brightness), 3, 12, 12))
    return torch.from_numpy((brightness[:, None, None, None] + noise).clip(0, 255).astype(np.uint8))


def test_sessions_of_different_light_are_told_apart_by_it() -> None:
    labels = np.arange(200) % 2
    assert explained_by_light(pictures(np.where(labels == 0, 80.0, 170.0)), labels) > 0.95


def test_clusters_that_have_nothing_to_do_with_light_are_not() -> None:
    labels = np.random.default_rng(1).integers(0, 2, 400)
    images = pictures(np.random.default_rng(2).uniform(60, 190, 400))
    assert explained_by_light(images, labels) == pytest.approx(0.5, abs=0.12)


def test_a_single_cluster_and_tiny_ones_are_not_explained() -> None:
    images = pictures(np.full(20, 100.0))
    assert explained_by_light(images, np.zeros(20, dtype=np.int64)) == 0.0
    assert explained_by_light(images, np.arange(20)) == 0.0
