"""The loop over initializations: run a trainer for each, keep the best.

From another initialization the same search may find other boundaries, and there are no classes to decide which are
right. A good clustering separates much and gives both views of an image the same cluster: only then the cluster of one
view tells much about that of the other. So the initialization with the largest mutual information between the labels
of the two views is selected. Sizes of clusters do not count by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from ..config import Config
from ..core import surprise
from ..core.rng import init_seed
from ..distributed.group import current
from ..model.backbone import Backbone
from ..model.cluster_model import CalibratedNetwork, Model
from ..model.encoder import Encoder
from ..model.inference import Known, Outputs
from . import evolution
from .record import Record
from .snapshot import Networks, Snapshot
from .trainer import Trainer

PREFIX = "best."
"""Prefix of the names of the best initialization's tensors in a snapshot."""


class Candidate(NamedTuple):
    """A completed initialization."""

    number: int
    config: Config
    networks: Networks
    merge_features: Tensor | None = None
    """Both views' features of all images before merging (N, 2, D), if they are known."""
    labeled: tuple[CalibratedNetwork, Outputs] | None = None
    """The calibrated network and its outputs for all images, if they are known."""


class Fitted(NamedTuple):
    """The result of a search, and the outputs of its networks for the training images."""

    model: Model
    outputs: Outputs
    unmerged: Outputs | None
    """The outputs of the network before merging, if clusters were merged."""

    @property
    def shortfall(self) -> str | None:
        """A warning if there are fewer clusters than requested, otherwise None."""
        wanted, found = self.model.config.n_clusters, self.model.n_clusters
        if wanted is None or found >= wanted:
            return None
        return (
            f"n_clusters is {wanted}, but only {found} clusters came out; "
            "a lower relaxed.temperature or a higher relaxed.diversity_floor finds more"
        )


