"""How well each split of a merge tree holds, and in which order splits are given up.

Read from its root, a merge tree splits everything into clusters. A split that is there in the collection passes two
tests. Few pairs of neighbors and of augmented views cross it: the phi coefficient of the 2x2 table of their sides is
high. And the other heads reproduce it: where a split has no ground each head makes it elsewhere. What the others find
is all outputs that they have, each on the side on which most of its images are; which side that is, is counted on one
half of the images, and phi between the split and what the others say of it on the other half. The strength of a split
is the product of both.

A strong split may lie below a weak one: a small thing that is clearly apart within a large one that was cut in two.
Which splits to give up first is the problem of pruning a decision tree, and its solution is used (Breiman et al. 1984):
repeatedly give up the branch whose splits have the smallest mean strength, weighted by the entropy that they add. So
clusterings are nested, and each has the strength of the branch that would be given up next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.metrics import Labels
from ..model.merge_tree import MergeStep, MergeTree

Floats = npt.NDArray[np.float64]
Sides = npt.NDArray[np.bool_]


Fold = tuple[slice, slice]
"""Images on which is counted which side the outputs of another head are on, and images on which phi is."""
HALVES: tuple[Fold, ...] = ((slice(1, None, 2), slice(0, None, 2)), (slice(0, None, 2), slice(1, None, 2)))


class Splits(NamedTuple):
    """The splits of a head's tree, the one at the root first."""

    into: Sides
    """Which outputs are on the side that keeps its number. (splits, K)"""
    merged: Sides
    """Which outputs are on the other side. (splits, K)"""


def splits_of(tree: MergeTree) -> Splits:
    """The splits from one cluster to all that a tree has; dissolved outputs are on the side of their cluster."""
    into, merged = [], []
    for n_clusters in range(2, tree.n_clusters + 1):
        step, groups = tree.step_at(n_clusters), np.array(tree.groups(n_clusters))
        into.append(groups == step.into)
        merged.append(groups == step.merged)
    shape = (tree.n_clusters - 1, tree.n_outputs)
    return Splits(np.array(into, bool).reshape(shape), np.array(merged, bool).reshape(shape))


def crossing(splits: Splits, table: Floats) -> Floats:
    """phi of each split for pairs of views, from a symmetric table of co-assignments (K, K). (splits,)"""
    a, b = splits.into.astype(float), splits.merged.astype(float)
    rows = a @ table, b @ table
    return _phi((rows[0] * a).sum(1), (rows[0] * b).sum(1), (rows[1] * a).sum(1), (rows[1] * b).sum(1))


def reproduced(splits: Splits, own: Labels, others: Labels, folds: Sequence[Fold] = HALVES) -> Floats:
    """phi of each split with what the other heads say of it, mean over them; 1 without other heads. (splits,)

    ``own``: the output of some images under this head (n,); ``others``: under each other head (n, heads - 1).
    """
    if not others.shape[1]:
        return np.ones(len(splits.into))
    found: Floats = np.mean([_reproduced(splits, own, column, folds) for column in others.T], axis=0)
    return found


def _reproduced(splits: Splits, own: Labels, other: Labels, folds: Sequence[Fold]) -> Floats:
    other = np.unique(other, return_inverse=True)[1]
    shape = (splits.into.shape[1], int(other.max()) + 1)

    def counted(some: slice) -> tuple[Floats, Floats]:
        table = np.zeros(shape)
        np.add.at(table, (own[some], other[some]), 1)
        return splits.into @ table, splits.merged @ table  # (splits, outputs of the other head) each

    counts = np.zeros((4, len(splits.into)))
    for told, tested in folds:
        told_into, told_merged = counted(told)
        into, merged = counted(tested)
        side = told_into > told_merged
        counts += [
            np.where(side, into, 0).sum(1),
            np.where(side, 0, into).sum(1),
            np.where(side, merged, 0).sum(1),
            np.where(side, 0, merged).sum(1),
        ]
    return _phi(*counts)


def _phi(a: Floats, b: Floats, c: Floats, d: Floats) -> Floats:
    """The phi coefficient of 2x2 tables [[a, b], [c, d]]; 0 where a side is empty."""
    scale = np.sqrt((a + b) * (c + d) * (a + c) * (b + d))
    return np.divide(a * d - b * c, scale, out=np.zeros_like(scale), where=scale > 0)


def added_entropy(splits: Splits, own: Labels) -> Floats:
    """The entropy in nats that each split adds to the clusters of some images (n,). (splits,)"""
    share = np.bincount(own, minlength=splits.into.shape[1]) / len(own)
    into, merged = splits.into @ share, splits.merged @ share
    return _plogp(into + merged) - _plogp(into) - _plogp(merged)


def _plogp(values: Floats) -> Floats:
    return values * np.log(np.maximum(values, 1e-300))


def reordered(tree: MergeTree, strength: Floats, weight: Floats) -> MergeTree:
    """The tree with its weakest branches merged first; the strength of a merge is that of its branch.

    ``strength`` and ``weight``: of each split, the one at the root first.
    """
    dissolved = tree.steps[: len(tree.steps) + 1 - tree.n_clusters]
    steps = [tree.step_at(n_clusters) for n_clusters in range(2, tree.n_clusters + 1)]
    parent = _parents(steps)
    children: list[list[int]] = [[] for _ in steps]
    for child, above in enumerate(parent):
        if above >= 0:
            children[above].append(child)
    weight = np.maximum(weight, 1e-12)
    gain, cost = weight * strength, weight.copy()
    for child in range(len(steps) - 1, -1, -1):  # sums over branches
        if parent[child] >= 0:
            gain[parent[child]] += gain[child]
            cost[parent[child]] += cost[child]
    alive = np.ones(len(steps), bool)
    merges: list[MergeStep] = []
    level = 0.0
    while alive.any():
        ratio = np.where(alive, gain / np.maximum(cost, 1e-12), np.inf)
        root = int(ratio.argmin())
        level = max(level, float(ratio[root]))
        for split in sorted(_branch(root, children, alive), reverse=True):  # what is below is merged before
            merges.append(MergeStep(steps[split].into, steps[split].merged, level))
            alive[split] = False
        above = parent[root]
        while above >= 0:
            gain[above] -= gain[root]
            cost[above] -= cost[root]
            above = parent[above]
    return MergeTree([*dissolved, *merges], tree.n_outputs, tree.n_clusters)


def _parents(steps: list[MergeStep]) -> list[int]:
    """The split that made the cluster which each split divides; -1 for the root."""
    made: dict[int, int] = {}
    parents = []
    for number, step in enumerate(steps):
        parents.append(made.get(step.into, -1))
        made[step.into] = made[step.merged] = number
    return parents


def _branch(root: int, children: list[list[int]], alive: Sides) -> list[int]:
    branch, waiting = [], [root]
    while waiting:
        split = waiting.pop()
        branch.append(split)
        waiting += [child for child in children[split] if alive[child]]
    return branch
