"""Sort unlabeled images into clusters without being told how many there are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .estimator import SurpriseClustering

__version__ = "0.2.0"
__all__ = ["SurpriseClustering", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the estimator on first use: torch takes seconds to import, and a setting must be made before."""
    if name != "SurpriseClustering":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    use_passive_threads()
    from .estimator import SurpriseClustering

    return SurpriseClustering


def use_passive_threads() -> None:
    """Make OpenMP threads that wait sleep soon: on a machine with other load, spinning makes a training step ten times
    slower.

    Those of GNU's library, which torch uses on Linux, first spin for some microseconds. Without it two threads are no
    faster than one, because between two layers they fall asleep; a longer wait gains nothing more.

    And never let OpenMP take fewer threads than asked for when the machine is busy: sums would be rounded in another
    way, and the same seed would give other clusters. torch reads the settings when it is imported.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    os.environ["OMP_DYNAMIC"] = "FALSE"
