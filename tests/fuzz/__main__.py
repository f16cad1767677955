"""``python -m tests.fuzz``: spoil files for minutes, print what came of it, keep the figures.

Every kind of file has a process of its own, with little memory to take, so that a crash is counted and not suffered.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import resource
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path

import tyro
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from converge_to_surprise.data.decode import own_pillow_warnings
from converge_to_surprise.run.session import versions

from .guard import guarded
from .place import Place, tolerated
from .targets import TARGETS

BATCH = 200
MEMORY = 2 << 30
"""Bytes beyond what the process has at its start. A picture of 89 million pixels may take half of it."""


@dataclass(frozen=True)
class Options:
    """Spoil files and use them."""

    seconds: float = 120
    """For each kind of file."""
    seed: int = 0
    only: str = ""
    """Only kinds whose name holds this."""
    out: Path | None = None
    """JSON file for the figures."""


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


def main(options: Options) -> int:
    context = multiprocessing.get_context("spawn")
    found: dict[str, Figures] = {}
    print(f"{'file':<31} | examples | accepted | crashes | slowest, s | peak, MB", flush=True)
    for name in TARGETS:
        if options.only not in name:
            continue
        with tempfile.TemporaryDirectory(prefix="cts-fuzz-") as folder:
            report = Path(folder) / "figures.json"
            process = context.Process(target=_work, args=(name, Path(folder) / "place", options, report))
            process.start()
            process.join()
            figures = Figures(**json.loads(report.read_text())) if report.exists() else Figures()
            if process.exitcode:
                figures.crashes.append(f"the process ended with {process.exitcode} after {figures.examples} examples")
        found[name] = figures
        numbers = f"{figures.examples:8} | {figures.accepted:8} | {len(figures.crashes):7}"
        print(f"{name:<31} | {numbers} | {figures.slowest:10.1f} | {figures.peak:8}", flush=True)
        for crash in figures.crashes:
            print(f"    {crash}", flush=True)
        if options.out is not None:
            _keep(options.out, found, options)
    return int(any(figures.crashes for figures in found.values()))


def _work(name: str, folder: Path, options: Options, report: Path) -> None:
    """Batches of examples until the time is over; the seed of a batch makes it again."""
    folder.mkdir()
    os.environ["CTS_CACHE"] = str(folder / "cache")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # commands may say what they like
    os.dup2(1, 2)
    sys.dont_write_bytecode = True
    own_pillow_warnings()
    figures, place, target = Figures(), Place(folder), TARGETS[name]
    tolerated(target(place, _first))  # what is loaded and made once
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)

    def example(data: st.DataObject) -> None:
        use = target(place, data.draw)
        began = time.process_time()
        with guarded(folder):
            figures.accepted += tolerated(use)
        figures.examples += 1
        figures.slowest = max(figures.slowest, round(time.process_time() - began, 2))

    quiet = settings(max_examples=BATCH, database=None, deadline=None, phases=[Phase.generate], print_blob=False)
    quiet = settings(quiet, suppress_health_check=list(HealthCheck))
    until, batch = time.monotonic() + options.seconds, options.seed
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


def _keep(path: Path, found: dict[str, Figures], options: Options) -> None:
    data = {
        "command": "python -m tests.fuzz " + " ".join(sys.argv[1:]),
        "time": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "seconds each": options.seconds,
        "system": platform.platform(),
        "versions": versions(),
        "files": [
            {"file": name} | asdict(figures) | {"crashes": len(figures.crashes)} for name, figures in found.items()
        ],
    }
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Options)))
