"""The tree of sub-clusters of an estimator."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from torch import Tensor

from ..config import Config
from ..model.cluster_model import Model, Prediction
from ..model.hierarchy import Hierarchy, path_text
from ..runs.deepening import wanted_rounds
from ..runs.hypothesis_table import why
from ..search.hypotheses import Searched, deepen
from ..search.restarts import Fitted


def deepened(fitted: Fitted, items: Tensor, config: Config) -> Fitted:
    """What was fitted, with the sub-clusters that the configured rounds find. ``items``: what the search worked on."""
    request = wanted_rounds(config, None)
    if request is None:
        return fitted
    tree = Hierarchy()
    for tree in deepen(Searched.of(fitted.model, items), request):  # noqa: B007 - the last one is kept
        pass
    return fitted._replace(model=replace(fitted.model, hierarchy=tree))


def tree_rows(model: Model, prediction: Prediction) -> list[dict[str, Any]]:
    """One row per node of the tree, in the order of the paths; empty if no sub-clusters were searched."""
    tree = model.hierarchy
    if tree is None:
        return []
    sizes: Counter[tuple[int, ...]] = Counter()
    for cluster, leaf in zip(prediction.cluster.tolist(), prediction.leaf.tolist(), strict=True):
        path = model.paths[leaf] if cluster >= 0 else ()
        sizes.update(path[:end] for end in range(1, len(path) + 1))
    rows = []
    for path in model.shown_paths:
        node = tree.tried(path)
        rows.append(
            {
                "path": path_text(path),
                "parent": path_text(path[:-1]) or None,
                "size": sizes[path],
                "children": [path_text(child) for child in tree.children.get(path, ())],
                "name": model.path_name(path),
                "nats": 0.0 if node is None else node.nats,
                "outcome": None if node is None else node.outcome,
                "why": "" if node is None else why(node),
            }
        )
    return rows
