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
    source: str | None = None
    """Where the run's images are now, if they have moved: a folder, table or file as in `cts fit`."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets, if it has moved."""
    report: bool = True
    """Write report.html into the run folder at the end."""
    serve: bool = False
    """Serve the report during training, on this machine only."""
    port: int = 0
    """Port of that page; 0: any free one."""
    tensorboard: bool = False
    """Write event files for TensorBoard into the run folder."""


def execute(command: Command, console: Console) -> None:
    from ..runs import session
    from ..runs.folder import RunFolder
    from .fit import train
    from .loading import images_of

    run = RunFolder.open(command.run)
    run.description()  # refuses another kind of folder before it is locked
    with run.locked():  # nothing that is read may change
        try:
            dataset = images_of(run, command.source, command.data_dir, console)
        except ValueError as error:
            if command.source is not None:
                raise
            moved = f"if they have moved: cts resume {command.run} --source PLACE"
            raise ValueError(f"the images of {command.run} cannot be read: {error}; {moved}") from None
        search, problems = session.reopen(run, dataset)
        warn(problems)
        session.update_origin(run, command.source, command.data_dir)
        train(run, search, dataset, command, console)
