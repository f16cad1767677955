"""``python -m tests.faults``: hurt real runs in every way, print what was lost, keep the figures."""

from __future__ import annotations

import json
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tyro

from converge_to_surprise.run.session import versions

from . import places, stops
from .harness import SETTINGS, undisturbed
from .ward import Tally, Ward

Fault = Callable[[Ward, Tally, int], None]


@dataclass(frozen=True)
class Options:
    """Hurt real runs and count what is lost."""

    kills: int = 100
    """How often to kill −9 at a random moment, and again at a file operation."""
    each: int = 12
    """Trials of each other fault."""
    seed: int = 0
    only: str = ""
    """Only faults whose name holds this."""
    out: Path | None = None
    """JSON file for the figures."""


def faults(options: Options) -> dict[str, tuple[Fault, int]]:
    """Every fault by name, with how often it is tried."""
    each = options.each
    return {
        "kill -9, random moment": (stops.kill_at_random, options.kills),
        "kill -9, at a file operation": (stops.kill_in_writing, options.kills),
        "SIGTERM": (partial(stops.polite_signal, number=signal.SIGTERM), each),
        "SIGINT": (partial(stops.polite_signal, number=signal.SIGINT), each),
        "SIGINT twice": (stops.interrupt_twice, each),
        "disk full": (places.full_disk, each),
        "read-only folder": (places.read_only, each),
        "checkpoint cut or a bit flipped": (places.damaged_checkpoint, 4 * each),
        "clock jumps": (stops.clock_jumps, each // 2),
        "second writer": (stops.second_writer, each // 2),
        "race for a stopped run": (stops.race, each),
        "source changed or deleted": (places.changed_source, each),
        "out of memory": (places.out_of_memory, each),
    }


def main(options: Options) -> int:
    began = time.monotonic()
    tallies: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory(prefix="cts-faults-") as name:
        kinds = [(search, seconds) for seconds in (0.0, 0.05) for search in SETTINGS]
        folders = [Path(name) / f"whole-{search}-{seconds}" for search, seconds in kinds]
        wholes = [undisturbed(folder, *kind) for folder, kind in zip(folders, kinds, strict=True)]
        ward = Ward(Path(name), wholes, options.seed)
        print(f"{'fault':<33} | tried | survived | lost | seconds")
        for title, (fault, count) in faults(options).items():
            if options.only not in title:
                continue
            start, tally = time.monotonic(), Tally()
            fault(ward, tally, count)
            tallies[title] = tally
            shown = f"{title} ({tally.how})" if tally.how else title
            lost = len(tally.lost)
            taken = time.monotonic() - start
            print(f"{shown:<33} | {tally.tried:5} | {tally.tried - lost:8} | {lost:4} | {taken:.0f}", flush=True)
            for what in tally.lost:
                print(f"    {what}", flush=True)
    if options.out is not None:
        _keep(options.out, tallies, time.monotonic() - began)
    return 1 if any(tally.lost for tally in tallies.values()) else 0


def _keep(path: Path, tallies: dict[str, Tally], seconds: float) -> None:
    rows = [
        {
            "fault": title,
            "how": tally.how,
            "tried": tally.tried,
            "survived": tally.tried - len(tally.lost),
            "lost": len(tally.lost),
        }
        for title, tally in tallies.items()
    ]
    data = {
        "command": "python -m tests.faults " + " ".join(sys.argv[1:]),
        "time": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "seconds": round(seconds),
        "system": platform.platform(),
        "versions": versions(),
        "faults": rows,
    }
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Options)))
