"""Which clusters belong together: the merge tree of every head, the selection among heads.

Pairs of neighbors test the boundaries (``co_assignment.py``). The two clusters whose merge loses least of the
information that the cluster of an image carries about that of its neighbor are merged, repeatedly.

How well each split of the tree holds is measured in ``splits.py``; where the trees are cut is decided in
``granularity.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import entr
from torch import Tensor

from ..config import Config, Merge
from ..core import surprise
from ..core.metrics import Labels, adjusted_rand_index
from ..model.merge_tree import MergeResult, MergeStep, MergeTree
from .co_assignment import CoAssignments
from .granularity import (
    MAX_LEVELS,
    NEARLY,
    NOISE,
    agreement_curve,
    find_levels,
    levels_of_agreement,
    median_strength,
    prune,
    split_strengths,
    stability_curve,
    with_boundaries,
    with_weakest,
)

Table = npt.NDArray[np.float64]


def information_losses(table: Table) -> Table:
    """How much mutual information of a symmetric table (K, K) is lost by merging every two clusters.

    Each loss is divided by the root of the clusters' harmonic size, halfway between the total loss, which is small for
    small clusters, and the loss per image, which is small for large ones.
    """
    joint = table / table.sum()
    sizes, diagonal, entropies = joint.sum(1), np.diag(joint), entr(joint)
    pairs = np.array([entr(row + joint).sum(1) for row in joint])  # of both rows added, with the columns of both
    pairs -= entr(diagonal[:, None] + joint) + entr(joint + diagonal)
    rest = entropies.sum(1)[:, None] - entropies.diagonal()[:, None] - entropies  # of a row without those columns
    own = entropies.diagonal()[:, None] + entropies.diagonal() + 2 * entropies
    change = 2 * (rest + rest.T - pairs) + own - entr(diagonal[:, None] + diagonal + 2 * joint)
    change -= 2 * (entr(sizes)[:, None] + entr(sizes) - entr(sizes[:, None] + sizes))
    harmonic = sizes[:, None] * sizes / (sizes[:, None] + sizes)
    losses: Table = -change / np.sqrt(harmonic)
    return losses


def build_merge_tree(
    tables: npt.NDArray[np.floating],
    settings: Merge,
    costs: Callable[[Table], Table] = information_losses,
    place: Callable[[int], int] = lambda n_clusters: 0,
) -> MergeTree:
    """The merge tree of a head from its co-assignments (K, K) or (widths, K, K); its strengths are the costs of the
    merges.

    A cluster with less than the least fraction of the pairs is first merged into the one it is most often confused
    with. Then the two clusters are merged whose merge costs least. ``costs``: of every pair, from a symmetric table;
    ``place``: which of the tables, by the number of clusters that are left.
    """
    counts = tables.reshape(-1, *tables.shape[-2:]).astype(np.float64)
    counts = (counts + counts.transpose(0, 2, 1)) / 2
    table = counts[0]
    active = [int(k) for k in np.flatnonzero(table.sum(1) > 0)]
    steps: list[MergeStep] = []

    def merge(into: int, merged: int, cost: float = 0.0) -> None:
        steps.append(MergeStep(into, merged, cost))
        counts[:, into] += counts[:, merged]
        counts[:, :, into] += counts[:, :, merged]
        counts[:, merged] = counts[:, :, merged] = 0
        active.remove(merged)

    while len(active) > 1:
        size = table.sum(1)
        least = min(active, key=lambda k: (size[k], k))
        if size[least] >= settings.min_cluster_fraction * size.sum():
            break
        into = max((k for k in active if k != least), key=lambda k: (table[least, k], size[k], -k))
        merge(into, least)
    n_clusters = len(active)
    while len(active) > 1:
        upper = np.triu_indices(len(active), 1)
        found = costs(counts[place(len(active))][np.ix_(active, active)])[upper]
        a, b = (active[side[int(found.argmin())]] for side in upper)
        size = table.sum(1)
        merge(*((a, b) if size[a] >= size[b] else (b, a)), float(found.min()))
    return MergeTree(steps, len(table), n_clusters)


def build_trees(counts: CoAssignments, settings: Merge) -> list[MergeTree]:
    """The merge tree of every head."""
    return [build_merge_tree(tables, settings, place=counts.place) for tables in counts.tables.swapaxes(0, 1)]


def typical_strengths(trees: list[MergeTree]) -> dict[int, float]:
    """Strength of the weakest split at every number of clusters, median over the heads that have so many."""
    return {
        n: float(np.median([tree.strength(n) for tree in trees if tree.n_clusters >= n]))
        for n in range(2, max(tree.n_clusters for tree in trees) + 1)
    }


def head_agreement(trees: list[MergeTree], labels: Labels, n_clusters: int) -> Table:
    """Adjusted Rand index of every two heads, each cut to at most ``n_clusters`` clusters. (heads, heads)

    ``labels``: the un-merged outputs of some images under each head. (n, heads)
    """
    table = np.eye(len(trees))
    groups = [np.array(tree.groups(min(n_clusters, tree.n_clusters)))[labels[:, h]] for h, tree in enumerate(trees)]
    for a, b in itertools.combinations(range(len(trees)), 2):
        table[a, b] = table[b, a] = adjusted_rand_index(groups[a], groups[b])
    return table


class Selection(NamedTuple):
    """The trees of all heads, their weakest branches merged first, and what was selected."""

    trees: list[MergeTree]
    result: MergeResult


def select_head(
    trees: list[MergeTree], counts: CoAssignments, labels: Labels, config: Config, least: int = 1
) -> Selection:
    """Cut the trees of all heads to at least ``least`` clusters and select the best head, without classes.

    A good clustering separates much and keeps similar images together: the information that the cluster of an image
    carries about that of its neighbor is high only if it does both. And what one head finds is more than chance if the
    other heads, which start elsewhere, find it too. The head with the largest product is selected.
    """
    built = trees
    if config.merge.number_by == "splits":
        as_built = split_strengths(built, counts, labels)
        trees = prune(built, as_built, labels)
        levels = find_levels(curve := stability_curve(trees, labels))
    else:
        trees = with_boundaries(trees, counts)
        levels = levels_of_agreement(curve := agreement_curve(trees, labels))
    if levels[0].n_clusters < least and (finer := [level for level in curve if level.n_clusters == least]):
        levels = [*finer, *(level for level in levels if level not in finer)][:MAX_LEVELS]
    most = max(tree.n_clusters for tree in trees)
    n_clusters = min(config.n_clusters or levels[0].n_clusters, most)
    if config.merge.number_by == "splits" and n_clusters > 1:
        as_pruned = split_strengths(trees, counts, labels)
        trees = better_order((built, as_built), (trees, as_pruned), counts, n_clusters)
        levels = [
            level._replace(strength=median_strength(trees, level.n_clusters)) if level.n_clusters > 1 else level
            for level in levels
        ]
    able = [tree.n_clusters >= n_clusters for tree in trees]
    information = neighbor_information(trees, counts, n_clusters)
    agreement = head_agreement(trees, labels, n_clusters)
    head = max(range(len(trees)), key=lambda h: (able[h], information[h] * agreement[h].mean(), -h))
    tree, agreed = trees[head], [float(value) for value in agreement[head]]
    outputs, typical = tree.representatives(n_clusters), typical_strengths(trees)
    return Selection(trees, MergeResult(n_clusters, head, outputs, tree.steps, typical, information, agreed, levels))


Tested = tuple[list[MergeTree], list[Table]]
"""Trees and the strengths of their splits."""


def better_order(built: Tested, pruned: Tested, counts: CoAssignments, n_clusters: int) -> list[MergeTree]:
    """The trees as they were built, or as they were pruned: those whose clusters hold more information.

    Building keeps what tells most, pruning what holds best, however small it is. Where classes are of unequal sizes
    building joins small ones; elsewhere pruning would give up the boundary between two large classes for small
    differences within one. So information is multiplied with the mean strength of the splits, and the order as built
    must not contain a split that is clearly weaker than all splits of the other.
    """

    def value(tested: Tested) -> float:
        information = neighbor_information(tested[0], counts, n_clusters)
        return sum(
            found * float(kept[: n_clusters - 1].mean())
            for tree, kept, found in zip(*tested, information, strict=True)
            if tree.n_clusters >= n_clusters
        )

    as_built = with_weakest(*built)
    weakest = median_strength(as_built, n_clusters), median_strength(with_weakest(*pruned), n_clusters)
    nearly_as_strong = weakest[0] >= NEARLY * weakest[1]
    return as_built if nearly_as_strong and value(built) > value(pruned) else pruned[0]


def neighbor_information(trees: list[MergeTree], counts: CoAssignments, n_clusters: int) -> list[float]:
    """What the cluster of an image tells about that of its neighbor in nats, for each head; 0 if it has fewer."""
    return [
        float(surprise.mutual_information(grouped(torch.from_numpy(table), tree.groups(n_clusters))))
        if tree.n_clusters >= n_clusters
        else 0.0
        for tree, table in zip(trees, counts.at(n_clusters), strict=True)
    ]


class Kind(NamedTuple):
    """Heads that started in the same way, and what was selected among them."""

    heads: range
    selection: Selection


def select_kind(counts: CoAssignments, labels: Labels, kinds: Sequence[range], config: Config) -> Kind:
    """The kind of heads whose best head tells most about neighbors; of equal ones the first.

    Each number of clusters is read from heads of one kind only: heads that begin alike must agree on a split, and where
    one way to begin misleads, the others need not be held to it. Then the kinds are compared at the same number of
    clusters, the largest that one of them selected, because information grows with the number. Later kinds of heads
    tend to lose clusters: if such a kind is selected, it is not cut to fewer than the first kind would be. Where its
    splits are then no stronger than those in noise, the first kind is selected after all.

    If the number is that of agreement, neighbors are often of another kind: only the nearest ones tell something, and
    the last kind of heads, which did not start from them, is selected. With ``either`` that is done if not even two
    clusters hold.
    """
    if config.merge.number_by == "either":
        by_splits = replace(config, merge=replace(config.merge, number_by="splits"))
        found = select_kind(counts, labels, kinds, by_splits)
        if not found.selection.result.one_is_a_level:
            return found
        config = replace(config, merge=replace(config.merge, number_by="agreement"))
    if config.merge.number_by == "agreement":
        kinds, counts = kinds[-1:], counts.narrowest()

    def select(kind: range, least: int = 1) -> Kind:
        own = counts.of_heads(kind)
        trees = build_trees(own, config.merge)
        return Kind(kind, select_head(trees, own, labels[:, kind.start : kind.stop], config, least))

    candidates = [select(kind) for kind in kinds]
    most = max(kind.selection.result.n_clusters for kind in candidates)
    best = max(
        candidates, key=lambda kind: max(neighbor_information(kind.selection.trees, counts.of_heads(kind.heads), most))
    )
    first = candidates[0].selection.result.n_clusters
    if best.selection.result.n_clusters >= first:
        return best
    finer = select(best.heads, first)
    cut = finer.selection.result.n_clusters
    return finer if median_strength(finer.selection.trees, cut) >= NOISE else candidates[0]


def grouped(joint: Tensor, groups: list[int]) -> Tensor:
    """Counts of output pairs (K, K) as counts of cluster pairs."""
    index = torch.tensor(groups)
    rows = torch.zeros_like(joint).index_add_(0, index, joint)
    return torch.zeros_like(joint).index_add_(1, index, rows)
