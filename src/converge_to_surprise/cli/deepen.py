"""``cts deepen``: search for sub-clusters within the clusters of a finished run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console

from .arguments import RunPath
from .output import say

if TYPE_CHECKING:
    from ..data.datasets import Dataset
    from ..runs.deepening import Deepened
    from ..runs.folder import RunFolder
    from ..search.hypotheses import RoundRequest


@dataclass(frozen=True)
class Command:
    """Search for sub-clusters within the clusters of a finished run; the clusters stay as they are."""

    run: RunPath
    """A finished run."""
    cluster: Annotated[tuple[str, ...], tyro.conf.arg(metavar="C")] = ()
    """Clusters to open, as in 3 or 3/1, with what is found below them; by default all."""
    rounds: int | Literal["auto"] = "auto"
    """Rounds at most; auto: until a round finds nothing further."""
    source: str | None = None
    """Where the run's images are now, if they have moved: a folder, table or file as in `cts fit`."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets, if it has moved."""
    report: bool = True
    """Write report.html into the run folder again."""


def execute(command: Command, console: Console) -> None:
    from ..model.hierarchy import parse_path
    from ..runs.folder import RunFolder
    from ..search.hypotheses import request_of
    from .loading import images_of

    run = RunFolder.open(command.run)
    only = [parse_path(text) for text in command.cluster]
    request = request_of(command.rounds, only)
    run.check_finished()
    dataset = images_of(run, command.source, command.data_dir, console)
    deepen(run, dataset, request, console)
    if command.report:
        write_page(run, dataset, console)


def deepen(run: RunFolder, dataset: Dataset, request: RoundRequest, console: Console) -> None:
    """Work through the rounds and print what was found."""
    from ..runs.deepening import deepen_run

    with console.status("searching for sub-clusters"):
        found = deepen_run(run, dataset, request)
    show_rounds(found, console)


def show_rounds(found: Deepened, console: Console) -> None:
    """The table of rounds, the splits, and how it ended."""
    from rich.table import Table

    from ..model.hierarchy import path_text
    from ..runs.hypothesis_table import ending, why

    rows = found.table["rounds"]
    table = Table(title="hypotheses")
    known = any(row["nmi"] is not None for row in rows)
    for name in ("round", "rejected", "nodes tried", "splits", "leaves", "nats", *(("NMI",) if known else ())):
        table.add_column(name, justify="right")
    for row in rows:
        rejected = f"H{row['round']}" if row["splits"] else "–"
        cells = [str(row["round"]), rejected, *(f"{row[name]:,}" for name in ("tried", "splits", "leaves"))]
        table.add_row(*cells, f"{row['nats']:,.0f}", *([] if row["nmi"] is None else [f"{row['nmi']:.1%}"]))
    console.print(table)
    for node in found.tree.nodes:
        if node.is_split:
            say(console, f"{path_text(node.path)}: {why(node)}")
    say(console, ending(found.tree))


def write_page(run: RunFolder, dataset: Dataset, console: Console) -> None:
    """Write the report page again."""
    from ..report.page import write_report

    with console.status("making the report"):
        write_report(run, dataset.train)
    say(console, f"report: {run.report}")
