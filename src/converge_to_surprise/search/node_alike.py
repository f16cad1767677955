"""Do images that look alike have the same sub-cluster? The splits of a node are held to what the first search asks.

The two views of an image share more than what it shows: a patient, a scanner, the slant of a hand. Sub-clusters by such
things reject H1 whatever else is true, and turning a picture moves none of it to another patient. So pairs of different
images are compared too. A split that is there in the collection has few neighbors across it, and the other heads make
it as well; both together are its strength (``splits.py``), and the first search keeps splits of at least ``HOLDS``.

Neighbors are the images whose edges are most alike, which does not depend on the network that was trained on the
clusters, and none of them is a near-duplicate of the image: a split between two scans leaves each with its own slices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from ..config import Config
from ..core import surprise
from ..model.merge_tree import MergeTree
from .co_assignment import CoAssignments, width, widths
from .copies import groups_within, neighbors_outside
from .granularity import Table, split_strengths, with_weakest
from .neighbors import Search
from .node_bank import ViewBank
from .node_heads import OUTPUTS
from .splits import Splits, crossing, reproduced, splits_of


def alike(bank: ViewBank, rows: Tensor, config: Config) -> Tensor:
    """The images among those at ``rows`` (n,) that look most like each, as places in ``rows``. (n, k)"""
    groups = groups_within(bank.copies, rows)
    search = Search(config.seed, max(1, config.threads))
    return neighbors_outside(bank.points[rows], groups, widths(len(rows))[-1], search)


def with_strengths(trees: Sequence[MergeTree], sides: Tensor, near: Tensor) -> list[MergeTree]:
    """The trees with the strength of the weakest split so far at each number of sub-clusters.

    ``sides``: the outputs of both views of some images under every head (n, 2, heads); ``near``: as from ``alike``.
    """
    counts = CoAssignments.count(sides, near, OUTPUTS, len(sides))
    found = list(trees)
    return with_weakest(found, split_strengths(found, counts, sides[:, 0].numpy()))


def top_splits(tree: MergeTree, n_children: int) -> Splits:
    """The splits that lead to so many sub-clusters."""
    into, merged = splits_of(tree)
    return Splits(into[: n_children - 1], merged[: n_children - 1])


def strength_of(splits: Splits, head: int, sides: Tensor, near: Tensor) -> float:
    """The strength of the weakest of a head's splits for some images and those that look like them.

    ``sides``: the outputs of both views under every head, of the images that are tested and then of those of the search
    (n, 2, heads); ``near``: neighbors of those that are tested. (q, k)
    """
    tested = len(near)
    chosen = near[:, : width(len(sides), len(splits.into) + 1)]
    pairs = sides[:tested, 0, head].repeat_interleave(chosen.shape[1]), sides[chosen.flatten(), 1, head]
    joint: Table = surprise.joint_counts(*pairs, OUTPUTS).double().numpy()
    own, others = sides[:, 0, head].numpy(), np.delete(sides[:, 0].numpy(), head, axis=1)
    # With few images that are tested, those of the search say which side an output of another head is on.
    again = reproduced(splits, own, others, [(slice(tested, None), slice(tested))])
    return float((crossing(splits, joint + joint.T) * np.maximum(0, again)).min())
