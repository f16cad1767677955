"""``cts relabel``: names, merges and noise marks from the report page."""

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
    """Give a run's clusters the names, merges and noise marks that were saved from its report."""

    run: RunPath
    """A finished run."""
    file: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="clusters.json")] = None
    """File saved from the run's report."""
    undo: bool = False
    """Undo the last file that was applied."""


def execute(command: Command, console: Console) -> None:
    from ..runs.annotations import apply_annotations, undo_annotations
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
    if not run.result.is_file():
        raise ValueError(f"{run.path} is not finished: continue it with `cts resume {run.path}`")
    found = apply_annotations(run, command.file, load_newest_model(run).model.n_clusters)
    named = sum(name != str(number) for number, name in enumerate(found.names))
    merged = sum(into != number for number, into in enumerate(found.into))
    noise = sum(mark and into == k for k, (into, mark) in enumerate(zip(found.into, found.noise, strict=True)))
    say(console, f"{named} named, {merged} merged, {noise} marked as noise; `cts relabel {run.path} --undo` undoes it")
