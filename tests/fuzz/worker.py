"""A process that spoils files of one kind until its time is over."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from converge_to_surprise.data.decode import hide_pillow_warnings

from .guard import guarded
from .place import Place, tolerated
from .targets import TARGETS

BATCH = 50
MEMORY = 2 << 30
"""Bytes beyond what the process has at its start. A picture of 89 million pixels may take half of it."""


@dataclass
class Figures:
    """What came of one kind of file."""

    examples: int = 0
    accepted: int = 0
    """How many were used all the same: the damage did not matter, or made another good file."""
    crashes: list[str] = field(default_factory=list)
    slowest: float = 0.0
    """CPU seconds of the slowest example."""
    peak: int = 0
    """MB that the process had at most."""


def work(name: str, folder: Path, seconds: float, first: int, report: Path) -> None:
    """Batches of examples until the time is over; the seed of a batch makes it again."""
    folder.mkdir()
    os.environ["CTS_CACHE"] = str(folder / "cache")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # commands may say what they like
    os.dup2(1, 2)
    sys.dont_write_bytecode = True
    hide_pillow_warnings()
    figures, place, target = Figures(), Place(folder), TARGETS[name]
    tolerated(target(place, _first))  # what is loaded and made once
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)
    until, batch = time.monotonic() + seconds, first

    def example(data: st.DataObject) -> None:
        use = target(place, data.draw)
        if time.monotonic() > until:  # the rest of the batch is drawn only: Hypothesis wants the same draws every time
            return
        began = time.process_time()
        with guarded(folder):
            figures.accepted += tolerated(use)
        figures.examples += 1
        figures.slowest = max(figures.slowest, round(time.process_time() - began, 2))

    quiet = settings(max_examples=BATCH, database=None, deadline=None, phases=[Phase.generate], print_blob=False)
    quiet = settings(quiet, suppress_health_check=list(HealthCheck))
    while time.monotonic() < until:
        try:
            seed(batch)(quiet(given(st.data())(example)))()
        except BaseException:
            figures.crashes.append(f"batch {batch}: {traceback.format_exc(limit=-4)}")
        batch += 1
        figures.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        report.write_text(json.dumps(asdict(figures)))


def _first(strategy: st.SearchStrategy[object]) -> object:
    return strategy.example()
