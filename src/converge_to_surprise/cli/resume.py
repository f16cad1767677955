"""``cts resume``: continue an interrupted run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from .arguments import RunPath
from .output import warn


@dataclass(frozen=True)
class Command:
    """Continue an interrupted run exactly where it stopped."""

    run: RunPath
    """An interrupted run."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets, if it has moved."""
    report: bool = True
    """Write report.html into the run folder at the end."""
    serve: bool = False
    """Show the report while the run goes on, on this machine only."""
    port: int = 0
    """Port of that page; 0: any free one."""
    tensorboard: bool = False
    """Write event files for TensorBoard into the run folder."""


def execute(command: Command, console: Console) -> None:
    from ..config.images import ImageOptions
    from ..runs import session
    from ..runs.folder import RunFolder
    from .fit import Watching, train
    from .loading import load_images

    run = RunFolder.open(command.run)
    description = run.description()
    saved = None if description.data_dir is None else Path(description.data_dir)
    options = ImageOptions(labels=description.labels)
    dataset = load_images(description.source, command.data_dir or saved, options, console, description.shape)
    with run.locked():  # from here on nothing that was read may change
        search, problems = session.reopen(run, dataset)
        warn(problems)
        session.update_data_dir(run, command.data_dir)
        train(run, search, dataset, Watching.of(command), console)
