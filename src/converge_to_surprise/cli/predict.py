"""``cts predict``: the clusters of images as a table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from .arguments import RunPath, SourceName
from .output import say


@dataclass(frozen=True)
class Command:
    """Find the clusters of images, new ones or those of the run, and write them as a table."""

    run: RunPath
    """A finished run, or a model file."""
    source: SourceName
    """Folder of pictures, table of paths, array file or data set."""
    out: Path
    """Table to write: .csv or .parquet. If the command is interrupted, the same command continues it."""
    embedding: bool = False
    """Write the network's features too: columns e0, e1, ..."""
    min_confidence: float = 0.0
    """Images with a lower confidence get cluster -1."""
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
    from ..data.decode import own_pillow_warnings
    from ..data.skipped import files_line
    from ..data.source import CHUNK, Source
    from ..distributed import launch
    from ..runs import predict as prediction
    from ..runs.interruption import stoppable
    from ..runs.progress import CountDisplay

    own_pillow_warnings()
    if not 1 <= command.processes <= 1024:
        raise ValueError(f"--processes is {command.processes}; it must be from 1 to 1024")
    model = prediction.load_cut_model(command.run, command.n_clusters)
    check_confidence(command.min_confidence)
    prediction.check_out(command.out)
    check_free(command.out, command.force)
    source = Source.open(command.source, model.shape, command.split, command.data_dir)
    options = prediction.TableOptions(command.embedding, command.min_confidence, command.threads)
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


def check_confidence(value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"--min-confidence is {value}; it must be from 0 to 1")


def check_free(path: Path, force: bool) -> None:
    """Refuse a file that exists, unless it may be overwritten."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file")
    if path.exists() and not force:
        raise ValueError(f"{path} exists; give another name, or --force to overwrite it")
