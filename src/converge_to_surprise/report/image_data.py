"""The clusters of every image as the page shows them, from the run folder or computed for other images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..model.assessment import Assessment, evaluate
from ..model.cluster_model import Model
from ..model.inference import Outputs
from ..runs.labels import SavedOutputs

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
    assessment: Assessment


def label_images(model: Model, images: Tensor) -> SavedOutputs:
    """Label uint8 images (N, C, H, W) that a run does not hold the outputs of."""
    tops, pieces, done = [], [], 0
    # Allocated once: joining a list of chunks would need twice the memory.
    features = torch.empty((len(images), model.active.network.head.in_features), dtype=torch.float16)
    for outputs in model.run(images):
        tops.append(outputs.probabilities.topk(min(2, outputs.probabilities.shape[1])))
        features[done : done + len(outputs.winner)] = outputs.features.half()
        done += len(outputs.winner)
        pieces.append((outputs.view_i, outputs.view_j, outputs.winner))
    view_i, view_j, winner = (torch.cat(side) for side in zip(*pieces, strict=True))
    top_outputs, top_values = torch.cat([top.indices for top in tops]), torch.cat([top.values for top in tops])
    return SavedOutputs(view_i, view_j, winner, top_outputs, top_values, _subclusters(model, images), features)


def _subclusters(model: Model, images: Tensor) -> Tensor:
    none = torch.full((len(images),), -1)
    if model.merge_result is None or model.unmerged is None:
        return none
    finest = model.cut(model.merge_result.max_clusters)
    return none if finest.active is not model.unmerged else finest.run_all(images).winner


def image_data(model: Model, saved: SavedOutputs, classes: Integers | None) -> ImageData:
    """What the page shows of every image."""
    empty = saved.top_probabilities[:, :0]
    outputs = Outputs(saved.view_i, saved.view_j, saved.winner, empty, empty)
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
        assessment=assessment,
    )


def cluster_numbers(assessment: Assessment) -> Integers:
    """The cluster number of every output."""
    number = np.empty(len(assessment.order), dtype=np.int64)
    number[assessment.order] = np.arange(len(assessment.order))
    return number
