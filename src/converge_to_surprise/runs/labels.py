"""The table of predictions: one row per image."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ..config.storage import write_atomically
from ..data.image_options import SkippedFile
from ..model.cluster_model import Model, Prediction
from ..model.inference import Outputs

ROWS = 10_000
"""Images whose rows are held as text at a time."""


def columns(first: str, model: Model) -> list[str]:
    """The names of the columns; ``first`` is what an image is called by: path or image (its number)."""
    named = [] if model.names is None else ["name"]
    return [first, "cluster", *named, "confidence", "second", "second_confidence", "views_agree"]


def rows(prediction: Prediction, images: Sequence[str | int], model: Model) -> Iterator[list[Any]]:
    """One row for each image."""
    numbers = prediction.cluster.tolist()
    names = model.shown_names
    called = [] if model.names is None else [["noise" if k < 0 else names[k] for k in numbers]]
    found = (
        images,
        numbers,
        *called,
        [f"{value:.6f}" for value in prediction.confidence.tolist()],
        prediction.second.tolist(),
        [f"{value:.6f}" for value in prediction.second_confidence.tolist()],
        [int(agreed) for agreed in prediction.agreed.tolist()],
    )
    for row in zip(*found, strict=True):
        yield list(row)


def write_labels(path: Path, reading: Outputs, model: Model, parts: Tensor | None, names: Sequence[str] | None) -> None:
    """The clusters of all training images; with their un-merged parts if there is a merge tree."""
    images: Sequence[str | int] = names if names is not None else range(len(reading.output))

    def pieces() -> Iterator[bytes]:
        yield _encoded([[*columns("image" if names is None else "path", model), "part"]])
        for start in range(0, len(images), ROWS):
            some = slice(start, start + ROWS)
            found = rows(model.name(Outputs(*(column[some] for column in reading))), images[some], model)
            finest = [-1] * len(images[some]) if parts is None else parts[some].tolist()
            yield _encoded([*row, part] for row, part in zip(found, finest, strict=True))

    write_atomically(path, pieces())


def write_quarantine(path: Path, quarantine: Sequence[SkippedFile]) -> None:
    """The files that were skipped, and why."""
    write_atomically(path, _encoded([["file", "reason"], *quarantine]))


def _encoded(lines: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().encode("utf-8", "surrogateescape")
