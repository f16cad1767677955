"""``cts predict``: the cluster of every image as a table, written as it grows, continued where it was broken off.

Rows go to ``OUT.part`` and, every few seconds, ``OUT.part.json`` says up to where they are good. Whoever begins again
cuts the table there and goes on. At the end the table is renamed, or turned into Parquet.
"""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..run.files import flush_folder, read_json, write_json
from ..run.labels import columns, rows
from ..run.model import Model, Prediction
from .images import Source

SAVE_SECONDS = 2.0
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Wishes:
    """How the table shall be made."""

    embedding: bool = False
    min_confidence: float = 0.0
    threads: int = 0


@dataclass(frozen=True)
class Predicted:
    """What was written."""

    images: int
    quarantined: int
    quarantine: Path
    resumed_at: int


class _Part:
    """A table that grows, and up to where it is good."""

    def __init__(self, out: Path, job: str) -> None:
        self.out = out
        self.table = out.with_name(out.name + ".part")
        self.aside = out.with_name(out.name + ".part.quarantine")
        self.state = out.with_name(out.name + ".part.json")
        self.job = job

    def begin(self) -> dict[str, int]:
        """Where to go on: what the last good state says, if it is of the same job; else from the start."""
        fresh = {"done": 0, "images": 0, "quarantined": 0, "table": 0, "aside": 0}
        state = fresh
        if self.state.is_file():
            try:
                found = read_json(self.state)
            except ValueError:
                found = None
            if isinstance(found, dict) and found.get("job") == self.job and self._sizes_fit(found):
                state = {name: int(found[name]) for name in fresh}
        for path, size in ((self.table, state["table"]), (self.aside, state["aside"])):
            with path.open("ab") as file:
                file.truncate(size)
        return state

    def _sizes_fit(self, found: dict[str, Any]) -> bool:
        try:
            return bool(self.table.stat().st_size >= found["table"] and self.aside.stat().st_size >= found["aside"])
        except (OSError, KeyError, TypeError):
            return False

    def remove(self) -> None:
        for path in (self.table, self.aside, self.state):
            path.unlink(missing_ok=True)


def predict(model: Model, source: Source, out: Path, wishes: Wishes, identity: str, progress: Progress) -> Predicted:
    """Write the table of a source's images to ``out`` (.csv or .parquet); ``identity`` tells the model from others."""
    check_out(out)
    part = _Part(out, json.dumps([identity, source.identity, wishes.embedding, wishes.min_confidence, model.level]))
    state = part.begin()
    resumed_at = state["done"]
    first = "path" if source.listing is not None else "image"
    with (
        part.table.open("a", encoding="utf-8", newline="", errors="surrogateescape") as table,
        part.aside.open("a", encoding="utf-8", newline="", errors="surrogateescape") as aside,
    ):
        writer, quarantine = csv.writer(table, lineterminator="\n"), csv.writer(aside, lineterminator="\n")
        if state["table"] == 0:
            width = model.labeller.network.head.in_features
            writer.writerow([*columns(first, model), *(f"e{k}" for k in range(width if wishes.embedding else 0))])
        due = time.monotonic() + SAVE_SECONDS
        for chunk in source.chunks(state["done"], wishes.threads):
            seen = 0
            for found in model.predict(chunk.images):
                names = chunk.names[seen : seen + len(found.cluster)]
                writer.writerows(_rows(found, names, model, wishes))
                seen += len(names)
            quarantine.writerows(chunk.quarantined)
            state["done"] = chunk.stop
            state["images"] += seen
            state["quarantined"] += len(chunk.quarantined)
            if time.monotonic() >= due:
                for name, file in (("table", table), ("aside", aside)):
                    file.flush()
                    os.fsync(file.fileno())
                    state[name] = os.fstat(file.fileno()).st_size
                write_json(part.state, {"job": part.job, **state})
                due = time.monotonic() + SAVE_SECONDS
            progress(chunk.stop, len(source))
    return _finish(part, state, resumed_at)


def check_out(out: Path) -> None:
    """Refuse an output that cannot be written before anything is computed."""
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise ValueError(f"--out is {out}; its name must end in .csv or .parquet")
    if not out.parent.is_dir():
        raise ValueError(f"--out is {out}, but there is no folder {out.parent}")
    if out.suffix.lower() == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise ValueError(
                f"--out is {out}, and Parquet needs pyarrow: pip install 'converge-to-surprise[tables]'"
            ) from None


def _rows(found: Prediction, names: Any, model: Model, wishes: Wishes) -> list[list[Any]]:
    sure = found.confidence >= wishes.min_confidence
    found = found._replace(cluster=torch.where(sure, found.cluster, -1))
    table = list(rows(found, names, model))
    if wishes.embedding:
        for row, vector in zip(table, found.embedding.tolist(), strict=True):
            row += [f"{value:.6g}" for value in vector]
    return table


def _finish(part: _Part, state: dict[str, int], resumed_at: int) -> Predicted:
    if part.out.suffix.lower() == ".parquet":
        _to_parquet(part.table, part.out)
    else:
        os.replace(part.table, part.out)
    quarantine = part.out.with_name(part.out.stem + ".quarantine.csv")
    if state["quarantined"]:
        header = b"file,reason\n"
        quarantine.write_bytes(header + part.aside.read_bytes())
    else:
        quarantine.unlink(missing_ok=True)
    part.remove()
    flush_folder(part.out.parent)
    return Predicted(state["images"], state["quarantined"], quarantine, resumed_at)


def _to_parquet(table: Path, out: Path) -> None:
    """A CSV table as Parquet, block by block."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    temporary = out.with_name(out.name + ".part.parquet")
    names = {"path": pyarrow.string(), "name": pyarrow.string(), "views_agree": pyarrow.bool_()}
    options = pyarrow.csv.ConvertOptions(column_types=names, true_values=["1"], false_values=["0"])
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    with (
        pyarrow.csv.open_csv(table, convert_options=options, parse_options=parse) as reader,
        pyarrow.parquet.ParquetWriter(temporary, reader.schema) as writer,
    ):
        for batch in reader:
            writer.write_batch(batch)
    os.replace(temporary, out)
