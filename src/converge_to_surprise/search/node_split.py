"""Is a node one thing or several? Merge its outputs, test what is left on images held out from the search.

A split is accepted if three things hold. The heads of the node found the same sub-clusters, with boundaries that
neighbors and strongly augmented views do not cross (the evidence of ``granularity.py``). On held-out images the views
agree on sub-clusters more often than independent views would (the exact test of ``core/conditional.py``): this rejects
H1. And there, too, the boundary holds under strong augmentation: the views of an image share whatever varies in steps
too small for a boundary, as the slant of handwriting, so that H1 alone is nearly always rejected.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..config import Config
from ..core import rng, surprise
from ..core.conditional import log_p_value
from ..model.merge_tree import MergeResult
from .merge import boundaries, build_merge_tree, select_head
from .node_bank import COPIES, ViewBank
from .node_heads import OUTPUTS, NodeHeads, NodeImages

PAIRS = 2_000
"""Pairs of each kind that test the boundaries of a node, at most."""
MIN_FRACTION = 0.05
"""Sub-clusters with a smaller fraction of the views of their node are dissolved."""


class Trial(NamedTuple):
    """What was found at a node."""

    n_children: int
    """Sub-clusters for which there is most evidence; at least 2 if the node can be split at all, otherwise 1."""
    head: int
    groups: list[int]
    """The sub-cluster of each output of the head, by size of the search images. (OUTPUTS,)"""
    evidence: float
    """For so many sub-clusters; see ``granularity.py``."""
    log_p: float
    """Of the exact test on held-out images, for this node alone."""
    boundary: float
    """phi of the weakest boundary between its sub-clusters on held-out images under strong augmentation."""
    agreement: float
    """Fraction of the held-out images whose views agree on the sub-cluster."""


NOTHING = Trial(1, 0, [0] * OUTPUTS, 0.0, 0.0, 0.0, 1.0)
"""All heads put the whole node into one sub-cluster."""


def try_node(
    bank: ViewBank, heads: NodeHeads, node: int, images: NodeImages, held_out: Tensor, config: Config
) -> Trial:
    """The best split of a node, and the test of it. ``held_out``: places of its held-out images in the bank."""
    result, groups = _merged(bank, heads, node, images, config)
    if result is None:
        return NOTHING
    group_of = torch.tensor(groups)

    def grouped(features: Tensor) -> Tensor:
        return group_of[heads.labels(node, features)[..., result.head]]

    children = max(groups) + 1
    test = grouped(bank.augmented[held_out][:, :, COPIES - 1])
    counts = surprise.count(test[:, 0], test[:, 1], children)
    wide = grouped(bank.wide[held_out])
    joint = surprise.joint_counts(wide[:, 0], wide[:, 1], children).double().numpy()
    weakest = boundaries((joint + joint.T) / 2)[np.triu_indices(children, 1)].min()
    evidence = next((level.evidence for level in result.levels if level.n_clusters == children), 0.0)
    return Trial(
        children,
        result.head,
        groups,
        evidence,
        log_p_value(counts),
        float(weakest),
        float(surprise.agreement(counts)),
    )


def _merged(
    bank: ViewBank, heads: NodeHeads, node: int, images: NodeImages, config: Config
) -> tuple[MergeResult | None, list[int]]:
    """The selected head and number of sub-clusters, and the sub-cluster of each of the head's outputs."""
    rows = images.rows
    generator = rng.torch_generator(config.seed, "node pairs", node)
    chosen = torch.randint(len(rows), (min(PAIRS, 20 * len(rows)),), generator=generator)
    column = torch.randint(images.neighbors.shape[1], (len(chosen),), generator=generator)
    partner = images.neighbors[chosen, column]
    usual = heads.labels(node, bank.augmented[rows][:, :, 0])  # (n, 2, heads)
    wide = heads.labels(node, bank.wide[rows])
    near = surprise.joint_counts(usual[chosen, 0].t(), usual[partner, 1].t(), OUTPUTS)
    strong = surprise.joint_counts(wide[:, 0].t(), wide[:, 1].t(), OUTPUTS)
    # As many of either kind.
    tables = (near / near.sum((1, 2), keepdim=True) + strong / strong.sum((1, 2), keepdim=True)).double().numpy()
    settings = replace(config.merge, min_cluster_fraction=MIN_FRACTION)
    trees = [build_merge_tree(table, settings) for table in tables]
    most = max(tree.n_clusters for tree in trees)
    if most < 2:
        return None, []
    labels = heads.labels(node, bank.mean[rows])
    asked = replace(config, n_clusters=None, merge=settings)
    result = select_head(trees, near, labels.numpy(), asked)
    if result.n_clusters == 1:  # there is hardly any evidence; the person may still want to see the best split
        result = select_head(trees, near, labels.numpy(), replace(asked, n_clusters=2))
    tree = trees[result.head]
    merged = np.array(tree.groups(result.n_clusters))
    sizes = np.bincount(merged[labels[:, result.head].numpy()], minlength=OUTPUTS)
    order = sorted(result.outputs, key=lambda output: (-sizes[output], output))
    # Outputs that never won join the largest sub-cluster.
    return result, [order.index(group) if group in order else 0 for group in merged.tolist()]
