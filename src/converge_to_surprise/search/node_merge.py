"""How many sub-clusters does a node have? Merge the outputs of its heads where boundaries are crossed.

For two outputs a and b the phi coefficient of the 2x2 table of co-assignments measures the boundary between them: it is
1 if the views of a pair are never on different sides and 0 if the sides are independent. The two with the weakest
boundary are merged, repeatedly. Within a node few sub-clusters are expected, and any of them may be small, so the
strength of splits alone decides how many there are (``node_alike.py``), not the information that they add.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..config import Merge
from ..core import surprise
from ..core.metrics import Labels
from ..model.merge_tree import HOLDS, MergeTree
from .granularity import median_strength
from .merge import build_merge_tree, grouped, head_agreement
from .node_alike import top_splits
from .splits import Splits

Table = npt.NDArray[np.float64]

MIN_FRACTION = 0.05
"""Sub-clusters with a smaller fraction of the views of their node are dissolved."""


class Merged(NamedTuple):
    """The selected head of a node."""

    head: int
    groups: list[int]
    """The sub-cluster of each of its outputs, the largest first."""
    agreement: float
    """Adjusted Rand index between the heads that have so many sub-clusters, mean over their pairs."""
    splits: Splits
    """Its splits that lead to the sub-clusters."""


def boundaries(table: Table) -> Table:
    """The phi coefficient of the boundary between every two clusters in a symmetric table of co-assignments (K, K)."""
    diagonal = np.diag(table)
    within = np.multiply.outer(diagonal, diagonal) - table * table
    side = diagonal[:, None] + table
    return np.divide(within, side * side.T, out=np.zeros_like(table), where=side * side.T > 0)


def boundary_tree(joint: Table) -> MergeTree:
    """The merges of a head from its co-assignments (K, K), that of the weakest boundary first."""
    return build_merge_tree(joint, Merge(min_cluster_fraction=MIN_FRACTION), boundaries)


def merge_node(trees: list[MergeTree], neighbor_counts: Tensor, labels: Labels) -> Merged | None:
    """As many sub-clusters as hold by the median over the heads, 2 if not even those do, and of the heads in which they
    hold (of all, if there is none) the one that divides best; None if every head puts all images into one.

    ``trees``: of each head, with the strength of the weakest split so far; ``neighbor_counts``: co-assignments of
    neighbors (heads, K, K); ``labels``: the outputs of the node's images under each head. (n, heads)
    """
    most = max(tree.n_clusters for tree in trees)
    if most < 2:
        return None
    n_children = max((n for n in range(2, most + 1) if median_strength(trees, n) >= HOLDS), default=2)
    able = [head for head, tree in enumerate(trees) if tree.n_clusters >= n_children]
    agreement = head_agreement(trees, labels, n_children)

    def quality(head: int) -> float:
        information = surprise.mutual_information(grouped(neighbor_counts[head], trees[head].groups(n_children)))
        return float(information) * float(agreement[head].mean())

    head = max(_holding(trees, n_children) or able, key=lambda h: (quality(h), -h))
    tree = trees[head]
    merged = np.array(tree.groups(n_children))
    sizes = np.bincount(merged[labels[:, head]], minlength=len(merged))
    order = sorted(tree.representatives(n_children), key=lambda output: (-sizes[output], output))
    # Outputs that never won join the largest sub-cluster.
    groups = [order.index(group) if group in order else 0 for group in merged.tolist()]
    pairs = agreement[np.ix_(able, able)][np.triu_indices(len(able), 1)]
    return Merged(head, groups, float(pairs.mean()) if len(pairs) else 0.0, top_splits(tree, n_children))


def _holding(trees: list[MergeTree], n_children: int) -> list[int]:
    """The heads in which so many sub-clusters hold."""
    return [h for h, tree in enumerate(trees) if tree.n_clusters >= n_children and tree.strength(n_children) >= HOLDS]
