"""Tables of predictions, one row per image, and the outputs from which the page is made."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from ..config.storage import csv_bytes, read_csv, write_atomically
from ..data.skipped import SkippedFile
from ..model.cluster_model import Model, Prediction
from ..model.exemplars import Choices, Exemplar, find_exemplars
from ..model.hierarchy import path_text
from ..model.inference import Outputs
from ..search.restarts import Fitted

ROWS = 10_000
"""Images whose rows are held as text at a time."""
KEEP = ("probabilities", "features")
"""What a run keeps of the outputs for its training images: the table of labels and the page are made from it."""
QUARANTINE_COLUMNS = ("file", "reason", "kind")


def columns(first: str, model: Model) -> list[str]:
    """The column names; ``first`` identifies an image: "path", or "image" for its position."""
    named = [] if model.annotations is None else ["name"]
    leaf = ["leaf", "leaf_confidence"] if model.hierarchy is not None else []
    return [first, "cluster", *named, *leaf, "confidence", "novelty", "second", "second_confidence", "views_agree"]


def cluster_name(model: Model, number: int) -> str:
    """A cluster as a person knows it: its number, with its name if it was given one, or noise."""
    marks = model.annotations
    noise = number < 0 or (marks is not None and number < len(marks.noise) and marks.noise[number])
    name = "noise" if noise else model.cluster_names[number]
    return f"{number}" if name == str(number) else f"{number} ({name})"


def shown(value: float) -> str:
    """A confidence or novelty as a cell of a table; one that is not known is empty."""
    return "" if math.isnan(value) else f"{value:.6f}"


def rows(prediction: Prediction, images: Sequence[str | int], model: Model) -> Iterator[list[Any]]:
    """One row for each image."""
    numbers = prediction.cluster.tolist()
    names = model.cluster_names
    named = [] if model.annotations is None else [["noise" if k < 0 else names[k] for k in numbers]]
    leaves: list[Any] = []
    if model.hierarchy is not None:
        leaves = [leaf_texts(prediction, model), map(shown, prediction.leaf_confidence.tolist())]
    found = (
        images,
        numbers,
        *named,
        *leaves,
        map(shown, prediction.confidence.tolist()),
        map(shown, prediction.novelty.tolist()),
        prediction.second.tolist(),
        map(shown, prediction.second_confidence.tolist()),
        [int(agree) for agree in prediction.views_agree.tolist()],
    )
    for row in zip(*found, strict=True):
        yield list(row)


def leaf_texts(prediction: Prediction, model: Model) -> list[str]:
    """The path of every image's leaf, as in 3/1; -1 for images that are in no cluster."""
    texts = [path_text(path) for path in model.paths]
    pairs = zip(prediction.cluster.tolist(), prediction.leaf.tolist(), strict=True)
    return [texts[leaf] if cluster >= 0 else "-1" for cluster, leaf in pairs]


def write_labels(path: Path, fitted: Fitted, names: Sequence[str] | None) -> None:
    """The clusters of all training images, with their subclusters if there is a merge tree."""
    model, outputs, unmerged = fitted
    images: Sequence[str | int] = names if names is not None else range(len(outputs.winner))

    def pieces() -> Iterator[bytes]:
        yield csv_bytes([[*columns("image" if names is None else "path", model), "subcluster"]])
        for some, prediction in _predictions(fitted):
            found = rows(prediction, images[some], model)
            finest = [-1] * len(images[some]) if unmerged is None else unmerged.winner[some].tolist()
            yield csv_bytes([*row, subcluster] for row, subcluster in zip(found, finest, strict=True))

    write_atomically(path, pieces())


def _predictions(fitted: Fitted) -> Iterator[tuple[slice, Prediction]]:
    """The predictions for the training images, ``ROWS`` of them at a time."""
    for start in range(0, len(fitted.outputs.winner), ROWS):
        some = slice(start, start + ROWS)
        yield some, fitted.model.interpret(Outputs(*(column[some] for column in fitted.outputs)))


def write_exemplars(path: Path, fitted: Fitted, names: Sequence[str] | None) -> None:
    """Typical training images of every cluster and ones at its boundary."""
    parts = [Choices.of(prediction) for _, prediction in _predictions(fitted)]
    choices = Choices(*(torch.cat(column) for column in zip(*parts, strict=True)))
    lines = [
        (
            *(one.cluster, one.kind, one.rank, one.image if names is None else names[one.image]),
            *(shown(one.confidence), one.second, shown(one.second_confidence)),
        )
        for one in find_exemplars(choices)
    ]
    header = [name if name != "image" or names is None else "path" for name in Exemplar._fields]
    write_atomically(path, csv_bytes([header, *lines]))


