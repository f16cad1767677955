"""The tree of sub-clusters as the page shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..model.cluster_model import Model
from ..model.hierarchy import path_text
from ..runs.hypothesis_table import ending, why
from ..runs.labels import SavedOutputs

Integers = npt.NDArray[np.int64]


def leaf_places(model: Model, saved: SavedOutputs) -> Integers | None:
    """The leaf of every image as a place in ``model.shown_paths``, whatever a person merged; None without a tree."""
    tree = model.hierarchy
    if tree is None:
        return None
    numbers = model.numbers[saved.winner]
    leaf, _ = tree.descend(numbers, saved.features.float(), len(model.order))
    place = {path: index for index, path in enumerate(model.shown_paths)}
    table = torch.tensor([place.get(path, -1) for path in model.paths])
    found: Integers = table[leaf].numpy()
    return found


def subcluster_tree(
    model: Model, leaves: Integers | None, rounds: Sequence[dict[str, Any]] = ()
) -> dict[str, Any] | None:
    """Every node with its size, what its split explains, and why it was split or not. ``rounds``: as in result.json."""
    tree = model.hierarchy
    if tree is None or leaves is None:
        return None
    paths = model.shown_paths
    place = {path: index for index, path in enumerate(paths)}
    counts = Counter(leaves.tolist())
    nodes = []
    for path in paths:
        tried = tree.tried(path)
        below = [k for k, other in enumerate(paths) if other[: len(path)] == path]
        nodes.append(
            {
                "path": path_text(path),
                "parent": place.get(path[:-1], -1),
                "children": [place[child] for child in tree.children.get(path, ())],
                "size": sum(counts[k] for k in below),
                "nats": 0.0 if tried is None else round(tried.nats, 1),
                "outcome": None if tried is None else tried.outcome,
                "why": "No sub-clusters were searched in it." if tried is None else why(tried),
            }
        )
    return {"nodes": nodes, "ending": ending(tree), "names": dict(model.node_names), "rounds": list(rounds)}
