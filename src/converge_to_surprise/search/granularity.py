"""At which numbers of clusters is a clustering stable?

Every head has a merge tree whose weakest branches are merged first (``splits.py``). With n clusters its weakest branch
has the strength s(n), the median over the heads; a head that has fewer clusters counts as 0. The clustering with the
most clusters whose splits all hold, s(n) >= ``HOLDS``, is selected.

Collections have structure at several scales. Where one split more would be much weaker is a level: a local maximum of

    E(n) = I(n) · log((1 - s(n + 1) + ε) / (1 - s(n) + ε))

with I the mutual information between two heads in nats. The ratio of what is lost by each has no scale, so that no
range of numbers is favored.

If not even two clusters hold, everything in one cluster is a level. It is selected if two clusters are no stronger
than what noise gives; otherwise all splits that are nearly as strong as the first are taken, and the verdict is weak.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
from scipy.special import entr

from ..core.metrics import Labels
from ..model.merge_tree import HOLDS, Level, MergeTree
from .splits import added_entropy, crossing, reordered, reproduced, splits_of

MAX_LEVELS = 4
"""Levels that are kept: the selected one and those with the most evidence."""
NOISE = 0.62
"""Strength of two clusters up to which there is one: that of clusters in smooth noise is 0.4 to 0.6."""
NEARLY = 0.9
"""Fraction of the strength of two clusters down to which weak splits are taken."""
NEGLIGIBLE = 0.02
"""ε: differences between splits that hardly lose anything do not count."""
ONE = Level(1, 0.0, 0.0, 1.0, 1.0)
"""Everything in one cluster."""

Table = npt.NDArray[np.float64]


def prune(trees: list[MergeTree], tables: Table, labels: Labels) -> list[MergeTree]:
    """The trees with their weakest branches merged first.

    ``tables``: co-assignments of each head, (heads, K, K). ``labels``: the un-merged outputs of some images under each
    head. (n, heads)
    """
    pruned = []
    for head, (tree, table) in enumerate(zip(trees, tables, strict=True)):
        splits, own = splits_of(tree), labels[:, head]
        kept = np.maximum(0, crossing(splits, (table + table.T) / 2))
        kept *= np.maximum(0, reproduced(splits, own, np.delete(labels, head, axis=1)))
        pruned.append(reordered(tree, kept, added_entropy(splits, own)))
    return pruned


def stability_curve(trees: list[MergeTree], labels: Labels) -> list[Level]:
    """The evidence at every number of clusters from 2 on that at least two heads have (or the only one).

    ``trees``: as pruned. ``labels``: as for ``prune``.
    """
    found: list[tuple[int, float, float, float]] = []
    for n_clusters in range(2, max(tree.n_clusters for tree in trees) + 1):
        able = [head for head, tree in enumerate(trees) if tree.n_clusters >= n_clusters]
        if len(able) < min(2, len(trees)):
            break
        groups = [_dense(np.array(trees[head].groups(n_clusters))[labels[:, head]]) for head in able]
        # A single head can only be compared with itself.
        pairs = list(itertools.combinations(groups, 2)) or [(groups[0], groups[0])]
        information, agreement = np.mean([_compare(a, b) for a, b in pairs], axis=0)
        strength = np.median([tree.strength(n_clusters) if tree.n_clusters >= n_clusters else 0.0 for tree in trees])
        found.append((n_clusters, float(information), max(0.0, float(agreement)), float(strength)))
    curve = []
    for position, (n_clusters, information, agreement, strength) in enumerate(found):
        after = found[position + 1][3] if position + 1 < len(found) else 0.0
        step = np.log((1 - after + NEGLIGIBLE) / (1 - strength + NEGLIGIBLE))
        curve.append(Level(n_clusters, max(0.0, information * float(step)), information, agreement, strength))
    return curve


def find_levels(curve: list[Level]) -> list[Level]:
    """The selected level, then the other local maxima of the evidence, most evidence first.

    >>> strengths = ((2, 0.98), (3, 0.98), (4, 0.95), (5, 0.6), (6, 0.4))
    >>> [level.n_clusters for level in find_levels([Level(n, 1 / n, 1, 1, s) for n, s in strengths])]
    [4, 2]
    """
    first = curve[0].strength if curve else 0.0
    least = HOLDS if first >= HOLDS else NEARLY * first
    selected = ONE if first < NOISE else [level for level in curve if level.strength >= least][-1]
    around = [-np.inf, *(level.evidence for level in curve), -np.inf]
    peaks = [
        level
        for before, level, after in zip(around, curve, around[2:], strict=False)
        if before <= level.evidence > after and level.evidence > 0 and level != selected
    ]
    others = sorted(peaks, key=lambda level: -level.evidence)
    if selected != ONE and first < HOLDS:
        others.insert(0, ONE)
    return [selected, *others][:MAX_LEVELS]


def _dense(labels: Labels) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = np.unique(labels, return_inverse=True)[1]
    return found


def _compare(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Mutual information in nats and adjusted Rand index of two labelings (n,), from one table of counts."""
    columns = int(b.max()) + 1
    table: Table = (
        np.bincount(a * columns + b, minlength=(int(a.max()) + 1) * columns).reshape(-1, columns).astype(float)
    )
    total, rows, cols = table.sum(), table.sum(1), table.sum(0)
    information = entr(rows / total).sum() + entr(cols / total).sum() - entr(table / total).sum()
    together, in_rows, in_cols = ((counts * (counts - 1)).sum() / 2 for counts in (table, rows, cols))
    expected = in_rows * in_cols / max(1.0, total * (total - 1) / 2)
    most = (in_rows + in_cols) / 2
    agreement = 1.0 if most == expected else (together - expected) / (most - expected)
    return float(information), float(agreement)
