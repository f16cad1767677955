"""How well clusters match known classes (paper 4.1), for evaluation only; panels of both; how balanced clusters are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from scipy.special import entr
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

Labels = npt.NDArray[np.integer[Any]]
MIN_IMAGES = 50
"""Images that a cluster and a class must have in common for a panel."""
SIDE = 3
"""A panel shows up to 3 x 3 of them."""


def confusion(clusters: Labels, classes: Labels) -> npt.NDArray[np.int64]:
    """Number of images in cluster a and class b, as a square table of side max(label) + 1."""
    if len(clusters) != len(classes):
        raise ValueError(f"{len(clusters)} cluster labels but {len(classes)} class labels")
    if len(clusters) == 0:
        raise ValueError("there are no labels to compare")
    if min(clusters.min(), classes.min()) < 0:
        raise ValueError("a label is negative; labels must be 0 or more")
    side = int(max(clusters.max(), classes.max())) + 1
    table = np.zeros((side, side), dtype=np.int64)
    np.add.at(table, (clusters, classes), 1)
    return table


def accuracy(clusters: Labels, classes: Labels) -> float:
    """ACC: the share of images whose cluster is matched to their class by the best one-to-one assignment."""
    table = confusion(clusters, classes)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / len(clusters))


def normalized_mutual_information(clusters: Labels, classes: Labels) -> float:
    """NMI with the arithmetic mean of the entropies."""
    return float(normalized_mutual_info_score(classes, clusters))


def adjusted_rand_index(clusters: Labels, classes: Labels) -> float:
    """ARI."""
    return float(adjusted_rand_score(classes, clusters))


def scores(clusters: Labels, classes: Labels) -> dict[str, float]:
    """ACC, NMI and ARI by name."""
    return {
        "acc": accuracy(clusters, classes),
        "nmi": normalized_mutual_information(clusters, classes),
        "ari": adjusted_rand_index(clusters, classes),
    }


def purity(clusters: Labels, classes: Labels) -> float:
    """The share of images that belong to the most frequent class of their cluster."""
    return float(confusion(clusters, classes).max(axis=1).sum() / len(clusters))


def balance(sizes: Iterable[int]) -> float:
    """(exp H - 1) / K for K clusters whose sizes have the entropy H: 0 for one cluster, 1 - 1 / K for K equal ones.

    exp H is the effective number of clusters. The 1 is subtracted so that a single cluster is not called balanced.

    >>> balance([7]), balance([50, 50]), round(balance([90, 10]), 3), balance([25] * 4)
    (0.0, 0.5, 0.192, 0.75)
    """
    # Sorted, so that the sum has the same bits in any order.
    held = np.array(sorted(size for size in sizes if size > 0), dtype=np.float64)
    return float(np.exp(entr(held / held.sum()).sum()) - 1) / len(held) if len(held) else 0.0


def dominant(clusters: Labels, classes: Labels) -> dict[int, tuple[int, float]]:
    """For every non-empty cluster its most frequent class and that class's share (appendix C)."""
    table = confusion(clusters, classes)
    sizes = table.sum(axis=1)
    return {
        int(cluster): (int(table[cluster].argmax()), float(table[cluster].max() / sizes[cluster]))
        for cluster in np.flatnonzero(sizes)
    }


class Panel(NamedTuple):
    """Images of one class in one cluster (figures 3 to 5 of the paper)."""

    cluster: int
    class_number: int
    images: int
    """Their number."""
    shown: list[int]
    """Positions of the at most nine that are shown."""


def choose_panels(clusters: Labels, classes: Labels, seed: int = 0) -> list[Panel]:
    """The panels of a clustering, by cluster and class; the images shown are drawn from ``seed``."""
    rng = np.random.default_rng(seed)
    found = []
    for cluster in np.unique(clusters):
        for number in np.unique(classes[clusters == cluster]):
            members = np.flatnonzero((clusters == cluster) & (classes == number))
            if len(members) >= MIN_IMAGES:
                picked = np.sort(rng.choice(members, size=min(SIDE * SIDE, len(members)), replace=False))
                found.append(Panel(int(cluster), int(number), len(members), picked.tolist()))
    return found
