"""``cts split``: split one cluster by hand, or undo that."""

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
    """Split one cluster of a finished run as well as it can be split, whether the run itself would or not."""

    run: RunPath
    """A finished run."""
    cluster: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="C")]
    """The cluster, as in 3 or 3/1."""
    undo: bool = False
    """Undo the split of this cluster."""
    source: str | None = None
    """Where the run's images are now, if they have moved: a folder, table or file as in `cts fit`."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets, if it has moved."""
    report: bool = True
    """Write report.html into the run folder again."""


def execute(command: Command, console: Console) -> None:
    from ..model.hierarchy import parse_path, path_text
    from ..runs.annotations import without_split
    from ..runs.deepening import split_by_hand, undo_split_by_hand
    from ..runs.folder import RunFolder
    from ..runs.hypothesis_table import why
    from .deepen import write_page
    from .loading import images_of

    run = RunFolder.open(command.run)
    path = parse_path(command.cluster)
    run.check_finished()
    if command.undo:
        without_split(run, path)  # refuses a cluster that was not split before the images are read
        dataset = images_of(run, command.source, command.data_dir, console)
        undo_split_by_hand(run, dataset, path)
        say(console, f"undone; cluster {path_text(path)} is whole again")
    else:
        dataset = images_of(run, command.source, command.data_dir, console)
        with console.status("splitting"):
            found = split_by_hand(run, dataset, path)
        node = found.tree.tried(path)
        assert node is not None
        say(console, f"{path_text(path)}: {why(node)}")
        say(console, f"`cts split {run.path} {path_text(path)} --undo` undoes it")
    if command.report:
        write_page(run, dataset, console)
