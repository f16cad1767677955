"""``cts report``: write a run's report page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from .arguments import RunPath
from .output import say


@dataclass(frozen=True)
class Command:
    """Write a run's report: one HTML file with its clusters, map, merge tree and curves."""

    run: RunPath
    """A run, finished or not."""
    source: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="SOURCE")] = None
    """Other images to show the clusters of, or the run's own where they have moved; by default the run's own."""
    out: Path | None = None
    """File to write; by default report.html in the run folder."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets, if it has moved."""


def execute(command: Command, console: Console) -> None:
    from ..config.storage import check_file_target, write_atomically
    from ..report import page
    from ..report.content import gather, open_pictures
    from ..runs.folder import RunFolder
    from ..runs.progress import CountDisplay

    run = RunFolder.open(command.run)
    path = check_file_target(command.out or run.report, "--out")
    with CountDisplay(console, "pictures read", 0) as progress:
        pictures = open_pictures(run, command.source, command.data_dir, progress)
    with console.status("making the report"):
        write_atomically(path, page.render("report", gather(run, pictures)).encode())
    say(console, f"written: {path}")
