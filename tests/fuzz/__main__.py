"""``python -m tests.fuzz``: spoil files for minutes, print what came of it, keep the figures.

Every kind of file has a process of its own, with little memory to take, so that a crash is counted and not suffered.
"""

from __future__ import annotations

import csv
import json
import multiprocessing
import platform
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from converge_to_surprise.runs.session import versions

from .targets import TARGETS
from .worker import Figures, work


@dataclass(frozen=True)
class Options:
    """Spoil files and use them."""

    seconds: float = 120
    """For each kind of file."""
    seed: int = 0
    only: str = ""
    """Only kinds whose name holds this."""
    out: Path | None = None
    """CSV file for the figures; its rows of files that are not tried now stay."""


def main(options: Options) -> int:
    context = multiprocessing.get_context("spawn")
    found: dict[str, Figures] = {}
    print(f"{'file':<31} | examples | accepted | crashes | slowest, s | peak, MB", flush=True)
    for name in TARGETS:
        if options.only not in name:
            continue
        with tempfile.TemporaryDirectory(prefix="cts-fuzz-") as folder:
            report = Path(folder) / "figures.json"
            process = context.Process(
                target=work, args=(name, Path(folder) / "place", options.seconds, options.seed, report)
            )
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
            _keep(options.out, {name: figures}, options)
    return int(any(figures.crashes for figures in found.values()))


def _keep(path: Path, found: dict[str, Figures], options: Options) -> None:
    """Write the rows of these kinds of files; those of others, from an earlier call with ``--only``, stay."""
    rows: dict[str, dict[str, Any]] = {}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as lines:
            rows = {row["file"]: row for row in csv.DictReader(lines)}
    for name, figures in found.items():
        rows[name] = {
            "file": name,
            "examples": figures.examples,
            "accepted": figures.accepted,
            "crashes": len(figures.crashes),
            "slowest_seconds": figures.slowest,
            "peak_megabytes": figures.peak,
            "seconds": options.seconds,
            "command": "python -m tests.fuzz",
            "versions": ", ".join(f"{package} {number}" for package, number in versions().items()),
            "system": platform.platform(),
            "date": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        }
    with path.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, list(next(iter(rows.values()))), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[name] for name in TARGETS if name in rows)


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Options)))
