"""``cts similar``: the training images of a run that are most similar to pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console

from ..config.text import one_line
from .arguments import RunPath
from .output import say, warn
from .predict import check_free

if TYPE_CHECKING:
    from rich.table import Table

    from ..runs.similar import SimilarImages, TrainingImages


@dataclass(frozen=True)
class Command:
    """Find the training images of a run that are most similar to pictures, as the run's network sees them."""

    run: RunPath
    """A finished run."""
    pictures: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="PICTURE")]
    """One or more pictures, or folders, tables of paths or array files."""
    count: int = 10
    """Similar images of each picture."""
    out: Path | None = None
    """Table to write (.csv): picture, rank, image, cluster, distance. Without it and --page it is printed."""
    page: Path | None = None
    """Page to write (.html): the pictures and the images that are similar to them. It needs the run's own images."""
    force: bool = False
    """Overwrite existing files."""


def execute(command: Command, console: Console) -> None:
    from ..data.decode import hide_pillow_warnings
    from ..data.source import Source
    from ..report.content import open_pictures
    from ..report.similar_page import render_similar
    from ..runs.folder import RunFolder
    from ..runs.similar import TrainingImages, write_similar

    hide_pillow_warnings()
    if not command.pictures:
        raise ValueError("give at least one picture")
    if not 1 <= command.count <= 1000:
        raise ValueError(f"--count is {command.count}; it must be from 1 to 1000")
    _check_targets(command)
    run = RunFolder.open(command.run)
    known = TrainingImages.open(run)
    model = known.model
    if command.page is not None and model.input == "embeddings":
        raise ValueError(f"--page is {command.page}, but {command.run} clusters embeddings; give --out for a table")
    sources = [Source.open(name, model.shape, "train", None, model.input) for name in command.pictures]
    skipped: list[str] = []
    found = [one for source in sources for one in known.similar(source, command.count, skipped)]
    warn(skipped)
    if not found:
        raise ValueError(f"none of the {len(command.pictures)} sources holds a picture that can be read")
    if command.out is None and command.page is None:
        for table in _tables(found, known):
            console.print(table)
    if command.out is not None:
        write_similar(command.out, found, known)
        say(console, f"written: {command.out}")
    if command.page is not None:
        from ..config.storage import write_atomically

        pictures = open_pictures(run)
        write_atomically(command.page, render_similar(run, known, found, pictures.store.images).encode())
        say(console, f"written: {command.page}")


def _check_targets(command: Command) -> None:
    targets = ((command.out, "--out", (".csv",)), (command.page, "--page", (".html", ".htm")))
    for path, option, endings in targets:
        if path is None:
            continue
        if path.suffix.lower() not in endings:
            raise ValueError(f"{option} is {path}; its name must end in {endings[0]}")
        check_free(path, option, command.force)


def _tables(found: list[SimilarImages], known: TrainingImages) -> Iterator[Table]:
    """A table for each picture."""
    from rich.markup import escape
    from rich.table import Table

    for one in found:
        table = Table(title=f"similar to {escape(one_line(one.picture))}", title_justify="left")
        for name in ("rank", "image", "cluster", "distance"):
            table.add_column(name, justify="right" if name in ("rank", "distance") else "left", overflow="fold")
        for rank, match in enumerate(one.matches, 1):
            cluster = known.cluster_name(match.cluster)
            cells = (str(rank), one_line(match.name), one_line(cluster), f"{match.distance:.4f}")
            table.add_row(*map(escape, cells))
        yield table
