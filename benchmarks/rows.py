"""The figures of benchmarks/results/: CSV files, a row per run, each with its command, versions, commit and date."""

from __future__ import annotations

import csv
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("converge-to-surprise", "torch", "numpy")
DIGITS = 6
"""Decimal places of a number in a file."""


def versions(packages: Iterable[str] = PACKAGES) -> str:
    """Annotations and versions of the installed ones among ``packages``, and Python's."""
    found = []
    for name in packages:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:  # run from a checkout, or not needed by this benchmark
            continue
    return ", ".join([*found, f"python {platform.python_version()}"])


def command() -> str:
    """The command line of this process, with PATH for absolute paths: these mean nothing on another machine."""
    words = ["PATH" if word.startswith("/") else word for word in sys.argv[1:]]
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *words])


def commit() -> str:
    """The checked-out commit, or nothing outside a repository."""
    words = ["git", "rev-parse", "--short", "HEAD"]
    try:
        ended = subprocess.run(words, cwd=RESULTS.parent, capture_output=True, text=True, check=False)
    except OSError:  # git is not installed
        return ""
    return ended.stdout.strip()


def read_rows(file: Path) -> list[dict[str, str]]:
    """The rows of a file; none if it does not exist."""
    if not file.is_file():
        return []
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def write_rows(file: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Replace a file. Its columns are those of all rows, in the order of their first appearance."""
    listed = list(rows)
    columns = dict.fromkeys(name for row in listed for name in row)
    file.parent.mkdir(parents=True, exist_ok=True)
    written = file.with_name(f"{file.name}.part")
    with written.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _text(value) for name, value in row.items()} for row in listed)
    os.replace(written, file)


def append_rows(file: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Add rows to a file, each with the command, the versions, the commit and the date unless it has its own."""
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    about = {"command": command(), "versions": versions(), "commit": commit(), "date": date}
    write_rows(file, [*read_rows(file), *({**row, **{k: v for k, v in about.items() if k not in row}} for row in rows)])


def append_speed(file: Path, benchmark: str, threads: int, figures: Mapping[str, tuple[float, str]]) -> None:
    """Add a row for every figure of a benchmark: its name, value and unit."""
    rows = [
        {"benchmark": benchmark, "what": what, "value": value, "unit": unit, "threads": threads}
        for what, (value, unit) in figures.items()
    ]
    append_rows(file, rows)


def _text(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.{DIGITS}f}".rstrip("0").rstrip(".")
    return "" if value is None else value
