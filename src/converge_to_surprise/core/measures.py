"""The label-free measures of two label sequences."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from . import surprise


class Measures(NamedTuple):
    """Label-free measures of a network on some images."""

    surprise: float
    orderliness: float
    agreement: float
    surprising: int
    """Clusters that over-match with D_k of at least tau."""
    active: int
    """Clusters that hold at least one view."""


def measure(labels_i: Tensor, labels_j: Tensor, clusters: int, tau: float) -> Measures:
    """Surprise, orderliness, agreement and cluster counts of two label sequences (N,)."""
    counts = surprise.count(labels_i, labels_j, clusters)
    return Measures(
        surprise=float(surprise.surprise(counts)),
        orderliness=float(surprise.orderliness(surprise.joint_counts(labels_i, labels_j, clusters))),
        agreement=float(surprise.agreement(counts)),
        surprising=int(surprise.surprising(counts, tau).sum()),
        active=int(surprise.active(counts)),
    )
