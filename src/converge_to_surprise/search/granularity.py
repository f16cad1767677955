"""At which numbers of clusters is a clustering stable? The evidence at every number, and the levels among them.

Cut at the same number of clusters, two heads that found the same things share much information and agree; where a
number forces them to split what has no boundary, each splits it elsewhere. A boundary that exists holds for neighbors
and under augmentation: few pairs cross it. And one cluster more than there are must be cut off by a boundary that far
more pairs cross. So the evidence for n clusters is

    E(n) = I(n)^1.25 · (A(n) · φ(n))² · (log((c(n + 1) + ε) / (c(n) + ε)) + 0.2)

with I the mutual information between two heads in nats, A their adjusted Rand index (both are means over all pairs of
heads that have so many clusters), φ the weakest boundary (median over heads) and c = 1 - φ, how often it is crossed,
at most as at n + 1. I alone grows with n, A and φ alone favor few clusters; the last factor is a ratio, which has no
scale. Collections have structure at several scales: every local maximum of E is a level, and the highest one is
selected. Where no number has much evidence, everything in one cluster is a level too.

On stored features the temperature of the search is higher, and heads that start with many clusters give up by
themselves those that do not hold. There all heads end near one number, and E(n) = I(n) · (A(n) · φ(n))².
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
from scipy.special import entr

from ..core.metrics import Labels
from ..model.merge_tree import LITTLE_EVIDENCE, Level, MergeTree

MAX_LEVELS = 4
"""Levels that are kept, those with the most evidence."""
NEGLIGIBLE = 0.02
"""ε: differences between boundaries that hardly any pair crosses do not count."""
UNKNOWN = 0.15
"""How often the weakest boundary is taken to be crossed at one cluster more than two heads hold."""
INFORMATION_POWER, WITHOUT_STEP = 1.25, 0.2
"""With them a shallow step at few clusters does not outweigh heads that agree on many (Fashion-MNIST: 9, not 6)."""
NO_EVIDENCE = 0.07
"""If no number of clusters has more evidence than noise, there is one cluster."""
ONE = Level(1, 0.0, 0.0, 1.0, 1.0)
"""Everything in one cluster."""

Table = npt.NDArray[np.float64]


def evidence_curve(trees: list[MergeTree], labels: Labels, by_step: bool = True) -> list[Level]:
    """The evidence at every number of clusters from 2 on that at least two heads have (or the only one).

    ``labels``: the un-merged outputs of some images under each head. (n, heads) ``by_step``: with the last factor.
    """
    found: list[tuple[int, float, float, float]] = []
    for n_clusters in range(2, max(tree.n_clusters for tree in trees) + 1):
        able = [head for head, tree in enumerate(trees) if tree.n_clusters >= n_clusters]
        if len(able) < min(2, len(trees)):
            break
        groups = [_dense(np.array(trees[head].groups(n_clusters))[labels[:, head]]) for head in able]
        # A single head can only be compared with itself.
        pairs = list(itertools.combinations(groups, 2)) or [(groups[0], groups[0])]
        shared = [_compare(a, b) for a, b in pairs]
        information, agreement = (float(np.mean(values)) for values in zip(*shared, strict=True))
        boundary = float(np.median([trees[head].boundary(n_clusters) for head in able]))
        found.append((n_clusters, information, max(0.0, agreement), max(0.0, boundary)))
    crossing = np.maximum.accumulate([*(1 - boundary for *_, boundary in found), UNKNOWN])
    steps = np.diff(np.log(crossing + NEGLIGIBLE)) + WITHOUT_STEP if by_step else np.ones(len(found))
    power = INFORMATION_POWER if by_step else 1.0
    curve = []
    for (n_clusters, information, agreement, boundary), step in zip(found, steps, strict=True):
        evidence = max(0.0, information) ** power * (agreement * boundary) ** 2 * float(step)
        curve.append(Level(n_clusters, evidence, information, agreement, boundary))
    return curve


def find_levels(curve: list[Level]) -> list[Level]:
    """The local maxima of the evidence, most evidence first, and one cluster where there is little of it.

    >>> curve = [Level(n, evidence, 1, 1, 1) for n, evidence in ((2, 0.3), (3, 0.2), (4, 0.9), (5, 0.5))]
    >>> [level.n_clusters for level in find_levels(curve)]
    [4, 2]
    """
    around = [-np.inf, *(level.evidence for level in curve), -np.inf]
    # Of equal neighbors the one with more clusters counts.
    peaks = [
        level
        for before, level, after in zip(around, curve, around[2:], strict=False)
        if before <= level.evidence > after and level.evidence > 0
    ]
    levels = sorted(peaks, key=lambda level: -level.evidence)
    if not levels or levels[0].evidence < NO_EVIDENCE:
        levels.insert(0, ONE)
    elif levels[0].evidence < LITTLE_EVIDENCE:
        levels.insert(1, ONE)
    return levels[:MAX_LEVELS]


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
