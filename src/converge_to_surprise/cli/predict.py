"""``cts predict``: the clusters of images as a table."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from ..config.text import one_line
from .arguments import RunPath, SourceName
from .output import say

if TYPE_CHECKING:
    from ..data.source import Source
    from ..model.cluster_model import Model
    from ..runs.predict import TableOptions


@dataclass(frozen=True)
class Command:
    """Find the clusters of images, new ones or those of the run, and write them as a table."""

    run: RunPath
    """A finished run, or a model file."""
    source: SourceName
    """Folder of pictures, a single picture, table of paths, array file or data set; for a model of embeddings a file of
    them."""
    out: Path | None = None
    """Table to write: .csv or .parquet. If the command is interrupted, the same command continues it. The cluster of a
    single picture is printed if this is left out."""
    embedding: bool = False
    """Write the network's features too: columns e0, e1, ..."""
    min_confidence: float = 0.0
    """Images with a lower confidence get cluster -1."""
    max_novelty: float = 1.0
    """Images with a higher novelty get cluster -1: 0.95 refuses images that are more unlike the training images than
    95 percent of their kind."""
    n_clusters: int | None = None
    """Cut the merge tree at this many clusters instead of where the run cut it."""
    split: Literal["train", "test"] = "train"
    """Which part of a data set that has two."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets."""
    threads: int = 0
    """Pictures decoded at the same time; 0: as many as there are CPU threads."""
    processes: int = 1
    """Processes on this machine that share the images."""
    force: bool = False
    """Overwrite an existing table."""


def execute(command: Command, console: Console) -> None:
    from ..data.decode import hide_pillow_warnings
    from ..data.skipped import files_line
    from ..data.source import CHUNK, Source
    from ..distributed import launch
    from ..model.limits import Limits
    from ..runs import predict as prediction
    from ..runs.interruption import stoppable
    from ..runs.load import load_model
    from ..runs.progress import CountDisplay

    hide_pillow_warnings()
    if not 1 <= command.processes <= 1024:
        raise ValueError(f"--processes is {command.processes}; it must be from 1 to 1024")
    model = load_model(command.run, command.n_clusters)
    check_limits(command.min_confidence, command.max_novelty)
    limits = Limits(command.min_confidence, command.max_novelty)
    options = prediction.TableOptions(command.embedding, limits, command.threads)
    if command.out is None:
        source = Source.open(command.source, model.shape, command.split, command.data_dir, model.input)
        say(console, one_line(_single(model, source, options)))
        return
    prediction.check_out(command.out)
    check_free(command.out, "--out", command.force)
    source = Source.open(command.source, model.shape, command.split, command.data_dir, model.input)
    identity, out = prediction.model_identity(command.run), command.out.resolve()
    with stoppable("run the same command again to continue"), launch.workers(command.processes) as group:
        if not group.is_single:
            data_dir = None if command.data_dir is None else str(command.data_dir.resolve())
            run, source_name = str(command.run.resolve()), command.source
            job = prediction.Job(run, command.n_clusters, source_name, command.split, data_dir, str(out), identity)
            launch.send_command(group, "predict", {"job": job, "options": asdict(options)})
        with CountDisplay(console, "images", len(group.part(len(source), CHUNK))) as progress:
            done = prediction.predict(model, source, out, options, identity, progress)
    if done.resumed_at:
        say(console, f"continued after {done.resumed_at:,} images")
    say(console, f"{done.images:,} images in {command.out}")
    if source.listing is not None:
        say(console, files_line(done.images, done.skipped, done.quarantine))


def _single(model: Model, source: Source, options: TableOptions) -> str:
    """The cluster of a single picture in one line."""
    from ..runs.labels import cluster_name

    if source.listing is None or list(source.listing.paths) != [os.path.abspath(source.name)]:
        raise ValueError(
            f"{source.name} is not a single picture: give the table to write, for example --out labels.csv"
        )
    (chunk,) = source.chunks(range(1), options.threads)
    if chunk.quarantined:
        raise ValueError(f"{source.name} cannot be read: {chunk.quarantined[0].reason}")
    options.limits.check(model)
    (found,) = model.predict(chunk.images)
    number = int(options.limits.clusters(found))
    second = cluster_name(model, int(found.second))
    text = f"{source.name}: cluster {cluster_name(model, number)}, confidence {float(found.confidence):.3f}"
    if model.active.calibration.novelty is not None:
        text += f", novelty {float(found.novelty):.3f}"
    return f"{text}; next best: cluster {second}, {float(found.second_confidence):.3f}"


def check_limits(min_confidence: float, max_novelty: float) -> None:
    for option, value in (("--min-confidence", min_confidence), ("--max-novelty", max_novelty)):
        if not 0 <= value <= 1:
            raise ValueError(f"{option} is {value}; it must be from 0 to 1")


def check_free(path: Path, option: str, force: bool) -> None:
    """Refuse a file that cannot be written, or that exists unless it may be overwritten."""
    from ..config.storage import check_file_target

    check_file_target(path, option)
    if path.exists() and not force:
        raise ValueError(f"{path} exists; give another name, or --force to overwrite it")
