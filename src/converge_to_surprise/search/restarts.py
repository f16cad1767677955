"""The loop over initializations: run a trainer for each, keep the best.

From another initialization the same search may find other boundaries, and there are no classes to decide which are
right. A good clustering separates much and gives both views of an image the same cluster: only then the cluster of one
view tells much about that of the other. So the initialization with the largest mutual information between the labels
of the two views is selected. Sizes of clusters do not count by themselves.

On a CPU the threads are divided among the initializations, and as many as there are threads run side by side, each in a
process of its own, if memory allows; otherwise one after the other, with the same result.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..config import Config
from ..config.memory import free_memory
from ..core import rng, surprise
from ..core.rng import init_seed
from ..distributed import launch
from ..distributed.group import current
from ..distributed.side_by_side import SideBySide
from ..model import devices
from ..model.backbone import Backbone
from ..model.cluster_model import CalibratedNetwork, Model
from ..model.encoder import Encoder
from ..model.inference import Known, Outputs
from . import evolution, initialization_process, memory_plan
from .record import Record
from .snapshot import Networks, Snapshot
from .threads import available_threads
from .trainer import Trainer

PREFIX = "best."
"""Prefix of the names of the best initialization's tensors in a snapshot."""
PROCESS = 2**29
"""Bytes that a process takes before it has any image."""


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
    """Runs ``config.n_init`` initializations and keeps the one whose views tell most about each other."""

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
        threads = config.threads or available_threads()
        self._at_once = min(config.n_init, threads) if self._separable() else 1
        self._threads_each = threads // self._at_once if self._at_once > 1 else config.threads
        self._replaying = False
        self.index = 0
        self.trainer = self._new_trainer(0)
        self.config = replace(self.trainer.config, seed=config.seed, n_init=config.n_init, threads=config.threads)
        self.total = self.trainer.total * config.n_init
        self.information: list[float] = []
        """Mutual information between the views' clusters in nats, of each completed initialization."""
        self.best: Candidate | None = None

    def _separable(self) -> bool:
        """Whether initializations can run in processes of their own: those have neither the user's code nor a group."""
        config = self._requested
        own = self.score is None and self.backbone is None
        on_cpu = torch.device(devices.resolve(config.device)).type == "cpu"
        return own and on_cpu and config.processes == 1 and not launch.launched()

    def _config_of(self, index: int) -> Config:
        """The configuration of one initialization alone."""
        seed = init_seed(self._requested.seed, index)
        return replace(self._requested, seed=seed, n_init=1, threads=self._threads_each)

    def _new_trainer(self, index: int) -> Trainer:
        return Trainer(self.images, self._config_of(index), self.score, self.backbone)

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
        begins = done == 0 and self.step < self.total and not self._replaying
        return init_seed(self.config.seed, started) if begins else None

    def run(self) -> Generator[Record]:
        """Work through the remaining steps of all initializations."""
        with self._others() as others:
            yield from self._work(others)
            while self.index + 1 < self.config.n_init:
                result = None if others is None else others.take(self.index + 1)
                if result is None:
                    self._next_initialization()
                    yield from self._work(others)
                else:
                    yield from self._replay(result)

    def _work(self, others: SideBySide | None) -> Generator[Record]:
        """The remaining steps of the current initialization."""
        for record in self.trainer.run():
            if others is not None:
                others.advance()
            if self.config.n_init > 1 and self.trainer.step == self.trainer.total:
                self._compare()
            yield self._numbered(record, self.index)

    def _replay(self, result: bytes) -> Generator[Record]:
        """The steps of the next initialization, which another process has worked on.

        Until its last record the state of the search is that after the initialization before: a run that is stopped
        here and resumed works on it again.
        """
        records, snapshot = initialization_process.read(result)
        views, seconds = self.trainer.views, self.trainer.seconds
        number, self._replaying = self.index + 1, True
        for record in records:
            if record is records[-1]:
                self._next_initialization()
                self.trainer.restore(Snapshot(snapshot.tensors, snapshot.data | {"random": rng.global_state()}))
                self.trainer.views += views
                self.trainer.seconds += seconds
                self._compare()
                self._replaying = False
            absolute = replace(record, views=record.views + views, seconds=round(record.seconds + seconds, 3))
            yield self._numbered(absolute, number)

    @contextmanager
    def _others(self) -> Iterator[SideBySide | None]:
        """The processes that work on later initializations; None if there are to be none."""
        later = range(self.index + 1, self.config.n_init)
        processes = min(self._at_once - 1, len(later))
        with ExitStack() as stack:
            others = None
            if processes and self._fits(processes):
                with suppress(OSError):  # without room for the images: one after the other
                    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                    configs = [self._config_of(index) for index in range(self.config.n_init)]
                    found = initialization_process.start(folder, self.images, configs, later, processes)
                    others = stack.enter_context(found)
            yield others

    def _fits(self, processes: int) -> bool:
        """Whether so many more processes fit into half of the memory; they share one more copy of the images."""
        config, images = self.trainer.config, self.images
        each = memory_plan.WORKSPACE if config.views.stored else memory_plan.estimate(images.shape, config)
        needed = images.numel() * images.element_size() + processes * (each + PROCESS)
        return 2 * needed <= free_memory()

    def _next_initialization(self) -> None:
        views, seconds = self.trainer.views, self.trainer.seconds
        self.index += 1
        self.trainer = self._new_trainer(self.index)
        self.trainer.views, self.trainer.seconds = views, seconds
        # Other CPUs may have rounded the initial weights differently.
        current().broadcast_tensors(self.trainer.network.state_dict().values())

    def _numbered(self, record: Record, index: int) -> Record:
        """A record of an initialization with its step counted over all of them."""
        if self.config.n_init == 1:
            return record
        stage, step = f"{record.stage} {index + 1}/{self.config.n_init}", index * self.trainer.total + record.step
        seconds = max(record.seconds, round(self.trainer.seconds, 3))  # with the time of comparing
        return replace(record, step=step, stage=stage, seconds=seconds)

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
        config = replace(trainer.config, threads=self.config.threads)
        return Candidate(self.index, config, trainer.networks, trainer.merge_features)

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
        self.information, self.best, self._replaying = list(data["information"]), None, False
        if (part := best_part(snapshot)) is not None:
            index = part.data["index"]
            config = replace(self.trainer.config, seed=init_seed(self.config.seed, index), threads=self.config.threads)
            networks = Networks.restore(part, config, self.images.shape[1], self.backbone)
            self.best = Candidate(index, config, networks)
        # Last: building networks draws from the process-wide generators, whose state the trainer restores.
        step = data["step"] - self.index * self.trainer.total
        self.trainer.restore(Snapshot(snapshot.tensors, data | {"step": step}))


def best_part(snapshot: Snapshot) -> Snapshot | None:
    """The networks of the best initialization within the snapshot of a search; None before one is completed."""
    data = snapshot.data["best"]
    return None if data is None else snapshot.part(PREFIX, data)
