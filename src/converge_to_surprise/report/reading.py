"""What a run's model says of every image, and of the parts that its clusters were merged from."""

from __future__ import annotations

import csv
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..model.cluster_model import Model
from ..model.inference import Outputs
from ..runs.folder import RunFolder
from ..runs.result import Assessment, judge

Numbers = npt.NDArray[np.int64]


class Look(NamedTuple):
    """Images as the model sees them, in the user's numbers, before a person changed anything."""

    cluster: Numbers
    confidence: npt.NDArray[np.float32]
    second: Numbers
    """The next best cluster; -1 if there is no other."""
    second_confidence: npt.NDArray[np.float32]
    agreed: npt.NDArray[np.bool_]
    part: Numbers
    """The un-merged output; -1 without a merge tree."""
    embedding: npt.NDArray[np.float16]
    """(N, D)"""
    reading: Outputs
    """The outputs of both views; without probabilities and features, which are large."""
    assessment: Assessment


def look(model: Model, images: Tensor, classes: Numbers | None, part: Numbers | None) -> Look:
    """Read uint8 images (N, C, H, W). ``part`` is not computed again if it is known."""
    pieces, firsts, seen = [], [], 0
    # Of its final size at once: collected parts would be held twice when they are joined.
    embedding = np.empty((len(images), model.labeler.network.head.in_features), dtype=np.float16)
    for reading in model.read(images):
        top = reading.probabilities.topk(min(2, reading.probabilities.shape[1]))
        firsts.append((top.values, top.indices))
        embedding[seen : seen + len(reading.output)] = reading.features.half().numpy()
        seen += len(reading.output)
        pieces.append(reading._replace(probabilities=reading.probabilities[:, :0], features=reading.features[:, :0]))
    whole = Outputs(*(torch.cat(column) for column in zip(*pieces, strict=True)))
    values, outputs = torch.cat([v for v, _ in firsts]).numpy(), torch.cat([i for _, i in firsts]).numpy()
    assessment = judge(model, whole, classes, both=True)
    number = numbers(assessment)
    several = outputs.shape[1] > 1
    none = np.full(len(outputs), -1, dtype=np.int64)
    return Look(
        cluster=number[whole.output.numpy()],
        confidence=values[:, 0],
        second=number[outputs[:, 1]] if several else none,
        second_confidence=values[:, 1] if several else np.zeros(len(outputs), dtype=np.float32),
        agreed=((whole.view_i == whole.output) & (whole.view_j == whole.output)).numpy(),
        part=part if part is not None else _parts(model, images, none),
        embedding=embedding,
        reading=whole,
        assessment=assessment,
    )


def numbers(assessment: Assessment) -> Numbers:
    """The user's number of every output."""
    number = np.empty(len(assessment.order), dtype=np.int64)
    number[assessment.order] = np.arange(len(assessment.order))
    return number


def _parts(model: Model, images: Tensor, none: Numbers) -> Numbers:
    if model.merged is None or model.unmerged is None:
        return none
    finest = model.cut(model.merged.finest)
    if finest.labeler is not model.unmerged:  # nothing was merged
        return none
    return finest.read_whole(images).output.numpy()


def saved_subclusters(run: RunFolder, images: int) -> Numbers | None:
    """The parts of a finished run's own images, from its table of labels; None if they are not there."""
    if not run.labels.is_file():
        return None
    with run.labels.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        rows = csv.DictReader(file)
        if "part" not in (rows.fieldnames or ()):
            return None
        try:
            found = np.array([int(row["part"]) for row in rows], dtype=np.int64)
        except (ValueError, TypeError, OverflowError, csv.Error):  # not as it was written: they are worked out again
            return None
    return found if len(found) == images else None
