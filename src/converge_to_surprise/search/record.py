"""One record per step: what progress bar, history file and report read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from ..core import surprise


class Measures(NamedTuple):
    """What two label sequences say about a network."""

    surprise: float
    orderliness: float
    agreement: float
    surprising: int
    """Clusters that over-match with D_k of at least tau."""
    active: int
    """Clusters that hold a view."""


@dataclass(frozen=True)
class Record:
    """The state of a run after one step."""

    step: int
    epoch: int
    stage: str
    kind: str
    surprise: float
    orderliness: float
    agreement: float
    surprising: int
    active: int
    views: int
    """Views that have passed through the network in training so far."""
    seconds: float
    """Time spent so far, over all sessions of the run."""


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
