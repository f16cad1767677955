"""At which numbers of clusters is a clustering stable? The evidence at every number, and the levels among them.

Every head starts from other random directions. Cut at the same number of clusters, two heads that found the same
clusters share much information and agree; where a number forces them to split what has no boundary, each splits it
elsewhere. And a boundary that exists holds for neighbors and under augmentation. So the evidence for a number is

    E(n) = I(n) · (A(n) · φ(n))²

with I the mutual information between two heads in nats, A their adjusted Rand index (both are means over all pairs of
heads) and φ the weakest boundary (median over heads). I alone grows with n, A and φ alone favor few clusters.
Collections have structure at several scales: every local maximum of E is a level, and the highest one is selected.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
from scipy.special import entr

from ..core.metrics import Labels
from ..model.merge_tree import Level, MergeTree

MAX_LEVELS = 4
"""Levels that are kept, those with the most evidence."""

Table = npt.NDArray[np.float64]


def evidence_curve(trees: list[MergeTree], labels: Labels) -> list[Level]:
    """The evidence at every number of clusters from 2 on that at least half of the heads have.

    ``labels``: the un-merged outputs of some images under each head. (n, heads)
    """
    curve = []
    for n_clusters in range(2, max(tree.n_clusters for tree in trees) + 1):
        able = [head for head, tree in enumerate(trees) if tree.n_clusters >= n_clusters]
        if 2 * len(able) < len(trees):
            break
        groups = [_dense(np.array(trees[head].groups(n_clusters))[labels[:, head]]) for head in able]
        # A single head can only be compared with itself.
        pairs = list(itertools.combinations(groups, 2)) or [(groups[0], groups[0])]
        shared = [_compare(a, b) for a, b in pairs]
        information, agreement = (float(np.mean(values)) for values in zip(*shared, strict=True))
        boundary = float(np.median([trees[head].boundary(n_clusters) for head in able]))
        evidence = information * (max(0.0, agreement) * max(0.0, boundary)) ** 2
        curve.append(Level(n_clusters, evidence, information, agreement, boundary))
    return curve


def find_levels(curve: list[Level]) -> list[Level]:
    """The local maxima of the evidence, most evidence first; none if there is no evidence at all.

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
    return sorted(peaks, key=lambda level: -level.evidence)[:MAX_LEVELS]


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
