"""``python -m tests.faults``: hurt real runs in every way, print what was lost, keep the figures."""

from __future__ import annotations

import csv
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tyro

from converge_to_surprise.runs.session import versions

from . import damage, pictures, places, sorting, stops, team
from .harness import SETTINGS, pictures_in, source_of, undisturbed
from .ward import Tally, Ward

Fault = Callable[[Ward, Tally, int], None]


@dataclass(frozen=True)
class Options:
    """Hurt real runs and count what is lost."""

    kills: int = 100
    """How often to kill −9 at a random moment, and again at a file operation."""
    each: int = 10
    """Trials of each other fault."""
    seed: int = 0
    only: str = ""
    """Only faults whose name holds this."""
    rest: bool = False
    """Only faults that the CSV file does not have yet."""
    out: Path | None = None
    """CSV file for the figures; its rows of faults that are not tried now stay."""


def faults(options: Options) -> dict[str, tuple[Fault, int]]:
    """Every fault by name, with how often it is tried."""
    each = options.each
    return {
        "kill -9, random moment": (stops.kill_at_random, options.kills),
        "kill -9, at a file operation": (stops.kill_in_writing, options.kills),
        "kill -9, worker of two processes": (team.kill_worker, each),
        "kill -9, first of two processes": (team.kill_first, each),
        "kill -9, in the cache step": (pictures.kill_in_decoding, options.kills // 4),
        "kill -9, sort by move, random moment": (sorting.kill_sort_at_random, options.kills),
        "kill -9, sort by move, at a file operation": (sorting.kill_in_sorting, options.kills),
        "kill -9, undo of a sort": (sorting.kill_in_undoing, options.kills),
        "two sorts at once": (sorting.two_sorts_at_once, options.kills // 4),
        "SIGTERM": (partial(stops.polite_signal, number=signal.SIGTERM), each),
        "SIGINT": (partial(stops.polite_signal, number=signal.SIGINT), each),
        "SIGINT twice": (stops.interrupt_twice, each),
        "disk full": (places.full_disk, each),
        "disk full, in the cache step": (pictures.no_room_for_the_cache, each),
        "read-only folder": (places.read_only, each),
        "checkpoint cut or a bit flipped": (damage.damaged_checkpoint, 4 * each),
        "a bit flipped in each region of a checkpoint": (damage.rotten_checkpoint, each),
        "clock jumps": (stops.clock_jumps, each // 2),
        "second writer": (stops.second_writer, each // 2),
        "race for a stopped run": (stops.race, each // 2),
        "array file changed or deleted": (places.changed_source, each),
        "pictures changed or deleted": (pictures.changed_pictures, each),
        "out of memory": (places.out_of_memory, each),
        "out of memory, in the cache step": (pictures.starved_decoding, each),
    }


def main(options: Options) -> int:
    losses = 0
    with tempfile.TemporaryDirectory(prefix="cts-faults-") as name:
        kinds = [(search, seconds, source_of) for seconds in (0.0, 0.05) for search in SETTINGS]
        kinds += [(search, 0.0, pictures_in) for search in SETTINGS]
        wholes = [undisturbed(Path(name) / f"whole-{number}", *kind) for number, kind in enumerate(kinds)]
        ward = Ward(Path(name), wholes, options.seed)
        print(f"{'fault':<47} | tried | survived | lost | seconds")
        for title, (fault, count) in faults(options).items():
            if options.only not in title or (options.rest and title in _known(options.out)):
                continue
            start, tally = time.monotonic(), Tally()
            fault(ward, tally, count)
            shown = f"{title} ({tally.how})" if tally.how else title
            lost = len(tally.lost)
            losses += lost
            tally.seconds = time.monotonic() - start
            numbers = f"{tally.tried:5} | {tally.tried - lost:8} | {lost:4} | {tally.seconds:.0f}"
            print(f"{shown:<47} | {numbers}", flush=True)
            for what in tally.lost:
                print(f"    {what}", flush=True)
            if options.out is not None:
                _keep(options.out, title, tally, options)
    return 1 if losses else 0


def _known(path: Path | None) -> dict[str, Any]:
    """The rows of a file of figures by the names of their faults."""
    if path is None or not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as lines:
        return {row["fault"]: row for row in csv.DictReader(lines)}


def _keep(path: Path, title: str, tally: Tally, options: Options) -> None:
    """Write the row of a fault; those of others, perhaps from an earlier call with ``--only``, stay."""
    rows = _known(path)
    rows[title] = {
        "fault": title,
        "how": tally.how,
        "tried": tally.tried,
        "survived": tally.tried - len(tally.lost),
        "lost": len(tally.lost),
        "seconds": round(tally.seconds),
        "command": "python -m tests.faults " + " ".join(sys.argv[1:]),
        "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
        "system": platform.platform(),
        "date": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
    }
    with path.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, list(rows[title]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[name] for name in faults(options) if name in rows)


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Options)))
