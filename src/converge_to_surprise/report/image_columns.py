"""The page's data on single images: packed columns, thumbnails, counts; within a budget of bytes."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..data.store import ImageStore
from . import sprites
from .image_data import ImageData, Integers
from .projection import Map

SMALL_SET, SMALL_PAGE = 10_000, 9.3e6
"""Images, and the bytes that a page of so many or fewer may have ..."""
LARGE_SET, LARGE_PAGE = 70_000, 24e6
"""... and of so many or more."""
FIXED = 400_000
"""Bytes of program, style, curves and tables, about."""
PACKED = 32
"""Bytes of the packed columns of one image."""


def budget(images: int) -> float:
    """Bytes that a page may have."""
    return float(np.interp(images, [SMALL_SET, LARGE_SET], [SMALL_PAGE, LARGE_PAGE]))


def columns(
    data: ImageData, store: ImageStore, place: Map, wanted: Integers, room: float | None = None
) -> tuple[dict[str, Any], Integers]:
    """The images that fit into the page, sorted by cluster and confidence, and their positions.

    ``wanted``: images that must be among them. (n,)
    """
    total = len(data.cluster)
    room = budget(total) - FIXED if room is None else room
    each = PACKED + (0 if store.names is None else _name_bytes(store.names))
    form, thumbnail = sprites.choose_form(store.images, room / total - each)
    fitting = max(1, min(total, int(room / (each + thumbnail))))
    shown = sprites.spread(data.cluster, data.confidence, fitting)
    if fitting < total:
        shown = np.union1d(shown, wanted)
        shown = shown[np.lexsort((-data.confidence[shown], data.cluster[shown]))]
    sheets = sprites.encode(store.images[torch.from_numpy(shown)], form)
    return {
        "total": total,
        "shown": len(shown),
        "width": form.width,
        "height": form.height,
        "columns": sprites.COLUMNS,
        "perSheet": sprites.PER_SHEET,
        "sheets": sheets.sheets,
        "index": packed(shown, np.uint32),
        "cluster": packed(data.cluster[shown], np.int16),
        "confidence": packed(np.round(data.confidence[shown] * 10_000), np.uint16),
        "second": packed(data.second[shown], np.int16),
        "secondConfidence": packed(np.round(data.second_confidence[shown] * 10_000), np.uint16),
        "viewsAgree": packed(data.views_agree[shown], np.uint8),
        "subcluster": packed(data.subcluster[shown], np.int16),
        "class": None if store.labels is None else packed(store.labels[shown], np.int32),
        "x": packed(np.round(place.points[shown, 0] * 65_535), np.uint16),
        "y": packed(np.round(place.points[shown, 1] * 65_535), np.uint16),
        "names": None if store.names is None else [printable(store.names[i]) for i in shown.tolist()],
    }, shown


def packed(values: npt.NDArray[Any], kind: Any) -> str:
    """Little-endian numbers in base64."""
    return base64.b64encode(values.astype(np.dtype(kind).newbyteorder("<")).tobytes()).decode()


def printable(name: str) -> str:
    """A file's name as text: bytes that are no text become question marks."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _name_bytes(names: Any) -> float:
    sample = [names[i] for i in range(0, len(names), max(1, len(names) // 1_000))]
    return sum(len(json.dumps(printable(name))) + 1 for name in sample) / len(sample)


def cells(data: ImageData, classes: Integers | None) -> list[list[float]]:
    """How many images each cluster, subcluster and class have in common, and the sum of their confidence.

    Everything that the page counts is a sum over these rows, whichever images it shows.
    """
    known = np.full(len(data.cluster), -1) if classes is None else classes
    rows, inverse = np.unique(np.stack([data.cluster, data.subcluster, known], 1), axis=0, return_inverse=True)
    counts = np.bincount(inverse.reshape(-1), minlength=len(rows))
    sums = np.bincount(inverse.reshape(-1), weights=data.confidence, minlength=len(rows))
    return [
        [*map(int, row), int(count), round(float(total), 3)]
        for row, count, total in zip(rows, counts, sums, strict=True)
    ]
