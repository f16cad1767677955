"""The merge tree at every number of clusters: which clusters or subclusters are together, and the scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import metrics
from ..model.assessment import Cluster, evaluate
from ..model.cluster_model import Model
from .image_data import ImageData, Integers, cluster_numbers


def levels(model: Model, data: ImageData, classes: Integers | None) -> dict[str, Any]:
    """For each number of clusters the group of every cluster or subcluster.

    Up to the run's own number of clusters the groups are made of clusters, beyond it of subclusters. Groups are
    numbered as `cts predict --n-clusters` numbers them: 0 is the largest. ``stable``: the levels of the run with their
    evidence.
    """
    if model.merge_result is None or model.unmerged is None:
        own = finest = len(data.assessment.clusters)
        numbers = range(own, own + 1)
    else:
        own = finest = model.merge_result.n_clusters
        if bool((data.subcluster >= 0).all()):
            finest = model.merge_result.max_clusters
        numbers = range(1, finest + 1)
    found = [_level(model, data, clusters, own) for clusters in numbers]
    scored = [level | ({} if classes is None else metrics.scores(labels, classes)) for level, labels in found]
    found_stable = [] if model.merge_result is None else model.merge_result.reachable_levels
    stable = [
        {"clusters": level.n_clusters, "strength": round(level.strength, 4), "agreement": round(level.agreement, 4)}
        for level in found_stable
        if level.n_clusters <= finest
    ]
    return {"own": own, "finest": finest, "levels": scored, "stable": stable}


def _level(model: Model, data: ImageData, clusters: int, own: int) -> tuple[dict[str, Any], Integers]:
    """What the page shows of one number of clusters, and the group of every image."""
    groups: list[int] | None = None
    table: dict[int, dict[str, Any]] = {}
    if clusters == own:
        table, labels = _table(data.assessment.clusters), data.cluster
    elif clusters < own:
        assessment = evaluate(model.cut(clusters), data.outputs, None, both=True)
        group = cluster_numbers(assessment)[np.array(model.cut(clusters).groups)]
        groups = [int(group[output]) for output in data.assessment.order]
        table, labels = _table(assessment.clusters), np.array(groups)[data.cluster]
    else:
        into = model.cut(clusters).numbers
        groups, labels = into.tolist(), into.numpy()[data.subcluster]
    of = "subclusters" if clusters > own else "clusters"
    return {"clusters": clusters, "of": of, "groups": groups, "table": table}, labels


def _table(clusters: list[Cluster]) -> dict[int, dict[str, Any]]:
    return {row.cluster: {"surprise": row.surprise, "nats": row.nats, "surprising": row.surprising} for row in clusters}


def tree(model: Model) -> list[list[float]] | None:
    """The merges, the weakest first: into, merged, how well the split between them holds."""
    if model.merge_result is None:
        return None
    return [[step.into, step.merged, round(step.strength, 6)] for step in model.merge_result.steps]
