"""The merge tree at every number of clusters: which clusters or parts go together, and how good that is."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import metrics
from ..model.cluster_model import Model
from ..runs.result import Cluster, judge
from .reading import Look, Numbers, numbers


def levels(model: Model, look: Look, classes: Numbers | None) -> dict[str, Any]:
    """For each number of clusters a list that says where every cluster, or every part, goes.

    Up to the run's own number of clusters the groups are made of clusters, beyond it of parts. Groups are numbered as
    `cts predict --clusters` numbers them: 0 is the largest.
    """
    own = model.merged.clusters if model.merged else len(look.assessment.clusters)
    found: dict[str, Any] = {"own": own, "finest": own, "levels": []}
    if model.merged is None or model.unmerged is None:
        return found | {"levels": [_own(look, own, classes)]}
    finest = model.merged.finest if bool((look.part >= 0).all()) else own
    found["finest"] = finest
    for clusters in range(1, finest + 1):
        if clusters == own:
            level = _own(look, own, classes)
        elif clusters < own:
            level = _coarser(model, look, clusters, classes)
        else:
            level = _finer(model, look, clusters, classes)
        found["levels"].append(level)
    return found


def _own(look: Look, clusters: int, classes: Numbers | None) -> dict[str, Any]:
    table = _table(look.assessment.clusters)
    return {"clusters": clusters, "of": "clusters", "groups": None, "table": table, **_scores(look.cluster, classes)}


def _coarser(model: Model, look: Look, clusters: int, classes: Numbers | None) -> dict[str, Any]:
    assessment = judge(model.cut(clusters), look.reading, classes, both=True)
    group = numbers(assessment)[np.array(model.cut(clusters).groups)]
    into = [int(group[output]) for output in look.assessment.order]
    return {
        "clusters": clusters,
        "of": "clusters",
        "groups": into,
        "table": _table(assessment.clusters),
        **_scores(np.array(into)[look.cluster], classes),
    }


def _finer(model: Model, look: Look, clusters: int, classes: Numbers | None) -> dict[str, Any]:
    into = model.cut(clusters).numbers
    return {
        "clusters": clusters,
        "of": "parts",
        "groups": into.tolist(),
        "table": {},
        **_scores(into.numpy()[look.part], classes),
    }


def _table(clusters: list[Cluster]) -> dict[int, dict[str, Any]]:
    return {row.cluster: {"surprise": row.surprise, "nats": row.nats, "surprising": row.surprising} for row in clusters}


def _scores(labels: Numbers, classes: Numbers | None) -> dict[str, float]:
    if classes is None:
        return {}
    return {
        "acc": metrics.accuracy(labels, classes),
        "nmi": metrics.normalized_mutual_information(labels, classes),
        "ari": metrics.adjusted_rand_index(labels, classes),
    }


def tree(model: Model) -> list[list[float]] | None:
    """The joins of the merge tree, weakest boundary first: kept part, gone part, φ of the boundary between them."""
    if model.merged is None:
        return None
    return [[join.kept, join.gone, round(join.phi, 6)] for join in model.merged.joins]
