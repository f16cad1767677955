"""``cts relabel``: names, merges and noise marks from the report page."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from .arguments import RunPath
from .output import say


@dataclass(frozen=True)
class Command:
    """Give a run's clusters the names, merges and noise marks that were saved from its report."""

    run: RunPath
    """A finished run."""
    file: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="clusters.json")] = None
    """File saved from the run's report; a name alone is also looked for in your download folder."""
    undo: bool = False
    """Undo the last file that was applied."""


def execute(command: Command, console: Console) -> None:
    from ..runs.annotations import apply_annotations, saved_cut, undo_annotations
    from ..runs.folder import RunFolder
    from ..runs.load import load_newest_model

    run = RunFolder.open(command.run)
    if command.undo:
        if command.file is not None:
            raise ValueError(f"give either {command.file} or --undo, not both")
        earlier = undo_annotations(run)
        say(console, "undone; " + ("the previous names apply again" if earlier else "the clusters have no names"))
        return
    if command.file is None:
        raise ValueError("give the clusters.json that was saved from the run's report, or --undo")
    run.check_finished()
    model = load_newest_model(run).model
    found = apply_annotations(run, _downloaded(command.file), model.n_clusters, model.levels)
    cut = saved_cut(run, model.levels)
    named = sum(name != str(number) for number, name in enumerate(found.names))
    merged = sum(into != number for number, into in enumerate(found.into))
    noise = sum(mark and into == k for k, (into, mark) in enumerate(zip(found.into, found.noise, strict=True)))
    counts = (
        f"{named} named, {merged} merged, {noise} marked as noise{'' if cut is None else f', cut at {cut} clusters'}"
    )
    say(console, f"{counts}; `cts relabel {run.path} --undo` undoes it")


def _downloaded(file: Path) -> Path:
    """A file as named, or else the file of this name in the folder where browsers save what is downloaded."""
    if file.exists() or file.is_absolute() or file.name != str(file):
        return file
    with contextlib.suppress(RuntimeError):  # there is no home
        folder = Path(os.environ.get("XDG_DOWNLOAD_DIR") or Path.home() / "Downloads")
        return folder / file if (folder / file).is_file() else file
    return file
