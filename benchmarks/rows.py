"""The figures of benchmarks/results/: CSV files, a row per run, each with its command, versions, commit and date."""

from __future__ import annotations

import argparse
import csv
import os
import platform
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("converge-to-surprise", "torch", "numpy")
DIGITS = 6
"""Decimal places of a number in a file."""
Figures = Mapping[str, tuple[float, str]]
"""Value and unit of each figure of a benchmark of speed, by its name."""


def read_rows(file: Path) -> list[dict[str, str]]:
    """The rows of a file, or none if there is no such file."""
    from converge_to_surprise.config.storage import read_csv  # rival_process runs where the program is not installed

    return read_csv(file)


def versions(packages: Iterable[str] = PACKAGES) -> str:
    """Names and versions of the installed ones among ``packages``, and Python's."""
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


def parser(description: str | None, save: str | None = None, **defaults: int | list[int]) -> argparse.ArgumentParser:
    """A parser of a benchmark's options: a whole number, or several, ``--name`` for every default; ``--save FILE``."""
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    file = None if save is None else RESULTS / save
    found.add_argument("--save", type=Path, default=file, help="CSV file to which the figures are appended")
    for name, default in defaults.items():
        several = "+" if isinstance(default, list) else None
        found.add_argument(f"--{name.replace('_', '-')}", type=int, nargs=several, default=default)
    return found


def cts(*words: object) -> str:
    """What a command of the program prints."""
    command = [sys.executable, "-m", "converge_to_surprise", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def show_speed(figures: Figures, threads: int, file: Path | None) -> None:
    """Print the figures of the benchmark that is running and add a row for each to a file, if one is given."""
    for what, (value, unit) in figures.items():
        print(f"{what:<56} {value:10,.2f} {unit}")
    if file is not None:
        about = {"benchmark": Path(sys.argv[0]).stem, "threads": threads}
        append_rows(
            file, ({**about, "what": what, "value": value, "unit": unit} for what, (value, unit) in figures.items())
        )


def taking_turns(works: Mapping[str, Callable[[], object]], rounds: int, warm: bool = False) -> dict[str, list[float]]:
    """Seconds of each work in every round. They alternate, so that a disturbance of the machine hits all of them.

    ``warm``: do it once more before it is timed, because caches and memory are as the work before it left them.
    """
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            if warm:
                work()
            began = time.perf_counter()
            work()
            found[name].append(time.perf_counter() - began)
    return found


class MemoryWatch:
    """The peak memory of this process's own (RssAnon), in MB, by what it does: not the pages of mapped files."""

    def __init__(self) -> None:
        self.megabytes: dict[str, float] = {}
        self.part = "start"
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            with open("/proc/self/status") as status:
                (own,) = (int(line.split()[1]) for line in status if line.startswith("RssAnon"))
            self.megabytes[self.part] = max(self.megabytes.get(self.part, 0.0), own / 1024)
            time.sleep(0.01)


def _text(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.{DIGITS}f}".rstrip("0").rstrip(".")
    return "" if value is None else value
