"""A trained network as it is used: which cluster an image belongs to, how sure that is, at any level of the tree.

A model is one file (``model.safetensors`` in a run folder): weights, settings and the merge tree, no code, no pickle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ..config import Config
from ..distributed.group import SINGLE, ProcessGroup
from ..runs.annotations import Annotations
from ..search.merge import MergeResult
from .confidence import fit_sharpness
from .inference import Outputs, read, read_whole
from .network import ClusterNetwork

UNCALIBRATED = 10.0
"""Sharpness of a network whose run is not finished."""


@dataclass(frozen=True)
class CalibratedNetwork:
    """A network with one head, the sharpness of its confidence, and how many training images each output won."""

    network: ClusterNetwork
    sharpness: float
    sizes: tuple[int, ...]

    @classmethod
    def fitted(
        cls,
        network: ClusterNetwork,
        images: Tensor,
        config: Config,
        probabilities: bool = True,
        world: ProcessGroup = SINGLE,
    ) -> tuple[CalibratedNetwork, Outputs]:
        """Calibrate a network on its training images; also what it says of them, if wanted without probabilities."""
        sharpness = fit_sharpness(network, images, config, world)
        reading = read_whole(network, images, config.views, sharpness, probabilities, world)
        sizes = tuple(reading.output.bincount(minlength=network.clusters).tolist())
        return cls(network, sharpness, sizes), reading


class Prediction(NamedTuple):
    """The clusters of some images."""

    cluster: Tensor
    """The user's number of the cluster: 0 is the largest of the training images, -1 is noise. (n,)"""
    confidence: Tensor
    """Probability that an augmented view of the image gets this cluster. (n,)"""
    second: Tensor
    """The next best cluster. (n,)"""
    second_confidence: Tensor
    agreed: Tensor
    """Whether both views alone give this cluster. (n,)"""
    probabilities: Tensor
    """Of every cluster number, also of those that no training image has. (n, outputs)"""
    embedding: Tensor
    """The backbone's features, mean of both views. (n, D)"""


@dataclass(frozen=True)
class Model:
    """Networks before and after merging, the tree between them, and where it is cut."""

    config: Config
    shape: tuple[int, int, int]
    """Channels, height and width of the training images."""
    final: CalibratedNetwork
    """After merging and refining: an output for every cluster."""
    unmerged: CalibratedNetwork | None = None
    """Before merging: an output for every part."""
    merged: MergeResult | None = None
    level: int | None = None
    """Number of clusters to which the tree is cut, if not where the run cut it."""
    names: Annotations | None = None
    """What a person made of the clusters."""

    @property
    def labeler(self) -> CalibratedNetwork:
        """The network that is asked at this level."""
        finer = self.level is not None and self.merged is not None and self.level > self.merged.clusters
        return self.unmerged if finer and self.unmerged is not None else self.final

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """For every output the one that stands for its cluster."""
        outputs = self.labeler.network.clusters
        if self.level is None or self.merged is None:
            return tuple(range(outputs))
        if self.labeler is self.unmerged:
            return tuple(self.merged.finer(self.level, outputs))
        return (*self.merged.coarser(self.level), *range(self.merged.clusters, outputs))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The output that stands for each cluster number: the largest cluster of the training images is 0."""
        sizes = torch.zeros(len(self.groups), dtype=torch.long)
        sizes.index_add_(0, torch.tensor(self.groups), torch.tensor(self.labeler.sizes))
        return tuple(torch.argsort(sizes, descending=True, stable=True).tolist())

    @cached_property
    def numbers(self) -> Tensor:
        """The cluster number of every output, before a person changed anything. (outputs,)"""
        number = torch.empty(len(self.order), dtype=torch.long)
        number[torch.tensor(self.order)] = torch.arange(len(self.order))
        return number[torch.tensor(self.groups)]

    @property
    def clusters(self) -> int:
        """Clusters that at least one training image belongs to, or else all that there can be."""
        sizes = torch.zeros(len(self.groups), dtype=torch.long)
        sizes.index_add_(0, self.numbers, torch.tensor(self.labeler.sizes))
        return int((sizes > 0).sum()) or len(set(self.groups))

    @property
    def shown_names(self) -> list[str]:
        """What each cluster number is called: its number, unless a person gave it a name."""
        given = [] if self.names is None else self.names.names
        return [*given, *map(str, range(len(given), len(self.order)))]

    def cut(self, clusters: int) -> Model:
        """The same model with the merge tree cut at another number of clusters; no training is needed."""
        if self.merged is None or self.unmerged is None:
            raise ValueError(f"there is no merge tree (yet): the number of clusters cannot be set to {clusters}")
        if not 1 <= clusters <= self.merged.finest:
            raise ValueError(f"clusters is {clusters}; the merge tree has from 1 to {self.merged.finest}")
        level = None if clusters == self.merged.clusters else clusters
        return replace(self, level=level, names=self.names if level == self.level else None)

    def read(self, images: Tensor) -> Iterator[Outputs]:
        """What the network itself says of uint8 images (N, C, H, W), chunk by chunk."""
        yield from read(self.labeler.network, images, self.config.views, self.labeler.sharpness)

    def read_whole(self, images: Tensor) -> Outputs:
        """The same at once, without features."""
        return read_whole(self.labeler.network, images, self.config.views, self.labeler.sharpness)

    def predict(self, images: Tensor) -> Iterator[Prediction]:
        """The clusters of uint8 images (N, C, H, W), chunk by chunk, in order."""
        for reading in self.read(images):
            yield self.name(reading)

    def name(self, reading: Outputs) -> Prediction:
        """What the network says in the user's numbers, with merges and noise as a person marked them."""
        cluster, view_i, view_j = (
            self._taken_to[self.numbers[outputs]] for outputs in (reading.output, reading.view_i, reading.view_j)
        )
        every = torch.arange(len(self.order))
        probabilities = reading.probabilities @ (self._taken_to[self.numbers][:, None] == every).float()
        own = every == cluster[:, None]
        second_confidence, second = torch.where(own, -1.0, probabilities).max(1)
        return Prediction(
            cluster=torch.where(self._noise[cluster], -1, cluster),
            confidence=probabilities.gather(1, cluster[:, None])[:, 0],
            second=second,
            second_confidence=second_confidence.clamp(min=0),
            agreed=(view_i == cluster) & (view_j == cluster),
            probabilities=probabilities,
            embedding=reading.features,
        )

    def prepare(self) -> None:
        """Work out all that does not depend on images."""
        self._taken_to[self.numbers], self._noise

    @cached_property
    def _taken_to(self) -> Tensor:
        """The number of the cluster that each cluster number was merged into by a person. (outputs,)"""
        into = torch.arange(len(self.order))
        if self.names is not None:
            into[: len(self.names.into)] = torch.tensor(self.names.into)
        return into

    @cached_property
    def _noise(self) -> Tensor:
        """Whether a person marked the cluster of each number as noise. (outputs,)"""
        noise = torch.zeros(len(self.order), dtype=torch.bool)
        if self.names is not None:
            noise[: len(self.names.noise)] = torch.tensor(self.names.noise)
        return noise
