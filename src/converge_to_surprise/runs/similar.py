"""The training images of a run that are most similar to other pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from ..config.storage import csv_bytes, read_csv, write_atomically
from ..data.source import Source
from ..model.cluster_model import Model
from ..model.inference import Outputs
from ..model.similarity import SimilarityIndex
from .folder import RunFolder
from .labels import SavedOutputs, cluster_name
from .load import load_model


class Match(NamedTuple):
    """A training image that is similar to a picture."""

    image: int
    """Its position among the training images."""
    name: str
    """Its file, or its number in an array."""
    cluster: int
    """-1 is noise."""
    distance: float
    """1 - cosine of the angle between the features: 0 for the same picture, about 1 for unrelated ones."""


class SimilarImages(NamedTuple):
    """A picture and the training images most similar to it, most similar first."""

    picture: str
    pixels: Tensor
    """The picture as the model sees it. uint8 (C, H, W)"""
    matches: list[Match]


class TrainingImages(NamedTuple):
    """What a run keeps of its training images, to find those that are similar to others."""

    model: Model
    """With the names and the cut that were given to the run."""
    features: SimilarityIndex
    outputs: SavedOutputs
    names: Sequence[str]
    are_files: bool

    @classmethod
    def open(cls, run: RunFolder) -> TrainingImages:
        """Those of a finished run."""
        model = load_model(run.path)
        images = run.description().images
        outputs = SavedOutputs.load(run.outputs, images, model.final.network.n_outputs)
        rows = read_csv(run.labels)
        column = "path" if rows and "path" in rows[0] else "image"
        if outputs is None or len(rows) != images or column not in rows[0]:
            broken = run.outputs if outputs is None else run.labels
            raise ValueError(f"{broken} is missing or damaged; `cts resume {run.path}` writes it again")
        names = [row[column] for row in rows]
        return cls(model, SimilarityIndex.of(outputs.features), outputs, names, column == "path")

    def similar(self, source: Source, count: int, skipped: list[str]) -> Iterator[SimilarImages]:
        """The ``count`` most similar training images of each picture of a source; adds the files that are not read."""
        final = replace(self.model, cut_at=None, annotations=None)  # whose features the run keeps
        for chunk in source.chunks(range(len(source))):
            skipped += [f"{one.name}: {one.reason}" for one in chunk.quarantined]
            if not len(chunk.images):
                continue
            found = self.features.search(final.run_all(chunk.images, ("features",)).features, count)
            columns = (chunk.names, chunk.images, found.images, found.distances)
            for name, pixels, images, distances in zip(*columns, strict=True):
                yield SimilarImages(str(name), pixels, self._matches(images, distances))

    def _matches(self, images: Tensor, distances: Tensor) -> list[Match]:
        clusters = self._clusters(images).tolist()
        columns = (images.tolist(), clusters, distances.tolist())
        return [Match(i, self.names[i], cluster, distance) for i, cluster, distance in zip(*columns, strict=True)]

    def _clusters(self, images: Tensor) -> Tensor:
        """The clusters of training images at these positions (n,), with the cut, merges and noise marks of the run."""
        finer = self.model.active is self.model.unmerged
        winner = (self.outputs.subcluster if finer else self.outputs.winner)[images]
        return self.model.interpret(Outputs.of_labels(winner, self.model.active.network.n_outputs)).cluster

    def cluster_name(self, number: int) -> str:
        """A cluster as a person knows it."""
        return cluster_name(self.model, number)


def write_similar(path: Path, found: Sequence[SimilarImages], known: TrainingImages) -> None:
    """One row per picture and similar image."""
    named = known.model.annotations is not None
    names = known.model.cluster_names
    rows: list[list[object]] = [
        [one.picture, rank, match.name, match.cluster]
        + ([("noise" if match.cluster < 0 else names[match.cluster])] if named else [])
        + [f"{match.distance:.6f}"]
        for one in found
        for rank, match in enumerate(one.matches, 1)
    ]
    header = ["picture", "rank", "path" if known.are_files else "image", "cluster", *(["name"] * named), "distance"]
    write_atomically(path, csv_bytes([header, *rows]))
