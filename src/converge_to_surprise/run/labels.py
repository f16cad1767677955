"""The table of predictions: one row per image."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from .files import write_atomically
from .model import Prediction

COLUMNS = ("image", "cluster", "confidence", "second", "views_agree")


def rows(prediction: Prediction, images: Sequence[str | int]) -> Iterator[list[Any]]:
    """One row for each image: what it is called, then the columns after it."""
    columns = (
        images,
        prediction.cluster.tolist(),
        [f"{value:.6f}" for value in prediction.confidence.tolist()],
        prediction.second.tolist(),
        [int(agreed) for agreed in prediction.agreed.tolist()],
    )
    for row in zip(*columns, strict=True):
        yield list(row)


def write_labels(path: Path, prediction: Prediction, parts: Tensor | None, names: Sequence[str] | None) -> None:
    """The clusters of all training images; with their un-merged parts if there is a merge tree."""
    images: Sequence[str | int] = names if names is not None else range(len(prediction.cluster))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, "part"])
    finest = [-1] * len(images) if parts is None else parts.tolist()
    writer.writerows([*row, part] for row, part in zip(rows(prediction, images), finest, strict=True))
    write_atomically(path, text.getvalue().encode("utf-8", "surrogateescape"))
