"""The loop: one record per step. It knows nothing of files or screens.

    trainer = Trainer(images, config)
    for record in trainer.run():
        ...

Between two records ``trainer.snapshot()`` is everything needed to continue from there, bit for bit.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Generator
from concurrent.futures import Executor
from dataclasses import replace

import torch
from torch import Tensor

from ..config import Config
from ..core import rng as randomness
from ..core.augment import augment
from ..core.views import make_views, to_float
from ..distributed.group import SINGLE, ProcessGroup
from ..model.backbone import Backbone
from ..model.devices import effective
from ..model.inference import outputs_of, view_features
from ..model.network import ClusterNetwork, flatten, load_flat
from ..model.precision import exact, multiplying
from . import consolidate, evolution, merge, population, relaxed, schedule
from . import head_fusion as condense
from . import neighbors as neighbors
from .initialization import random_network
from .input_check import check_fit
from .record import Measures, Record, measure
from .restarts import Outcome, Starts
from .snapshot import Snapshot, merged_of, network_of, networks, unmerged_network_of
from .threads import pool, threads

AGREE_EVERY = 100
"""Steps after which processes compare their weights."""


def available_threads() -> int:
    """CPU threads that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Trainer:
    """Carries a network through a schedule; with several starts one after the other, and has the best in the end."""

    def __init__(
        self,
        images: Tensor,
        config: Config,
        score: evolution.Score | None = None,
        backbone: Backbone | None = None,
    ) -> None:
        """``images``: uint8 (N, C, H, W). ``score``: what evolution maximizes, in place of the configured one.
        ``backbone``: the user's own network in place of ResNet-9.
        """
        check_fit(images, config)
        self.images = images
        self.config = config = effective(config, images)
        self.backbone = backbone
        self.world = SINGLE
        self.score = score or evolution.named_score(config.evolution.score, config.network.clusters)
        self.device = torch.device(config.device)
        self.threads = config.threads or available_threads()
        self.total = schedule.count_steps(config, len(images))
        self._per_start = self.total // config.starts
        self.step = 0
        self.views = 0
        self.seconds = 0.0
        self.optimizer: torch.optim.Optimizer | None = None
        self.neighbors: Tensor | None = None
        self.starts = Starts()
        self._turn_to(0)
        self.seen: tuple[int, Tensor] | None = None
        """What merging saw of the images, for the step of this number, if that comes next: a backbone soon changes."""
        self.merged: merge.MergeResult | None = None
        self.unmerged: ClusterNetwork | None = None
        self.network = self._start()

    def _turn_to(self, start: int) -> None:
        """Work as the run of this start alone would."""
        seed = randomness.start_seed(self.config.seed, start)
        self.own = replace(self.config, seed=seed, starts=1)
        """The configuration of that run."""
        self.pool = neighbors.Pool(self.images, seed)

    def join(self, world: ProcessGroup) -> None:
        """Share the work with other processes, each of which has a trainer in the same state."""
        self.world = world
        self.threads = max(1, (self.config.threads or available_threads()) // world.local)

    def run(self) -> Generator[Record]:
        """Work through the remaining steps of the schedule."""
        remaining = itertools.islice(schedule.steps(self.config, len(self.images)), self.step, None)
        with pool(self.threads, self.device) as workers, multiplying(self.config.precision, self.device):
            for step in remaining:
                began = time.perf_counter()
                if step.number == 0 and step.start > 0:
                    self._start_anew(step.start)
                measures = self._do(step, workers)
                if step.number % AGREE_EVERY == AGREE_EVERY - 1:
                    self.world.agree(self._shared_state())
                position, self.step = self.step, self.step + 1
                if self.config.starts > 1 and self.step % self._per_start == 0:
                    self._judge(step.start)
                self.seconds += time.perf_counter() - began
                yield Record(
                    step=position, epoch=step.epoch, stage=self._shown(step), kind=step.kind, **measures._asdict(),
                    views=self.views, seconds=round(self.seconds, 3),
                )  # fmt: skip

    @property
    def next_seed(self) -> int | None:
        """The seed of the start that the next step begins, if it does."""
        start, done = divmod(self.step, self._per_start)
        return randomness.start_seed(self.config.seed, start) if done == 0 and self.step < self.total else None

    def _start_anew(self, start: int) -> None:
        self._turn_to(start)
        self.network, self.unmerged, self.merged = self._start(), None, None
        self.optimizer = self.neighbors = self.seen = None
        self.world.broadcast(self.network.state_dict().values())  # other CPUs may round it differently

    def _judge(self, start: int) -> None:
        """Compare what a start came to with the best so far; after the last one the best is all that is left."""
        self.starts.add(Outcome(start, self.network, self.unmerged, self.merged), self.images, self.own, self.world)
        if self.step == self.total and (best := self.starts.best):
            self._turn_to(best.start)
            self.network, self.unmerged, self.merged = best.network, best.unmerged, best.merged
            self.optimizer = None  # its memory is of the last start's parameters

    def _shown(self, step: schedule.Step) -> str:
        return step.stage if self.config.starts == 1 else f"{step.stage} {step.start + 1}/{self.config.starts}"

    def _do(self, step: schedule.Step, workers: Executor) -> Measures:
        if step.kind == "evolution":
            return self._evolve(step, workers)
        if step.kind in ("relaxed", "refine"):
            return self._relax(step)
        if step.kind == "merge":
            return self._merge(step)
        return self._consolidate(step)

    def _evolve(self, step: schedule.Step, workers: Executor) -> Measures:
        settings = self.own.evolution
        positions = schedule.batch_positions(step, len(self.images), self.own.seed, self.images)
        views = self._training_views(positions, step.number)
        fraction = evolution.fraction_perturbed(step.epoch, settings)
        generation = evolution.Generation(self.own.seed, step.number, fraction, settings)
        theta = flatten(self.network)
        precision = self.own.precision
        scores = population.scores(self.network, theta, generation, views, self.score, workers, precision, self.world)
        load_flat(evolution.tell(theta, scores, generation), self.network)
        labels_i, labels_j = population.refresh(self.network, views, settings.chunk, workers, precision)
        self.views += 2 * len(positions) * (settings.population + 1)
        return self._measure(labels_i, labels_j)

    def _relax(self, step: schedule.Step) -> Measures:
        refining = step.kind == "refine"
        if step.first:
            self.optimizer = relaxed.optimizer(self.network, self.own)
            self.neighbors = self._alike(self.network if refining else None, self._take_seen(step))
        assert self.optimizer is not None
        assert self.neighbors is not None
        positions = schedule.batch_positions(step, len(self.images), self.own.seed, self.images)
        generator = randomness.torch_generator(self.own.seed, "partners", step.number)
        partners = neighbors.partners(self.neighbors, positions, self.own.relaxed.neighbor_share, generator)
        whole = len(positions)
        self.views += 2 * whole
        team, share = self.world.batch(whole)
        if share is not None:
            positions, partners = share.of(positions), share.of(partners)
        pixels = self.images[positions]
        labels = relaxed.relaxed_step(
            self.network, self.optimizer, pixels, self.pool.partners(pixels, positions, partners), self.own,
            relaxed.StepInfo(step.number, step.in_stage, step.progress, refining), team, share,
        )  # fmt: skip
        # The head in the middle has the middle one of the floors.
        both = torch.stack(labels, 1)[..., self.network.heads // 2].cpu()
        return self._measure(*team.gather(both, whole).unbind(1))

    def _alike(self, network: ClusterNetwork | None, known: Tensor | None = None) -> Tensor:
        return neighbors.alike(network, self.images, self.own, self.threads, self.world, known)

    def _take_seen(self, step: schedule.Step) -> Tensor | None:
        """Both views' features of all images, if the step before left them."""
        seen, self.seen = self.seen, None
        return seen[1] if seen is not None and seen[0] == step.number and len(seen[1]) == len(self.images) else None

    def _merge(self, step: schedule.Step) -> Measures:
        if self.neighbors is None:
            self.neighbors = self._alike(None)
        trial = merge.count_boundary_pairs(self.network, self.images, self.neighbors, self.own, step.number, self.world)
        counts = (trial.wide + trial.alike).double().numpy()
        trees = [merge.merge_tree(table, self.own.merge.smallest) for table in counts]
        positions = neighbors.pool_positions(len(self.images), self.own.seed)
        # All that remains looks at the same views with the same backbone.
        seen = view_features(self.network, self.images, self.own.views, self.world, positions)
        generator = randomness.torch_generator(self.own.seed, "heads", step.number)
        sample = torch.randperm(len(seen), generator=generator)[:3000]
        labels = outputs_of(self.network, seen[sample, 0]).argmax(-1).reshape(len(sample), -1)
        self.merged = merge.choose(trees, trial.alike, labels.numpy(), self.own.merge)
        self.unmerged = self.network.one_head(self.merged.head)
        self.optimizer = None  # its memory is of parameters that are no more
        self.network = condense.condense(
            self.network, self.images, seen, self.neighbors, trees, self.merged, self.own, step.number, self.world
        )
        self.seen = step.number + 1, seen
        return self._measure(*(outputs_of(self.network, side).argmax(-1) for side in seen.unbind(1)))

    def _consolidate(self, step: schedule.Step) -> Measures:
        if step.first:
            self.optimizer = consolidate.optimizer(self.network, self.own)
        assert self.optimizer is not None
        labels_i, labels_j, views = consolidate.consolidation_pass(
            self.network, self.optimizer, self.images, self.own, step.number, self.world
        )
        self.views += views
        return self._measure(labels_i, labels_j)

    def _measure(self, labels_i: Tensor, labels_j: Tensor) -> Measures:
        return measure(labels_i.cpu(), labels_j.cpu(), self.network.clusters, self.own.consolidation.tau)

    def _training_views(self, positions: Tensor, step: int) -> population.Views:
        """Fresh views of these images, each augmented on its own."""
        generator = randomness.torch_generator(self.own.seed, "views", step)
        pixels = to_float(self.images[positions].to(self.device))
        views = make_views(pixels, self.own.views, generator)
        return population.Views(
            *(augment(view, self.own.augmentation, generator, signed=self.own.views.signed) for view in views)
        )

    def _start(self) -> ClusterNetwork:
        """The random start, which does not depend on how many processes share the threads, nor on the precision."""
        with threads(self.config.threads or available_threads()), exact(self.device):
            few = torch.arange(min(500, len(self.images)))
            return random_network(self.images, self.own, self.backbone, lambda: self._training_views(few, 0))

    def _shared_state(self) -> list[Tensor]:
        """What must be the same in every process."""
        slots = [] if self.optimizer is None else list(self.optimizer.state.values())
        return [*self.network.state_dict().values(), *(value for slot in slots for value in slot.values())]

    def snapshot(self) -> Snapshot:
        """A copy of the state after the last finished step."""
        tensors, described = networks(self.network, self.unmerged, self.merged)
        done, starts = self.starts.pack()
        tensors |= done
        if self.neighbors is not None:
            tensors["neighbors"] = self.neighbors
        optimizer = self.optimizer.state_dict() if self.optimizer else None
        if optimizer:
            for index, slots in optimizer["state"].items():
                tensors |= {f"optimizer.{index}.{slot}": value.clone() for slot, value in slots.items()}
        data = {
            "step": self.step,
            "views": self.views,
            "seconds": self.seconds,
            **described,
            **starts,
            "optimizer": optimizer and optimizer["param_groups"],
            "random": randomness.global_state(),
        }
        return Snapshot(tensors, data)

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot of a trainer with the same images and configuration."""
        tensors, data = snapshot
        channels = self.images.shape[1]
        self.network = network_of(snapshot, self.config, channels, self.backbone)
        self.unmerged = unmerged_network_of(snapshot, self.config, channels, self.backbone)
        self.neighbors = tensors.get("neighbors")
        self.seen = None
        self.step, self.views, self.seconds = data["step"], data["views"], data["seconds"]
        self.starts = Starts.of(snapshot, self.config, channels, self.backbone)
        best, last = self.starts.best, self.config.starts - 1
        self._turn_to(best.start if best and self.step == self.total else min(self.step // self._per_start, last))
        self.merged = merged_of(snapshot)
        self.optimizer = None
        if data["optimizer"]:
            self.optimizer = torch.optim.Adam(self.network.parameters())
            state: dict[int, dict[str, Tensor]] = {}
            for name, value in tensors.items():
                if name.startswith("optimizer."):
                    _, index, slot = name.split(".")
                    state.setdefault(int(index), {})[slot] = value
            self.optimizer.load_state_dict({"state": state, "param_groups": data["optimizer"]})
        randomness.restore_global_state(data["random"])
