"""The merge tree at every number of clusters: which clusters or parts go together, and how good that is."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import metrics
from ..model.assessment import Cluster, evaluate
from ..model.cluster_model import Model
from .image_data import ImageData, Integers, cluster_numbers


def levels(model: Model, data: ImageData, classes: Integers | None) -> dict[str, Any]:
    """For each number of clusters a list that says where every cluster, or every part, goes.

    Up to the run's own number of clusters the groups are made of clusters, beyond it of parts. Groups are numbered as
    `cts predict --n-clusters` numbers them: 0 is the largest.
    """
    own = model.merge_result.n_clusters if model.merge_result else len(data.assessment.clusters)
    found: dict[str, Any] = {"own": own, "finest": own, "levels": []}
    if model.merge_result is None or model.unmerged is None:
        return found | {"levels": [_own(data, own, classes)]}
    finest = model.merge_result.max_clusters if bool((data.subcluster >= 0).all()) else own
    found["finest"] = finest
    for clusters in range(1, finest + 1):
        if clusters == own:
            level = _own(data, own, classes)
        elif clusters < own:
            level = _coarser(model, data, clusters, classes)
        else:
            level = _finer(model, data, clusters, classes)
        found["levels"].append(level)
    return found


def _own(data: ImageData, clusters: int, classes: Integers | None) -> dict[str, Any]:
    table = _table(data.assessment.clusters)
    return {"clusters": clusters, "of": "clusters", "groups": None, "table": table, **_scores(data.cluster, classes)}


def _coarser(model: Model, data: ImageData, clusters: int, classes: Integers | None) -> dict[str, Any]:
    assessment = evaluate(model.cut(clusters), data.outputs, classes, both=True)
    group = cluster_numbers(assessment)[np.array(model.cut(clusters).groups)]
    into = [int(group[output]) for output in data.assessment.order]
    return {
        "clusters": clusters,
        "of": "clusters",
        "groups": into,
        "table": _table(assessment.clusters),
        **_scores(np.array(into)[data.cluster], classes),
    }


def _finer(model: Model, data: ImageData, clusters: int, classes: Integers | None) -> dict[str, Any]:
    into = model.cut(clusters).numbers
    return {
        "clusters": clusters,
        "of": "subclusters",
        "groups": into.tolist(),
        "table": {},
        **_scores(into.numpy()[data.subcluster], classes),
    }


def _table(clusters: list[Cluster]) -> dict[int, dict[str, Any]]:
    return {row.cluster: {"surprise": row.surprise, "nats": row.nats, "surprising": row.surprising} for row in clusters}


def _scores(labels: Integers, classes: Integers | None) -> dict[str, float]:
    if classes is None:
        return {}
    return {
        "acc": metrics.accuracy(labels, classes),
        "nmi": metrics.normalized_mutual_information(labels, classes),
        "ari": metrics.adjusted_rand_index(labels, classes),
    }


def tree(model: Model) -> list[list[float]] | None:
    """The joins of the merge tree, weakest boundary first: kept part, gone part, φ of the boundary between them."""
    if model.merge_result is None:
        return None
    return [[step.into, step.merged, round(step.phi, 6)] for step in model.merge_result.steps]
