"""At which numbers of clusters is a clustering stable?

Every head has a merge tree whose weakest branches are merged first (``splits.py``). With n clusters its weakest branch
has the strength s(n), the median over the heads; a head that has fewer clusters counts as 0. Numbers with
s(n) >= ``HOLDS`` hold. Evidence for a number is that twice as many clusters would be much weaker:

    E(n) = I(n) · log((1 - s(m) + ε) / (1 - s(n) + ε)),   m = 2 n

with I the mutual information between two heads in nats. Ratios of numbers and of
what is lost have no scale, so that no range of numbers is favored. Of the numbers that hold, the largest one is
selected that has at least 0.95 of the evidence of the most evident one. Collections have structure at several scales:
the other local maxima of E are levels, unless their weakest branch is no stronger than those in noise.

If not even two clusters hold, everything in one cluster is a level. It is selected if two clusters are no stronger
than what noise gives; otherwise numbers that are nearly as strong as two are taken to hold, and the verdict is weak.

Neighbors by the features of a frozen backbone are often of another kind, whatever the clusters, so that few splits
would hold. On the other hand heads on stored features give up by themselves the clusters that do not hold, and end
near one number. There the evidence is E(n) = I(n) · (A(n) · s(n))², with A the adjusted Rand index of two heads and s
the smallest phi of the splits for pairs, and the number with the most evidence is selected.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
from scipy.special import entr

from ..core.metrics import Labels
from ..model.merge_tree import HOLDS, Level, MergeTree
from .co_assignment import CoAssignments
from .splits import Splits, added_entropy, crossing, reordered, reproduced, splits_of

MAX_LEVELS = 4
"""Levels that are kept: the selected one and those with the most evidence."""
NOISE = 0.62
"""Strength below which splits say nothing: that of clusters in smooth noise is 0.4 to 0.6."""
NEARLY = 0.9
"""Fraction of the strength of two clusters down to which weak splits are taken to hold."""
EVIDENT = 0.95
"""Fraction of the largest evidence that the selected number must have."""
MORE = 2
"""Factor between a number and the one with which it is compared: steps of one cluster are small for large numbers."""
NEGLIGIBLE = 0.04
"""ε: differences between splits that hardly lose anything do not count."""
NO_EVIDENCE, LITTLE_EVIDENCE = 0.15, 0.3
"""Evidence on stored features below which there is one cluster, and below which one is a level too."""
ONE = Level(1, 0.0, 0.0, 1.0, 1.0)
"""Everything in one cluster."""

Table = npt.NDArray[np.float64]


def split_strengths(trees: list[MergeTree], counts: CoAssignments, labels: Labels) -> list[Table]:
    """How well each split of each tree holds, the one at the root first. (splits,) each

    ``labels``: the un-merged outputs of some images under each head. (n, heads)
    """
    return [
        crossed * np.maximum(0, reproduced(splits_of(tree), labels[:, head], np.delete(labels, head, axis=1)))
        for head, (tree, crossed) in enumerate(zip(trees, _boundaries(trees, counts), strict=True))
    ]


def prune(trees: list[MergeTree], strengths: list[Table], labels: Labels) -> list[MergeTree]:
    """The trees with their weakest branches merged first; ``strengths``: of their splits."""
    return [
        reordered(tree, kept, added_entropy(splits_of(tree), labels[:, head]))
        for head, (tree, kept) in enumerate(zip(trees, strengths, strict=True))
    ]


def with_boundaries(trees: list[MergeTree], counts: CoAssignments) -> list[MergeTree]:
    """The trees with the smallest phi of the splits for pairs as strength at each number of clusters."""
    return with_weakest(trees, _boundaries(trees, counts))


def _boundaries(trees: list[MergeTree], counts: CoAssignments) -> list[Table]:
    """phi of each split of each tree for pairs of neighbors, at least 0. (splits,) each"""
    found = []
    for head, tree in enumerate(trees):
        splits = splits_of(tree)
        places = np.array([counts.place(n_clusters) for n_clusters in range(2, tree.n_clusters + 1)], int)
        crossed = np.zeros(len(places))
        for place in np.unique(places):
            some = places == place
            crossed[some] = crossing(
                Splits(splits.into[some], splits.merged[some]), counts.tables[place, head].astype(np.float64)
            )
        found.append(np.maximum(0, crossed))
    return found


def with_weakest(trees: list[MergeTree], strengths: list[Table]) -> list[MergeTree]:
    """The trees with the strength of the weakest split so far at each number of clusters."""
    found = []
    for tree, kept in zip(trees, strengths, strict=True):
        held = np.minimum.accumulate(kept)
        dissolved = len(tree.steps) + 1 - tree.n_clusters
        values = [0.0] * dissolved + [float(value) for value in held[::-1]]
        steps = [step._replace(strength=value) for step, value in zip(tree.steps, values, strict=True)]
        found.append(tree._replace(steps=steps))
    return found


def stability_curve(trees: list[MergeTree], labels: Labels) -> list[Level]:
    """The evidence at every number of clusters; a head that has fewer counts as 0.

    ``trees``: as pruned. ``labels``: as for ``prune``.
    """
    found = [level._replace(strength=median_strength(trees, level.n_clusters)) for level in _compared(trees, labels)]
    if not found:
        return []
    numbers = np.array([level.n_clusters for level in found], float)
    strengths = np.array([level.strength for level in found])
    after = np.interp(MORE * numbers, [*numbers, numbers[-1] + 1], [*strengths, 0.0])
    steps = np.log((1 - after + NEGLIGIBLE) / (1 - strengths + NEGLIGIBLE))
    return [
        level._replace(evidence=max(0.0, level.information * float(step)))
        for level, step in zip(found, steps, strict=True)
    ]


def median_strength(trees: list[MergeTree], n_clusters: int) -> float:
    """The strength at a number of clusters, median over the heads; a head that has fewer counts as 0."""
    found = [tree.strength(n_clusters) if tree.n_clusters >= n_clusters else 0.0 for tree in trees]
    return float(np.median(found))


def agreement_curve(trees: list[MergeTree], labels: Labels) -> list[Level]:
    """The evidence for stored features at every number of clusters.

    ``trees``: as from ``with_boundaries``. ``labels``: as for ``prune``.
    """
    curve = []
    for level in _compared(trees, labels):
        n = level.n_clusters
        strength = float(np.median([tree.strength(n) for tree in trees if tree.n_clusters >= n]))
        evidence = level.information * (level.agreement * strength) ** 2
        curve.append(level._replace(strength=strength, evidence=evidence))
    return curve


def _compared(trees: list[MergeTree], labels: Labels) -> list[Level]:
    """Information and agreement at every number of clusters that at least two heads have (or the only one)."""
    found: list[Level] = []
    for n_clusters in range(2, max(tree.n_clusters for tree in trees) + 1):
        able = [head for head, tree in enumerate(trees) if tree.n_clusters >= n_clusters]
        if len(able) < min(2, len(trees)):
            break
        groups = [_dense(np.array(trees[head].groups(n_clusters))[labels[:, head]]) for head in able]
        # A single head can only be compared with itself.
        pairs = list(itertools.combinations(groups, 2)) or [(groups[0], groups[0])]
        information, agreement = np.mean([_compare(a, b) for a, b in pairs], axis=0)
        found.append(Level(n_clusters, 0.0, max(0.0, float(information)), max(0.0, float(agreement)), 0.0))
    return found


def find_levels(curve: list[Level]) -> list[Level]:
    """The selected level, then the other local maxima of the evidence, most evidence first.

    >>> curve = ((2, 0.9, 0.98), (3, 0.1, 0.93), (4, 0.87, 0.92), (5, 0.2, 0.8), (6, 3, 0.7), (7, 1, 0.6), (8, 4, 0.5))
    >>> [level.n_clusters for level in find_levels([Level(n, e, 1, 1, s) for n, e, s in curve])]
    [4, 6, 2]
    """
    first = curve[0].strength if curve else 0.0
    least = HOLDS if first >= HOLDS else NEARLY * first
    selected = ONE
    if first >= NOISE:
        held = [level for level in curve if level.strength >= least]
        most = max(level.evidence for level in held)
        selected = [level for level in held if level.evidence >= EVIDENT * most][-1]
    others = [level for level in _peaks(curve) if level != selected and level.strength >= NOISE]
    if selected != ONE and first < HOLDS:
        others.insert(0, ONE)
    return [selected, *others][:MAX_LEVELS]


def levels_of_agreement(curve: list[Level]) -> list[Level]:
    """The local maxima of the evidence for stored features, most evidence first; one cluster if there is little of it.

    >>> curve = [Level(n, evidence, 1, 1, 1) for n, evidence in ((2, 0.4), (3, 0.2), (4, 0.9), (5, 0.5))]
    >>> [level.n_clusters for level in levels_of_agreement(curve)]
    [4, 2]
    """
    levels = _peaks(curve)
    most = levels[0].evidence if levels else 0.0
    if most < LITTLE_EVIDENCE:
        levels.insert(0 if most < NO_EVIDENCE else 1, ONE)
    return levels[:MAX_LEVELS]


def _peaks(curve: list[Level]) -> list[Level]:
    """The local maxima of the evidence, most evidence first."""
    around = [-np.inf, *(level.evidence for level in curve), -np.inf]
    # Of equal neighbors the one with more clusters counts.
    found = [
        level
        for before, level, after in zip(around, curve, around[2:], strict=False)
        if before <= level.evidence > after and level.evidence > 0
    ]
    return sorted(found, key=lambda level: -level.evidence)


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
