"""Write the cluster of every image as a table that can be continued after an interruption.

Rows are appended to ``OUT.part``; every few seconds ``OUT.part.json`` records up to where they are complete. A later
call truncates the table there and continues. At the end the table is renamed, or converted to Parquet.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import time
from collections import Counter
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from ..config.storage import (
    check_file_target,
    errors_name,
    flush_folder,
    read_csv,
    read_json,
    write_atomically,
    write_json,
)
from ..data.cache import Progress
from ..data.source import CHUNK, Source
from ..distributed.group import current
from ..model.cluster_model import Model, Prediction
from ..model.limits import Limits
from .folder import RunFolder
from .labels import QUARANTINE_COLUMNS, columns, rows
from .load import load_model

SAVE_SECONDS = 2.0


@dataclass(frozen=True)
class TableOptions:
    """What the table contains."""

    embedding: bool = False
    limits: Limits = field(default_factory=Limits)
    threads: int = 0


@dataclass(frozen=True)
class Predicted:
    """What was written."""

    images: int
    skipped: Counter[str]
    """Files of each kind that were not read; known to the first process."""
    quarantine: Path
    resumed_at: int


class _Part:
    """A table that is being written, and up to where it is complete."""

    def __init__(self, out: Path, job: str, rank: int = 0) -> None:
        self.out = out
        stem = f"{out.name}.part{rank or ''}"
        self.table = out.with_name(stem)
        self.skipped = out.with_name(f"{stem}.quarantine")
        self.state = out.with_name(f"{stem}.json")
        self.job = job

    def begin(self, start: int) -> dict[str, int]:
        """The last saved state if it belongs to the same job, otherwise the initial state."""
        fresh = {"done": start, "images": 0, "quarantined": 0, "table": 0, "skipped": 0}
        state = fresh
        if self.state.is_file():
            try:
                found = read_json(self.state)
            except ValueError:
                found = None
            if isinstance(found, dict) and found.get("job") == self.job and self._sizes_fit(found):
                state = {name: int(found[name]) for name in fresh}
        for path, size in ((self.table, state["table"]), (self.skipped, state["skipped"])):
            with path.open("ab") as file:
                file.truncate(size)
        return state

    def _sizes_fit(self, found: dict[str, Any]) -> bool:
        try:
            return bool(self.table.stat().st_size >= found["table"] and self.skipped.stat().st_size >= found["skipped"])
        except (OSError, KeyError, TypeError):
            return False

    def remove(self) -> None:
        for path in (self.table, self.skipped, self.state):
            path.unlink(missing_ok=True)


def predict(
    model: Model, source: Source, out: Path, options: TableOptions, identity: str, progress: Progress
) -> Predicted:
    """Write the table of a source's images to ``out`` (.csv or .parquet); ``identity`` identifies the model.

    Each process of the current group writes a part, of whole chunks, so that the prediction for an image does not
    depend on their number; the first one joins the parts.
    """
    check_out(out)
    group = current()
    options.limits.check(model)
    job = [identity, source.identity, options.embedding, *astuple(options.limits), model.cut_at, group.size]
    parts = [_Part(out, json.dumps(job), rank) for rank in range(group.size)]
    own = group.part(len(source), CHUNK)
    with errors_name(out):
        state = _fill(model, source, parts[group.rank], options, own, progress)
    found = [state["images"], state["quarantined"], state.pop("resumed") - own.start]
    images, quarantined, resumed = group.gather(torch.tensor([found]), group.size).sum(0).tolist()
    skipped: Counter[str] = Counter()
    if group.rank == 0:
        with errors_name(out):
            _join(parts)
            _finish(parts[0], quarantined)
        # From the list: they may have been skipped by several processes, and before an interruption.
        skipped.update(row["kind"] for row in read_csv(_quarantine(out)))
    return Predicted(images, skipped, _quarantine(out), resumed)


class Job(NamedTuple):
    """A prediction as plain data, for the other processes of a group."""

    run: str
    n_clusters: int | None
    source: str
    split: Literal["train", "test"]
    data_dir: str | None
    out: str
    identity: str


def predict_as_worker(job: list[Any], options: dict[str, Any]) -> None:
    """Write the share of a worker."""
    wanted = Job(*job)
    model = load_model(Path(wanted.run), wanted.n_clusters)
    data_dir = None if wanted.data_dir is None else Path(wanted.data_dir)
    source = Source.open(wanted.source, model.shape, wanted.split, data_dir, model.input)
    given = TableOptions(**(options | {"limits": Limits(**options["limits"])}))
    predict(model, source, Path(wanted.out), given, wanted.identity, lambda done, total: None)


def model_identity(path: Path) -> str:
    """A hash that identifies a model and its annotations."""
    files = [path] if path.is_file() else [RunFolder(path).model, RunFolder(path).annotations]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes() if file.is_file() else b"-")
    return digest.hexdigest()


def _fill(
    model: Model, source: Source, part: _Part, options: TableOptions, own: range, progress: Progress
) -> dict[str, int]:
    """Write the rows of some images, from where the last call ended."""
    state = part.begin(own.start)
    state["resumed"] = state["done"]
    first = "path" if source.listing is not None else "image"
    with (
        part.table.open("a", encoding="utf-8", newline="", errors="surrogateescape") as table,
        part.skipped.open("a", encoding="utf-8", newline="", errors="surrogateescape") as skipped,
    ):
        writer, quarantine = csv.writer(table, lineterminator="\n"), csv.writer(skipped, lineterminator="\n")
        if state["table"] == 0:
            width = model.active.network.head.in_features
            writer.writerow([*columns(first, model), *(f"e{k}" for k in range(width if options.embedding else 0))])
        due = time.monotonic() + SAVE_SECONDS
        for chunk in source.chunks(range(state["done"], own.stop), options.threads):
            seen = 0
            for found in model.predict(chunk.images):
                names = chunk.names[seen : seen + len(found.cluster)]
                writer.writerows(_rows(found, names, model, options))
                seen += len(names)
            quarantine.writerows(chunk.quarantined)
            state["done"] = chunk.stop
            state["images"] += seen
            state["quarantined"] += len(chunk.quarantined)
            if time.monotonic() >= due:
                for name, file in (("table", table), ("skipped", skipped)):
                    file.flush()
                    os.fsync(file.fileno())
                    state[name] = os.fstat(file.fileno()).st_size
                write_json(part.state, {"job": part.job, **state})
                due = time.monotonic() + SAVE_SECONDS
            progress(chunk.stop - own.start, len(own))
    return state


def _join(parts: list[_Part]) -> None:
    """Put the tables of all parts behind that of the first, without their headings."""
    first, *others = parts
    for column in ("table", "skipped"):
        with getattr(first, column).open("ab") as whole:
            for other in others:
                with getattr(other, column).open("rb") as file:
                    if column == "table":
                        file.readline()
                    shutil.copyfileobj(file, whole)
    for other in others:
        other.remove()


def check_out(out: Path) -> None:
    """Refuse an output that cannot be written before anything is computed."""
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise ValueError(f"--out is {out}; its name must end in .csv or .parquet")
    check_file_target(out, "--out")
    if out.suffix.lower() == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise ValueError(
                f"--out is {out}, and Parquet needs pyarrow: pip install 'converge-to-surprise[tables]'"
            ) from None


def _rows(found: Prediction, names: Any, model: Model, options: TableOptions) -> list[list[Any]]:
    table = list(rows(found._replace(cluster=options.limits.clusters(found)), names, model))
    if options.embedding:
        for row, vector in zip(table, found.embedding.tolist(), strict=True):
            row += [f"{value:.6g}" for value in vector]
    return table


def _quarantine(out: Path) -> Path:
    return out.with_name(out.stem + ".quarantine.csv")


def _finish(part: _Part, quarantined: int) -> None:
    """Write the list of skipped files, then the table: as long as it is missing, the same command can be repeated."""
    quarantine = _quarantine(part.out)
    if quarantined:
        write_atomically(quarantine, [",".join(QUARANTINE_COLUMNS).encode() + b"\n", part.skipped.read_bytes()])
    if part.out.suffix.lower() == ".parquet":
        _to_parquet(part.table, part.out)
    else:
        os.replace(part.table, part.out)
    if not quarantined:
        quarantine.unlink(missing_ok=True)
    part.remove()
    flush_folder(part.out.parent)


def _to_parquet(table: Path, out: Path) -> None:
    """A CSV table as Parquet, block by block."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    temporary = out.with_name(out.name + ".part.parquet")
    names = {name: pyarrow.string() for name in ("path", "name", "leaf")} | {"views_agree": pyarrow.bool_()}
    options = pyarrow.csv.ConvertOptions(column_types=names, true_values=["1"], false_values=["0"])
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    try:
        with (
            pyarrow.csv.open_csv(table, convert_options=options, parse_options=parse) as reader,
            pyarrow.parquet.ParquetWriter(temporary, reader.schema) as writer,
        ):
            for batch in reader:
                writer.write_batch(batch)
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)
