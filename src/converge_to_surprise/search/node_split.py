"""Is a node one thing or several? Merge its outputs, test what is left on images held out from the search.

A split is accepted if three things hold on held-out images. The views agree on sub-clusters more often than independent
views would (the exact test of ``core/conditional.py``): this rejects H1. The boundary holds under stronger augmentation
than in training: the views of an image also share what varies without steps, as the slant of handwriting, so that in
large nodes H1 alone is nearly always rejected. And images that look alike are on the same side, in as many pairs as the
first search asks of its own splits (``node_alike.py``): the views also share what tells one patient from another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..config import Config
from ..core import rng, surprise
from ..core.conditional import log_p_value
from .node_alike import alike, strength_of, with_strengths
from .node_bank import COPIES, ViewBank
from .node_heads import OUTPUTS, NodeHeads, NodeImages
from .node_merge import Merged, boundaries, boundary_tree, merge_node

PAIRS = 2_000
"""Pairs of each kind that test the boundaries of a node, at most."""
MIN_BOUNDARY = 0.5
"""phi that the weakest boundary of a split must have on held-out images under strong augmentation."""
STORED_BOUNDARY = 0.7
"""The same for stored features, whose views are augmented as in training only."""


class NodeTrial(NamedTuple):
    """What was found at a node."""

    n_children: int
    """Sub-clusters for which there is most evidence; at least 2 if the node can be split at all, otherwise 1."""
    head: int
    groups: list[int]
    """The sub-cluster of each output of the head, by size of the search images. (OUTPUTS,)"""
    agreement: float
    """Adjusted Rand index between the heads that have so many sub-clusters, mean over their pairs."""
    log_p: float
    """Of the exact test on held-out images, for this node alone."""
    boundary: float
    """phi of the weakest boundary between its sub-clusters on held-out images under strong augmentation."""
    views_agree: float
    """Fraction of the held-out images whose views agree on the sub-cluster."""
    by_chance: float = 1.0
    """The fraction that independent views with the same shares would give."""
    strength: float = 0.0
    """Of the weakest split between its sub-clusters, for held-out images and those that look like them."""


NOTHING = NodeTrial(1, 0, [0] * OUTPUTS, 0.0, 0.0, 0.0, 1.0)
"""All heads put the whole node into one sub-cluster."""


def try_node(
    bank: ViewBank, heads: NodeHeads, node: int, images: NodeImages, held_out: Tensor, config: Config
) -> NodeTrial:
    """The best split of a node, and the test of it. ``held_out``: places of its held-out images in the bank."""
    found = _merged(bank, heads, node, images, config)
    if found is None:
        return NOTHING
    groups, group_of = found.groups, torch.tensor(found.groups)

    def grouped(features: Tensor) -> Tensor:
        return group_of[heads.labels(node, features)[..., found.head]]

    children = max(groups) + 1
    test = grouped(bank.augmented[held_out][:, :, COPIES - 1])
    counts = surprise.count(test[:, 0], test[:, 1], children)
    wide = grouped(bank.wide[held_out]).flatten(0, 1)
    joint = surprise.joint_counts(wide[:, 0], wide[:, 1], children).double().numpy()
    weakest = boundaries((joint + joint.T) / 2)[np.triu_indices(children, 1)].min()
    everything = torch.cat([held_out, images.rows])
    sides = heads.labels(node, bank.plain[everything])
    near = alike(bank, everything, config)[: len(held_out)]
    return NodeTrial(
        children,
        found.head,
        groups,
        found.agreement,
        log_p_value(counts),
        float(weakest),
        float(surprise.agreement(counts)),
        float((counts.first.double() * counts.second.double()).sum()) / counts.total**2,
        strength_of(found.splits, found.head, sides, near),
    )


def _merged(bank: ViewBank, heads: NodeHeads, node: int, images: NodeImages, config: Config) -> Merged | None:
    """The selected head and its sub-clusters: as many as hold, 2 if not even those do."""
    near, tables = _pair_tables(bank, heads, node, images, config.seed)
    sides = heads.labels(node, bank.plain[images.rows])
    trees = with_strengths([boundary_tree(table) for table in tables], sides, images.alike)
    labels = heads.labels(node, bank.mean[images.rows]).numpy()
    return merge_node(trees, near, labels)


def _pair_tables(
    bank: ViewBank, heads: NodeHeads, node: int, images: NodeImages, seed: int
) -> tuple[Tensor, npt.NDArray[np.float64]]:
    """How often neighbors get each pair of outputs, and the same for neighbors and strongly augmented views together,
    with equal weight. (heads, OUTPUTS, OUTPUTS) each
    """
    rows = images.rows
    generator = rng.torch_generator(seed, "node pairs", node)
    chosen = torch.randint(len(rows), (min(PAIRS, 20 * len(rows)),), generator=generator)
    column = torch.randint(images.neighbors.shape[1], (len(chosen),), generator=generator)
    partner = images.neighbors[chosen, column]
    usual = heads.labels(node, bank.augmented[rows][:, :, 0])  # (n, 2, heads)
    wide = heads.labels(node, bank.wide[rows]).flatten(0, 1)
    near = surprise.joint_counts(usual[chosen, 0].t(), usual[partner, 1].t(), OUTPUTS)
    strong = surprise.joint_counts(wide[:, 0].t(), wide[:, 1].t(), OUTPUTS)
    both = near / near.sum((1, 2), keepdim=True) + strong / strong.sum((1, 2), keepdim=True)
    return near, both.double().numpy()
