"""``cts report``, ``cts compare`` and ``cts relabel``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from ..config.storage import write_atomically
from ..data.store import ImageStore
from ..report import page
from ..report.comparison import compare_runs
from ..report.content import Pictures, gather, open_pictures
from ..runs.annotations import apply_annotations, undo_annotations
from ..runs.folder import RunFolder
from ..runs.load import load_newest_model

Run = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]


@dataclass(frozen=True)
class Report:
    """Write a run's report: one HTML file with its clusters, map, merge tree and curves."""

    run: Run
    source: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="SOURCE")] = None
    """Other images to show the clusters of, or the run's own where they have moved; the run's own if not given."""
    out: Path | None = None
    """File to write; report.html in the run folder if not given."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets, if it has moved."""


@dataclass(frozen=True)
class Compare:
    """Set runs side by side: settings, curves, how even their clusters are (of several seeds, the best balanced is to be
    taken), how far they agree, which is likest the others, and where each cluster went."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Two or more runs on the same images."""
    out: Path = Path("compare.html")
    """File to write."""


@dataclass(frozen=True)
class Relabel:
    """Give a run's clusters the names, merges and noise marks that were saved from its report."""

    run: Run
    file: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="clusters.json")] = None
    """File saved from the run's report."""
    undo: bool = False
    """Take back the last file that was applied."""


def report(command: Report, console: Console) -> Path:
    """Write the page and say where it is."""
    run = RunFolder.open(command.run)
    path = _checked(command.out or run.report)
    pictures = open_pictures(run, command.source, command.data_dir, console)
    with console.status("making the report"):
        write_atomically(path, page.render("report", gather(run, pictures)).encode())
    _say(console, f"written: {path}")
    return path


def write_report(run: RunFolder, images: ImageStore, console: Console) -> None:
    """The page of a run that has just ended, whose images are at hand."""
    pictures = Pictures(images, run.description().source, own=True)
    with console.status("making the report"):
        write_atomically(run.report, page.render("report", gather(run, pictures)).encode())
    _say(console, f"report: {run.report}")


def compare(command: Compare, console: Console) -> Path:
    """Write the page and say where it is."""
    if len(command.runs) < 2:
        raise ValueError("cts compare needs at least two runs")
    runs = [RunFolder.open(path) for path in command.runs]
    path = _checked(command.out)
    content = compare_runs(runs)
    write_atomically(path, page.render("compare", content).encode())
    if content["likest"] is not None:
        _say(console, f"likest the others: {content['likest']}")
    _say(console, f"written: {path}")
    return path


def relabel(command: Relabel, console: Console) -> None:
    """Apply a file, or take the last one back."""
    run = RunFolder.open(command.run)
    if command.undo:
        if command.file is not None:
            raise ValueError(f"give either {command.file} or --undo, not both")
        before = undo_annotations(run)
        _say(console, "taken back; " + ("the names before it hold again" if before else "the clusters have no names"))
        return
    if command.file is None:
        raise ValueError("give the clusters.json that was saved from the run's report, or --undo")
    if not run.result.is_file():
        raise ValueError(f"{run.path} is not finished: continue it with `cts resume {run.path}`")
    names = apply_annotations(run, command.file, load_newest_model(run).model.clusters)
    named = sum(name != str(number) for number, name in enumerate(names.names))
    gone = sum(into != number for number, into in enumerate(names.into))
    noise = sum(
        mark and into == number for number, (into, mark) in enumerate(zip(names.into, names.noise, strict=True))
    )
    _say(
        console, f"{named} named, {gone} merged, {noise} marked as noise; `cts relabel {run.path} --undo` takes it back"
    )


def _checked(path: Path) -> Path:
    """A place that a page can be written to."""
    if path.is_dir():
        raise ValueError(f"--out is {path}, which is a folder; give a file")
    if not path.parent.is_dir():
        raise ValueError(f"--out is {path}, but there is no folder {path.parent}")
    return path


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
