"""One record per step: what the progress bar, the history file and the report read."""

from __future__ import annotations

from dataclasses import dataclass


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
