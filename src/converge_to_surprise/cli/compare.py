"""``cts compare``: several runs on the same images on one page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from ..config.text import one_line
from .output import say


@dataclass(frozen=True)
class Command:
    """Compare runs: settings, curves, scores, balance, agreement, and where the images of each cluster went."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Two or more runs on the same images."""
    out: Path = Path("compare.html")
    """File to write."""


def execute(command: Command, console: Console) -> None:
    from ..config.storage import check_file_target, write_atomically
    from ..report import page
    from ..report.comparison import compare_runs
    from ..runs.folder import RunFolder

    if len(command.runs) < 2:
        raise ValueError("cts compare needs at least two runs")
    runs = [RunFolder.open(path) for path in command.runs]
    path = check_file_target(command.out, "--out")
    content = compare_runs(runs)
    write_atomically(path, page.render("compare", content).encode())
    for run, verdict in zip(content["runs"], content["verdicts"], strict=True):
        say(console, one_line(f"{run['name']}: {len(run['clusters'])} clusters; {verdict}"))
    if content["consensus"] is not None:
        say(console, f"agrees most with the others: {content['consensus']}")
    say(console, f"written: {path}")
