"""``cts predict``, ``cts sort`` and ``cts export``."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from ..data.source import CHUNK, Source
from ..distributed import launch as distributed
from ..distributed.group import ProcessGroup
from ..model import onnx_file as onnxfile
from ..model.cluster_model import Model
from ..runs import predict as predicting
from ..runs import sort as sorting
from ..runs.folder import RunFolder
from ..runs.load import load_model
from ..runs.session import Interrupted
from .screen import CountDisplay

RunOrModel = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
SourceName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")]


@dataclass(frozen=True)
class Predict:
    """Find the clusters of images, new ones or those of the run, and write them as a table."""

    run: RunOrModel
    """A finished run, or a model file."""
    source: SourceName
    """Folder of pictures, table of paths, array file or data set."""
    out: Path
    """Table to write: .csv or .parquet. If the command is interrupted, the same command goes on where it was."""
    embedding: bool = False
    """Write the network's features too: columns e0, e1, ..."""
    min_confidence: float = 0.0
    """Images with a lower confidence belong nowhere: their cluster is -1."""
    clusters: int | None = None
    """Read the merge tree at this many clusters instead of where it was cut."""
    split: Literal["train", "test"] = "train"
    """Which part of a data set that has two."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets."""
    threads: int = 0
    """Pictures decoded at the same time; 0: as many as the machine offers."""
    processes: int = 1
    """Processes on this machine that share the images."""
    force: bool = False
    """Write over a table that exists."""


@dataclass(frozen=True)
class Sort:
    """Make a folder for every cluster, with copies of its pictures."""

    run: RunOrModel
    """A finished run, or a model file."""
    source: SourceName
    """Folder of pictures, table of paths, array file or data set."""
    into: Path
    """New folder for the clusters' folders."""
    how: sorting.How = "copy"
    """copy, link (symbolic), hardlink, or move: only that one takes the pictures away from where they are."""
    min_confidence: float = 0.0
    """Images with a lower confidence go into the folder "noise"."""
    clusters: int | None = None
    """Read the merge tree at this many clusters instead of where it was cut."""
    split: Literal["train", "test"] = "train"
    """Which part of a data set that has two."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets."""
    threads: int = 0
    """Pictures decoded at the same time; 0: as many as the machine offers."""


@dataclass(frozen=True)
class Export:
    """Write a run's model for programs without torch."""

    run: RunOrModel
    """A finished run, or a model file."""
    onnx: Path
    """ONNX file to write: from raw images (uint8, any number of them) to cluster and confidence."""
    clusters: int | None = None
    """Read the merge tree at this many clusters instead of where it was cut."""
    force: bool = False
    """Write over a file that exists."""


def predict(command: Predict, console: Console, world: ProcessGroup) -> None:
    if not 1 <= command.processes <= 1024:
        raise ValueError(f"--processes is {command.processes}; it must be from 1 to 1024")
    model = _model(command.run, command.clusters)
    _check_confidence(command.min_confidence)
    predicting.check_out(command.out)
    _check_free(command.out, command.force)
    source = Source.open(command.source, model.shape, command.split, command.data_dir)
    wishes = predicting.Wishes(command.embedding, command.min_confidence, command.threads)
    identity, out = _identity(command.run), command.out.resolve()
    hint = "run the same command again to go on"
    with _stoppable(hint), distributed.helped(world, command.processes) as team:
        if not team.alone:
            details = {
                "run": str(command.run.resolve()), "clusters": command.clusters, "source": command.source,
                "split": command.split, "data_dir": command.data_dir and str(command.data_dir.resolve()),
                "out": str(out), "wishes": asdict(wishes), "identity": identity,
            }  # fmt: skip
            distributed.order(team, "predict", details)
        with CountDisplay(console, "images", len(team.part(len(source), CHUNK))) as progress:
            done = predicting.predict(model, source, out, wishes, identity, progress, team)
    if done.resumed_at:
        console.print(f"went on after {done.resumed_at:,} images", markup=False)
    console.print(f"{done.images:,} images in {command.out}", markup=False, soft_wrap=True)
    if done.quarantined:
        text = f"{done.quarantined:,} files could not be read: see {done.quarantine}"
        console.print(text, markup=False, soft_wrap=True)


def help_predict(
    world: ProcessGroup,
    run: str,
    clusters: int | None,
    source: str,
    split: Literal["train", "test"],
    data_dir: str | None,
    out: str,
    wishes: dict[str, Any],
    identity: str,
) -> None:
    """What another process does for ``predict``: its share of the images."""
    model = _model(Path(run), clusters)
    images = Source.open(source, model.shape, split, None if data_dir is None else Path(data_dir))
    wanted = predicting.Wishes(**wishes)
    predicting.predict(model, images, Path(out), wanted, identity, lambda done, total: None, world)


def sort(command: Sort, console: Console) -> None:
    model = _model(command.run, command.clusters)
    _check_confidence(command.min_confidence)
    source = Source.open(command.source, model.shape, command.split, command.data_dir)
    with _stoppable("what was sorted stays"), CountDisplay(console, "images", len(source)) as progress:
        done = sorting.sort(model, source, command.into, command.how, command.min_confidence, command.threads, progress)
    console.print(f"{done.images:,} images in {done.folders} folders of {command.into}", markup=False, soft_wrap=True)
    for name, reason in done.quarantine[:10]:
        console.print(f"left where it is: {name}: {reason}", markup=False, soft_wrap=True)
    if len(done.quarantine) > 10:
        console.print(f"and {len(done.quarantine) - 10:,} more that could not be read", markup=False)


def export(command: Export, console: Console) -> None:
    _check_free(command.onnx, command.force)
    model = _model(command.run, command.clusters)
    onnxfile.export(model, command.onnx)
    size = command.onnx.stat().st_size / 1e6
    channels, height, width = model.shape
    text = f"{command.onnx}: {size:.1f} MB, from images uint8 (N, {channels}, {height}, {width})"
    text += f" to {', '.join(onnxfile.OUTPUTS)}"
    console.print(text, markup=False, soft_wrap=True)


def _model(path: Path, clusters: int | None) -> Model:
    model = load_model(path)
    return model if clusters is None else model.cut(clusters)


def _identity(path: Path) -> str:
    """Tells a model from others, and from itself with other names for its clusters."""
    files = [path] if path.is_file() else [RunFolder(path).model, RunFolder(path).names]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes() if file.is_file() else b"-")
    return digest.hexdigest()


def _check_confidence(value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"--min-confidence is {value}; it must lie in 0..1")


def _check_free(path: Path, force: bool) -> None:
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file")
    if path.exists() and not force:
        raise ValueError(f"{path} exists; give another name, or --force to write over it")


@contextmanager
def _stoppable(hint: str) -> Iterator[None]:
    """Ctrl-C ends with a line that says what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(signal.SIGINT, hint) from None
