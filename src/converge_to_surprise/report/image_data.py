"""The clusters of every image as the page shows them, from the run folder or computed for other images."""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..data.store import ImageStore
from ..model.assessment import Assessment, evaluate
from ..model.cluster_model import Model
from ..model.inference import Outputs
from ..model.similarity import SimilarityIndex
from ..runs.labels import KEEP, SavedOutputs
from ..search.restarts import Fitted
from . import sprites
from .projection import Map
from .subcluster_tree import leaf_places

Integers = npt.NDArray[np.int64]


class ImageData(NamedTuple):
    """Per image: cluster numbers without annotations, confidence, embedding. (N, ...) each"""

    cluster: Integers
    confidence: npt.NDArray[np.float32]
    second: Integers
    """The next best cluster; -1 if there is no other."""
    second_confidence: npt.NDArray[np.float32]
    views_agree: npt.NDArray[np.bool_]
    subcluster: Integers
    """The winning output before merging; -1 without a merge tree."""
    embedding: npt.NDArray[np.float16]
    """(N, D)"""
    outputs: Outputs
    """The labels of both views; probabilities and features have no columns."""
    novelty: npt.NDArray[np.float32] | None
    """None for a run that is not finished. (N,)"""
    assessment: Assessment
    leaf: Integers | None = None
    """The leaf of each image in the tree of sub-clusters; None without one. (N,)"""


def label_images(model: Model, images: Tensor) -> SavedOutputs:
    """Label uint8 images (N, C, H, W) that a run does not hold the outputs of."""
    subclusters = None
    if model.merge_result is not None and model.unmerged is not None:
        finest = model.cut(model.merge_result.max_clusters)
        subclusters = finest.run_all(images) if finest.active is model.unmerged else None
    return SavedOutputs.of(Fitted(model, model.run_all(images, KEEP), subclusters))


def image_data(model: Model, saved: SavedOutputs, classes: Integers | None) -> ImageData:
    """What the page shows of every image."""
    empty = saved.top_probabilities[:, :0]
    outputs = Outputs(saved.view_i, saved.view_j, saved.winner, empty, empty, saved.novelty)
    assessment = evaluate(model, outputs, classes, both=True)
    number = cluster_numbers(assessment)
    tops, values = saved.top_outputs.numpy(), saved.top_probabilities.numpy()
    several = tops.shape[1] > 1
    return ImageData(
        cluster=number[saved.winner.numpy()],
        confidence=values[:, 0],
        second=number[tops[:, 1]] if several else np.full(len(tops), -1, dtype=np.int64),
        second_confidence=values[:, 1] if several else np.zeros(len(tops), dtype=np.float32),
        views_agree=((saved.view_i == saved.winner) & (saved.view_j == saved.winner)).numpy(),
        subcluster=saved.subcluster.numpy(),
        embedding=saved.features.numpy(),
        outputs=outputs,
        novelty=None if bool(saved.novelty.isnan().any()) else saved.novelty.numpy(),
        assessment=assessment,
        leaf=leaf_places(model, saved),
    )


def cluster_numbers(assessment: Assessment) -> Integers:
    """The cluster number of every output."""
    return np.argsort(assessment.order)


SMALL_SET, SMALL_PAGE = 10_000, 9.3e6
"""Images, and the bytes that a page of so many or fewer may have ..."""
LARGE_SET, LARGE_PAGE = 70_000, 24e6
"""... and of so many or more."""
FIXED = 400_000
"""Bytes of program, style, curves and tables, about."""
PACKED = 78
"""Bytes of the packed columns of one image, of which 43 are for the search for similar images."""


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
    pictures = store.shown
    form, thumbnail = sprites.choose_form(pictures, room / total - each)
    fitting = max(1, min(total, int(room / (each + thumbnail))))
    shown = sprites.spread(data.cluster, data.confidence, fitting)
    if fitting < total:
        shown = np.union1d(shown, wanted)
        shown = shown[np.lexsort((-data.confidence[shown], data.cluster[shown]))]
    codes = SimilarityIndex.of(torch.from_numpy(data.embedding[shown])).codes()
    return {
        "total": total,
        "shown": len(shown),
        "width": form.width,
        "height": form.height,
        "columns": sprites.COLUMNS,
        "perSheet": sprites.PER_SHEET,
        "sheets": sprites.encode(pictures[torch.from_numpy(shown)], form),
        "index": packed(shown, np.uint32),
        "cluster": packed(data.cluster[shown], np.int16),
        "confidence": packed(np.round(data.confidence[shown] * 10_000), np.uint16),
        "novelty": None if data.novelty is None else packed(np.round(data.novelty[shown] * 10_000), np.uint16),
        "second": packed(data.second[shown], np.int16),
        "secondConfidence": packed(np.round(data.second_confidence[shown] * 10_000), np.uint16),
        "viewsAgree": packed(data.views_agree[shown], np.uint8),
        "subcluster": packed(data.subcluster[shown], np.int16),
        "leaf": None if data.leaf is None else packed(data.leaf[shown], np.int16),
        "class": None if store.labels is None else packed(store.labels[shown], np.int32),
        "x": packed(np.round(place.points[shown, 0] * 65_535), np.uint16),
        "y": packed(np.round(place.points[shown, 1] * 65_535), np.uint16),
        "codes": packed(codes, np.int8),
        "codeSize": codes.shape[1],
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