class Restarts:
    """Runs ``config.n_init`` initializations in turn and keeps the one whose views tell most about each other."""

    def __init__(
        self,
        images: Tensor,
        config: Config,
        score: evolution.Score | None = None,
        backbone: Backbone | None = None,
        encoder: Encoder | None = None,
        statistics: Tensor | None = None,
    ) -> None:
        """As ``Trainer``. If the images are stored features: what made them, and statistics of their pixels."""
        self.statistics = statistics
        self.images, self.score, self.backbone, self.encoder = images, score, backbone, encoder
        self.keep: tuple[str, ...] = ("probabilities",)
        """What is kept of the outputs for the training images; see ``inference.run_all``."""
        self._requested = config
        self.index = 0
        self.trainer = self._new_trainer(0)
        self.config = replace(self.trainer.config, seed=config.seed, n_init=config.n_init)
        self.total = self.trainer.total * config.n_init
        self.information: list[float] = []
        """Mutual information between the views' clusters in nats, of each completed initialization."""
        self.best: Candidate | None = None

    def _new_trainer(self, index: int) -> Trainer:
        config = replace(self._requested, seed=init_seed(self._requested.seed, index), n_init=1)
        return Trainer(self.images, config, self.score, self.backbone)

    @property
    def step(self) -> int:
        """Completed steps, over all initializations."""
        return self.index * self.trainer.total + self.trainer.step

    @property
    def views(self) -> int:
        return self.trainer.views

    @property
    def seconds(self) -> float:
        return self.trainer.seconds

    @property
    def next_seed(self) -> int | None:
        """The seed of the initialization that the next step begins, if it begins one."""
        started, done = divmod(self.step, self.trainer.total)
        return init_seed(self.config.seed, started) if done == 0 and self.step < self.total else None

    def run(self) -> Generator[Record]:
        """Work through the remaining steps of all initializations."""
        while True:
            for record in self.trainer.run():
                if self.config.n_init > 1 and self.trainer.step == self.trainer.total:
                    self._compare()
                yield self._numbered(record)
            if self.index + 1 == self.config.n_init:
                return
            self._next_initialization()

    def _next_initialization(self) -> None:
        views, seconds = self.trainer.views, self.trainer.seconds
        self.index += 1
        self.trainer = self._new_trainer(self.index)
        self.trainer.views, self.trainer.seconds = views, seconds
        # Other CPUs may have rounded the initial weights differently.
        current().broadcast_tensors(self.trainer.network.state_dict().values())

    def _numbered(self, record: Record) -> Record:
        """The record with its step counted over all initializations."""
        if self.config.n_init == 1:
            return record
        stage = f"{record.stage} {self.index + 1}/{self.config.n_init}"
        step = self.index * self.trainer.total + record.step
        return replace(record, step=step, stage=stage, seconds=round(self.trainer.seconds, 3))

    def _compare(self) -> None:
        """Label the images with the completed initialization and keep it if its views tell more about each other."""
        began = time.perf_counter()
        candidate = self._labeled(self._candidate())
        assert candidate.labeled is not None
        outputs = candidate.labeled[1]
        pairs = surprise.joint_counts(outputs.view_i, outputs.view_j, candidate.networks.network.n_outputs)
        found = float(surprise.mutual_information(pairs.double()))
        if found > max(self.information, default=-1.0):
            self.best = candidate
        self.information.append(found)
        self.trainer.seconds += time.perf_counter() - began

    def _candidate(self) -> Candidate:
        trainer = self.trainer
        return Candidate(self.index, trainer.config, trainer.networks, trainer.merge_features)

    def _labeled(self, candidate: Candidate) -> Candidate:
        """The candidate with the outputs of its network for all images, computed unless they are known."""
        if candidate.labeled is not None:
            return candidate
        network = candidate.networks.network.single()
        known = Known(statistics=self.statistics)
        return candidate._replace(
            labeled=CalibratedNetwork.fit(network, self.images, candidate.config, self.keep, known)
        )

    def finish(self) -> Fitted:
        """The model of the selected initialization. Each network labels the training images once."""
        best = self._labeled(self.best or self._candidate())
        assert best.labeled is not None
        final, outputs = best.labeled
        unmerged, unmerged_outputs = None, None
        if best.networks.unmerged is not None:
            keep = tuple(name for name in self.keep if name != "features")
            unmerged, unmerged_outputs = CalibratedNetwork.fit(
                best.networks.unmerged, self.images, best.config, keep, Known(best.merge_features, self.statistics)
            )
        channels, height, width = self.images.shape[1:]
        shape = (channels, height, width) if self.encoder is None else self.encoder.shape
        model = Model(self.config, shape, final, unmerged, best.networks.merge_result, encoder=self.encoder)
        return Fitted(model, outputs, unmerged_outputs)

    def summary(self) -> dict[str, Any] | None:
        """The initializations as plain data for the result of a run; None if there was only one."""
        if self.best is None:
            return None
        seeds = [init_seed(self.config.seed, index) for index in range(len(self.information))]
        return {"seeds": seeds, "information": self.information, "selected": self.best.number}

    def snapshot(self) -> Snapshot:
        """A copy of the state after the last completed step."""
        tensors, data = self.trainer.snapshot()
        best: dict[str, Any] | None = None
        if self.best is not None:
            best_tensors, described = self.best.networks.snapshot()
            tensors |= {f"{PREFIX}{name}": value for name, value in best_tensors.items()}
            best = {"index": self.best.number, **described}
        return Snapshot(tensors, data | {"step": self.step, "information": list(self.information), "best": best})

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot of a search with the same images and configuration."""
        data = snapshot.data
        # Right at the end of an initialization its trainer is restored: the next one starts from new weights.
        self.index = max(0, (data["step"] - 1) // self.trainer.total)
        self.trainer = self._new_trainer(self.index)
        self.information, self.best = list(data["information"]), None
        if (part := best_part(snapshot)) is not None:
            index = part.data["index"]
            config = replace(self.trainer.config, seed=init_seed(self.config.seed, index))
            networks = Networks.restore(part, config, self.images.shape[1], self.backbone)
            self.best = Candidate(index, config, networks)
        # Last: building networks draws from the process-wide generators, whose state the trainer restores.
        step = data["step"] - self.index * self.trainer.total
        self.trainer.restore(Snapshot(snapshot.tensors, data | {"step": step}))


def best_part(snapshot: Snapshot) -> Snapshot | None:
    """The networks of the best initialization within the snapshot of a search; None before one is completed."""
    data = snapshot.data["best"]
    return None if data is None else snapshot.part(PREFIX, data)
