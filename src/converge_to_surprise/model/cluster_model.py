"""A trained model: which cluster an image belongs to, and how confidently, at any cut of the merge tree.

A model is one file (``model.safetensors`` in a run folder): weights, settings and the merge tree, no code, no pickle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ..config import Config
from ..config.images import InputKind
from . import inference
from .calibration import calibrate
from .carried_names import Annotations, carry_annotations
from .encoder import EmbeddingEncoder, Encoder
from .hierarchy import Hierarchy, Path, path_text
from .inference import Calibration, Known, Outputs
from .merge_tree import MergeResult
from .network import ClusterNetwork
from .novelty import image_statistics

UNCALIBRATED = Calibration(sharpness=10.0)
"""Of a network whose run is not finished."""


@dataclass(frozen=True)
class CalibratedNetwork:
    """A network with one head, what makes confidence and novelty, and the training images that each output won."""

    network: ClusterNetwork
    calibration: Calibration
    sizes: tuple[int, ...]

    @classmethod
    def fit(
        cls,
        network: ClusterNetwork,
        images: Tensor,
        config: Config,
        keep: tuple[str, ...] = (),
        known: Known = inference.NOTHING,
    ) -> tuple[CalibratedNetwork, Outputs]:
        """Calibrate a network on its training images; also returns its outputs for them (see ``inference.run_all``)."""
        calibration = calibrate(network, images, config, known.statistics)
        outputs = inference.run_all(network, images, config.views, calibration, keep, known)
        sizes = tuple(outputs.winner.bincount(minlength=network.n_outputs).tolist())
        return cls(network, calibration, sizes), outputs


class Prediction(NamedTuple):
    """The clusters of some images."""

    cluster: Tensor
    """Cluster number: 0 is the largest cluster of the training images, -1 is noise. (n,)"""
    confidence: Tensor
    """Probability that an augmented view of the image gets this cluster. (n,)"""
    second: Tensor
    """The next best cluster. (n,)"""
    second_confidence: Tensor
    views_agree: Tensor
    """Whether each view alone gets this cluster. (n,)"""
    probabilities: Tensor
    """Of every cluster number, including those without training images. (n, n_outputs)"""
    embedding: Tensor
    """Mean of both views' backbone features. (n, D)"""
    novelty: Tensor
    """How unlike the training images the image is: the share of their kind that is less so. NaN: not known. (n,)"""
    leaf: Tensor
    """The finest sub-cluster, as a place in the model's ``paths``; the cluster itself if it is not split. (n,)"""
    leaf_confidence: Tensor
    """Probability that an augmented view of the image gets this leaf. (n,)"""