class SavedOutputs(NamedTuple):
    """The outputs of a run's final network for its training images, as the page needs them."""

    view_i: Tensor
    """(N,)"""
    view_j: Tensor
    """(N,)"""
    winner: Tensor
    """(N,)"""
    top_outputs: Tensor
    """The two most probable outputs, or the only one. (N, 2)"""
    top_probabilities: Tensor
    """(N, 2)"""
    subcluster: Tensor
    """The winning output before merging; -1 without a merge tree. (N,)"""
    features: Tensor
    """float16 (N, D)"""
    novelty: Tensor
    """NaN where it is not known. (N,)"""

    @classmethod
    def of(cls, fitted: Fitted) -> SavedOutputs:
        """The outputs of a search that kept probabilities and features."""
        outputs = fitted.outputs
        top = outputs.probabilities.topk(min(2, outputs.probabilities.shape[1]))
        none = torch.full_like(outputs.winner, -1)
        subcluster = none if fitted.unmerged is None else fitted.unmerged.winner
        sides = (outputs.view_i, outputs.view_j, outputs.winner)
        return cls(*sides, top.indices, top.values, subcluster, outputs.features, outputs.novelty)

    def save(self, path: Path) -> None:
        """Write the outputs atomically."""
        columns = self._asdict().items()
        _save(path, {name: value.to(torch.int16) if value.dtype == torch.int64 else value for name, value in columns})

    @classmethod
    def load(cls, path: Path, images: int, n_outputs: int) -> SavedOutputs | None:
        """The outputs in a file for so many images and outputs; None if it is not there, damaged or of another run."""
        try:
            outputs = cls(**safetensors.torch.load_file(path))
        except (OSError, SafetensorError, TypeError, ValueError, RuntimeError):
            return None
        labels = (outputs.view_i, outputs.view_j, outputs.winner, outputs.subcluster)
        sound = (
            all(value.ndim > 0 and len(value) == images for value in outputs)
            and all(value.dtype == torch.int16 for value in (*labels, outputs.top_outputs))
            and all(value.ndim == 1 for value in (*labels, outputs.novelty))
            and all(value.ndim == 2 for value in (outputs.top_outputs, outputs.top_probabilities, outputs.features))
            and outputs.top_outputs.shape == outputs.top_probabilities.shape
            and all(_within(value, 0, n_outputs - 1) for value in (*labels[:3], outputs.top_outputs))
            and _within(outputs.subcluster, -1, 2**15 - 1)
            and _within(outputs.top_probabilities, 0, 1)
            and bool(outputs.features.isfinite().all())
            and (bool(outputs.novelty.isnan().all()) or _within(outputs.novelty, 0, 1))
        )
        return cls(*(v if v.is_floating_point() else v.long() for v in outputs)) if sound else None


class TrainingOutputs(NamedTuple):
    """The outputs of a run's networks for its training images, as the estimator needs them; without features."""

    final: Outputs
    unmerged: Outputs | None
    """Before merging, with probabilities to three decimals; None without a merge tree."""

    def save(self, path: Path) -> None:
        """Write the outputs atomically."""
        tensors: dict[str, Tensor] = {}
        for role, outputs in self._asdict().items():
            if outputs is not None:
                tensors |= {f"{role}.{name}": getattr(outputs, name).to(torch.int16) for name in _SIDES}
                chances = outputs.probabilities
                tensors[f"{role}.probabilities"] = chances.half() if role == "unmerged" else chances
                tensors[f"{role}.novelty"] = outputs.novelty
        _save(path, tensors)

    @classmethod
    def load(cls, path: Path, images: int, model: Model) -> TrainingOutputs | None:
        """The outputs in a file for so many images; None if it is not there, damaged or of another run."""
        try:
            tensors = safetensors.torch.load_file(path)
            final = _training_outputs(tensors, "final", images, model.final.network.n_outputs)
            if model.unmerged is None:
                return cls(final, None)
            return cls(final, _training_outputs(tensors, "unmerged", images, model.unmerged.network.n_outputs))
        except (OSError, SafetensorError, LookupError, TypeError, ValueError, RuntimeError):
            return None


_SIDES = ("view_i", "view_j", "winner")


def _save(path: Path, tensors: dict[str, Tensor]) -> None:
    write_atomically(path, safetensors.torch.save({name: value.contiguous() for name, value in tensors.items()}))


def _training_outputs(tensors: dict[str, Tensor], role: str, images: int, n_outputs: int) -> Outputs:
    """The outputs of one network, or a ValueError if they cannot be those of so many images and outputs."""
    sides = [tensors[f"{role}.{name}"] for name in _SIDES]
    chances, novelty = tensors[f"{role}.probabilities"].float(), tensors[f"{role}.novelty"].float()
    if novelty.shape != (images,) or not (novelty.isnan().all() or _within(novelty, 0, 1)):
        raise ValueError("other novelty")
    if chances.shape != (images, n_outputs) or not _within(chances, 0, 1):
        raise ValueError("other probabilities")
    if not all(side.shape == (images,) and side.dtype == torch.int16 for side in sides):
        raise ValueError("other labels")
    if not all(_within(side, 0, n_outputs - 1) for side in sides):
        raise ValueError("other outputs")
    view_i, view_j, winner = (side.long() for side in sides)
    return Outputs(view_i, view_j, winner, chances, chances[:, :0], novelty)


def _within(values: Tensor, low: float, high: float) -> bool:
    return values.numel() == 0 or (float(values.min()) >= low and float(values.max()) <= high)


def write_quarantine(path: Path, quarantine: Sequence[SkippedFile]) -> None:
    """The skipped files and the reasons."""
    write_atomically(path, csv_bytes([QUARANTINE_COLUMNS, *quarantine]))


def read_quarantine(path: Path) -> list[SkippedFile]:
    """The skipped files that ``write_quarantine`` listed; none if there is no list."""
    return [SkippedFile(*(row.get(name) or "" for name in QUARANTINE_COLUMNS)) for row in read_csv(path)]
