"""Sort unlabeled images into clusters without being told how many there are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .estimator import SurpriseClustering

__version__ = "0.1.0"
__all__ = ["SurpriseClustering", "__version__"]


def __getattr__(name: str) -> Any:
    """The estimator, loaded when it is first asked for: torch takes seconds, and a setting must be made before."""
    if name != "SurpriseClustering":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    let_waiting_threads_sleep()
    from .estimator import SurpriseClustering

    return SurpriseClustering


def let_waiting_threads_sleep() -> None:
    """Threads that wait for each other must sleep, not spin: on a machine that does anything else besides, spinning
    makes a training step ten times slower. The setting is read when torch is loaded.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