@dataclass(frozen=True)
class Model:
    """Networks before and after merging, the merge tree between them, and its cut."""

    config: Config
    shape: tuple[int, int, int]
    """Channels, height and width of the training images."""
    final: CalibratedNetwork
    """After merging and refining: an output for every cluster."""
    unmerged: CalibratedNetwork | None = None
    """Before merging: an output for every subcluster."""
    merge_result: MergeResult | None = None
    cut_at: int | None = None
    """Number of clusters at which the tree is cut, if not where the run cut it."""
    annotations: Annotations | None = None
    encoder: Encoder | None = None
    """What makes the features that the networks take, if they do not take pixels."""
    hierarchy: Hierarchy | None = None
    """The tree of sub-clusters, if they were searched."""
    node_names: Mapping[str, str] = field(default_factory=dict)
    """A person's names of sub-clusters by path."""

    @property
    def input(self) -> InputKind:
        """What the model takes."""
        return "embeddings" if isinstance(self.encoder, EmbeddingEncoder) else "images"

    @property
    def active(self) -> CalibratedNetwork:
        """The network that labels images at this cut."""
        finer = self.cut_at is not None and self.merge_result is not None and self.cut_at > self.merge_result.n_clusters
        return self.unmerged if finer and self.unmerged is not None else self.final

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """The output that represents the cluster of each output."""
        n_outputs = self.active.network.n_outputs
        if self.cut_at is None or self.merge_result is None:
            return tuple(range(n_outputs))
        if self.active is self.unmerged:
            return tuple(self.merge_result.finer(self.cut_at, n_outputs))
        return (*self.merge_result.coarser(self.cut_at), *range(self.merge_result.n_clusters, n_outputs))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The output that represents each cluster number: the largest cluster of the training images is 0."""
        sizes = torch.zeros(len(self.groups), dtype=torch.long)
        sizes.index_add_(0, torch.tensor(self.groups), torch.tensor(self.active.sizes))
        return tuple(torch.argsort(sizes, descending=True, stable=True).tolist())

    @cached_property
    def numbers(self) -> Tensor:
        """The cluster number of every output, without annotations. (n_outputs,)"""
        number = torch.empty(len(self.order), dtype=torch.long)
        number[torch.tensor(self.order)] = torch.arange(len(self.order))
        return number[torch.tensor(self.groups)]

    @property
    def n_clusters(self) -> int:
        """Number of clusters with at least one training image; without sizes, the largest possible number."""
        sizes = torch.zeros(len(self.groups), dtype=torch.long)
        sizes.index_add_(0, self.numbers, torch.tensor(self.active.sizes))
        return int((sizes > 0).sum()) or len(set(self.groups))

    @cached_property
    def subclusters(self) -> tuple[frozenset[int], ...]:
        """The outputs before merging of which each cluster number is made; empty without a merge tree."""
        members: list[set[int]] = [set() for _ in self.order]
        if (merged := self.merge_result) is not None and self.unmerged is not None:
            own = merged.finer(merged.n_clusters, self.unmerged.network.n_outputs)
            for output in {*merged.outputs, *(output for step in merged.steps for output in step[:2])}:
                place = output if self.active is self.unmerged else merged.outputs.index(own[output])
                members[int(self.numbers[place])].add(output)
        return tuple(map(frozenset, members))

    @cached_property
    def annotated_groups(self) -> tuple[int, ...]:
        """The same as ``groups`` after a person's merges; all noise is one group."""
        into = self._merged_into.clone()
        if bool(self._noise.any()):
            into[self._noise] = into[self._noise].min()
        return tuple(torch.tensor(self.order)[into[self.numbers]].tolist())

    @property
    def cluster_names(self) -> list[str]:
        """The name of each cluster number: the number itself unless a person gave it a name."""
        given = [] if self.annotations is None else self.annotations.names
        return [*given, *map(str, range(len(given), len(self.order)))]

    @cached_property
    def paths(self) -> list[Path]:
        """Every node of the tree of clusters: the clusters, then their sub-clusters."""
        return (self.hierarchy or Hierarchy()).paths(len(self.order))

    @property
    def shown_paths(self) -> list[Path]:
        """The nodes that hold training images, parents before children."""
        return sorted(path for path in self.paths if len(path) > 1 or path[0] < self.n_clusters)

    def path_name(self, path: Path) -> str:
        """A node as a person knows it: the names along its path, numbers where there are none."""
        names = [self.cluster_names[path[0]]]
        names += [self.node_names.get(path_text(path[:end]), str(path[end - 1])) for end in range(2, len(path) + 1)]
        return "/".join(names)

    @property
    def levels(self) -> int:
        """The largest number of clusters at which the merge tree can be cut; 0 without one."""
        return 0 if self.merge_result is None or self.unmerged is None else self.merge_result.max_clusters

    def cut(self, n_clusters: int) -> Model:
        """The same model with the merge tree cut at another number of clusters, without training.

        Names, merges and noise marks are kept where they still hold; sub-clusters belong to the clusters of the run.
        """
        if self.merge_result is None or self.unmerged is None:
            raise ValueError(f"n_clusters is {n_clusters}, but the run has no merge tree (yet) that could be cut")
        if not 1 <= n_clusters <= self.merge_result.max_clusters:
            raise ValueError(f"n_clusters is {n_clusters}; the merge tree has 1 to {self.merge_result.max_clusters}")
        if n_clusters == (self.cut_at or self.merge_result.n_clusters):
            return self
        cut_at = None if n_clusters == self.merge_result.n_clusters else n_clusters
        found = replace(self, cut_at=cut_at, annotations=None, hierarchy=None, node_names={})
        if self.annotations is None:
            return found
        return replace(found, annotations=carry_annotations(self.annotations, self.subclusters, found.subclusters))

    def run(self, images: Tensor) -> Iterator[Outputs]:
        """The outputs of the network for uint8 images (N, C, H, W), chunk by chunk."""
        network, calibration = self.active.network, self.active.calibration
        if self.encoder is None:
            yield from inference.run(network, images, self.config.views, calibration)
            return
        done = 0
        for features in inference.encoded(network, images, self.encoder.view_features):
            part = images[done : done + len(features)]
            known = Known(features, self._statistics(part))
            yield from inference.run(network, part, self.config.views, calibration, known)
            done += len(part)

    def run_all(self, images: Tensor, keep: tuple[str, ...] = ()) -> Outputs:
        """The same at once; see ``inference.run_all``."""
        network, known = self.active.network, inference.NOTHING
        if self.encoder is not None:
            features = torch.cat(list(inference.encoded(network, images, self.encoder.view_features)))
            known = Known(features, self._statistics(images))
        return inference.run_all(network, images, self.config.views, self.active.calibration, keep, known)

    def _statistics(self, images: Tensor) -> Tensor | None:
        """The statistics of the pixels of images; embeddings have none."""
        return None if isinstance(self.encoder, EmbeddingEncoder) else image_statistics(images)

    def predict(self, images: Tensor) -> Iterator[Prediction]:
        """The clusters of uint8 images (N, C, H, W), chunk by chunk, in order."""
        for outputs in self.run(images):
            yield self.interpret(outputs)

    def interpret(self, outputs: Outputs) -> Prediction:
        """Outputs as cluster numbers, with merges and noise marks applied."""
        cluster, view_i, view_j = (
            self._merged_into[self.numbers[side]] for side in (outputs.winner, outputs.view_i, outputs.view_j)
        )
        every = torch.arange(len(self.order))
        probabilities = outputs.probabilities @ (self._merged_into[self.numbers][:, None] == every).float()
        own = every == cluster[:, None]
        second_confidence, second = torch.where(own, -1.0, probabilities).max(1)
        confidence = probabilities.gather(1, cluster[:, None])[:, 0]
        number = torch.where(self._noise[cluster], -1, cluster)
        leaf, leaf_confidence = self._leaves(outputs, number, confidence)
        return Prediction(
            cluster=number,
            confidence=confidence,
            second=second,
            second_confidence=second_confidence.clamp(min=0),
            views_agree=(view_i == cluster) & (view_j == cluster),
            probabilities=probabilities,
            embedding=outputs.features,
            novelty=outputs.novelty,
            leaf=leaf,
            leaf_confidence=leaf_confidence,
        )

    def _leaves(self, outputs: Outputs, cluster: Tensor, confidence: Tensor) -> tuple[Tensor, Tensor]:
        """The leaf of every image, and its confidence. What a person merged or marked as noise is not opened."""
        tree = self.hierarchy
        if tree is None or not tree.splits or not outputs.features.shape[1]:
            return cluster, confidence
        numbers = self.numbers[outputs.winner]
        leaf, likely = tree.descend(numbers, outputs.features.half().float(), len(self.order))
        opened = self._openable[numbers]
        return torch.where(opened, leaf, cluster), torch.where(opened, confidence * likely, confidence)

    def prepare(self) -> None:
        """Compute everything that does not depend on images."""
        self._merged_into[self.numbers], self._noise, self._openable, self.paths

    @cached_property
    def _merged_into(self) -> Tensor:
        """The cluster number that each cluster number was merged into by a person. (n_outputs,)"""
        into = torch.arange(len(self.order))
        if self.annotations is not None:
            into[: len(self.annotations.into)] = torch.tensor(self.annotations.into)
        return into

    @cached_property
    def _noise(self) -> Tensor:
        """Whether a person marked each cluster number as noise. (n_outputs,)"""
        noise = torch.zeros(len(self.order), dtype=torch.bool)
        if self.annotations is not None:
            noise[: len(self.annotations.noise)] = torch.tensor(self.annotations.noise)
        return noise

    @cached_property
    def _openable(self) -> Tensor:
        """Whether each cluster number stands for itself alone, neither merged nor noise. (n_outputs,)"""
        into = self._merged_into
        return (into.bincount(minlength=len(into))[into] == 1) & (into == torch.arange(len(into))) & ~self._noise
