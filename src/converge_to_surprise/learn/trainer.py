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

import torch
from torch import Tensor

from ..config import Config
from ..core.augment import augment
from ..core.views import make_views, to_float
from . import condense, consolidate, evolution, merge, neighbours, population, randomness, relaxed, schedule
from .backbone import Backbone, fresh_network
from .devices import effective
from .labelling import outputs_of, view_features
from .network import ClusterNetwork, flatten, lively_network, load_flat
from .precision import exact, multiplying
from .record import Measures, Record, measure
from .snapshot import Snapshot, merged_of, network_of, searched_network_of
from .workers import pool, threads
from .world import ALONE, World

AGREE_EVERY = 100
"""Steps after which processes compare their weights."""


def available_threads() -> int:
    """Processor threads that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Trainer:
    """Carries a network through a schedule."""

    def __init__(
        self,
        images: Tensor,
        config: Config,
        score: evolution.Score | None = None,
        backbone: Backbone | None = None,
    ) -> None:
        """``images``: uint8 (N, C, H, W). ``score``: what evolution maximises, in place of the configured one.
        ``backbone``: the user's own network in place of ResNet-9.
        """
        check_fit(images, config)
        self.images = images
        self.config = config = effective(config, images)
        self.backbone = backbone
        self.world = ALONE
        self.score = score or evolution.named_score(config.evolution.score, config.network.clusters)
        self.device = torch.device(config.device)
        self.threads = config.threads or available_threads()
        self.total = schedule.count_steps(config, len(images))
        self.step = 0
        self.views = 0
        self.seconds = 0.0
        self.optimizer: torch.optim.Optimizer | None = None
        self.neighbours: Tensor | None = None
        self.pool = neighbours.Pool(images, config.seed)
        self.seen: tuple[int, Tensor] | None = None
        """What merging saw of the images, for the step of this number, if that comes next: a trunk soon changes."""
        self.merged: merge.Choice | None = None
        self.searched: ClusterNetwork | None = None
        with threads(self.threads), exact(self.device):
            self.network = self._start()

    def join(self, world: World) -> None:
        """Share the work with other processes, each of which has a trainer in the same state."""
        self.world = world
        self.threads = max(1, (self.config.threads or available_threads()) // world.local)

    def run(self) -> Generator[Record]:
        """Work through the remaining steps of the schedule."""
        remaining = itertools.islice(schedule.steps(self.config, len(self.images)), self.step, None)
        with pool(self.threads, self.device) as workers, multiplying(self.config.precision, self.device):
            for step in remaining:
                began = time.perf_counter()
                measures = self._do(step, workers)
                if step.number % AGREE_EVERY == AGREE_EVERY - 1:
                    self.world.agree(self._shared_state())
                self.seconds += time.perf_counter() - began
                self.step = step.number + 1
                yield Record(
                    step=step.number, epoch=step.epoch, stage=step.stage, kind=step.kind, **measures._asdict(),
                    views=self.views, seconds=round(self.seconds, 3),
                )  # fmt: skip

    def _do(self, step: schedule.Step, workers: Executor) -> Measures:
        if step.kind == "evolution":
            return self._evolve(step, workers)
        if step.kind in ("relaxed", "refine"):
            return self._relax(step)
        if step.kind == "merge":
            return self._merge(step)
        return self._consolidate(step)

    def _evolve(self, step: schedule.Step, workers: Executor) -> Measures:
        settings = self.config.evolution
        positions = schedule.batch_positions(step, len(self.images), self.config.seed, self.images)
        views = self._training_views(positions, step.number)
        fraction = evolution.fraction_perturbed(step.epoch, settings)
        generation = evolution.Generation(self.config.seed, step.number, fraction, settings)
        theta = flatten(self.network)
        precision = self.config.precision
        scores = population.scores(self.network, theta, generation, views, self.score, workers, precision, self.world)
        load_flat(evolution.tell(theta, scores, generation), self.network)
        labels_i, labels_j = population.refresh(self.network, views, settings.chunk, workers, precision)
        self.views += 2 * len(positions) * (settings.population + 1)
        return self._measure(labels_i, labels_j)

    def _relax(self, step: schedule.Step) -> Measures:
        refining = step.kind == "refine"
        if step.first:
            self.optimizer = relaxed.optimizer(self.network, self.config)
            self.neighbours = self._alike(self.network if refining else None, self._take_seen(step))
        assert self.optimizer is not None
        assert self.neighbours is not None
        positions = schedule.batch_positions(step, len(self.images), self.config.seed, self.images)
        generator = randomness.torch_generator(self.config.seed, "partners", step.number)
        partners = neighbours.partners(self.neighbours, positions, self.config.relaxed.neighbour_share, generator)
        whole = len(positions)
        self.views += 2 * whole
        team, share = self.world.batch(whole)
        if share is not None:
            positions, partners = share.of(positions), share.of(partners)
        pixels = self.images[positions]
        labels = relaxed.relaxed_step(
            self.network, self.optimizer, pixels, self.pool.partners(pixels, positions, partners), self.config,
            relaxed.Moment(step.number, step.in_stage, step.progress, refining), team, share,
        )  # fmt: skip
        # The head in the middle has the middle one of the floors.
        both = torch.stack(labels, 1)[..., self.network.heads // 2].cpu()
        return self._measure(*team.gather(both, whole).unbind(1))

    def _alike(self, network: ClusterNetwork | None, known: Tensor | None = None) -> Tensor:
        return neighbours.alike(network, self.images, self.config, self.threads, self.world, known)

    def _take_seen(self, step: schedule.Step) -> Tensor | None:
        """Both views' features of all images, if the step before left them."""
        seen, self.seen = self.seen, None
        return seen[1] if seen is not None and seen[0] == step.number and len(seen[1]) == len(self.images) else None

    def _merge(self, step: schedule.Step) -> Measures:
        if self.neighbours is None:
            self.neighbours = self._alike(None)
        trial = merge.try_borders(self.network, self.images, self.neighbours, self.config, step.number, self.world)
        counts = (trial.wide + trial.alike).double().numpy()
        trees = [merge.merge_tree(table, self.config.merge.smallest) for table in counts]
        positions = neighbours.pool_positions(len(self.images), self.config.seed)
        # All that remains looks at the same views with the same trunk.
        seen = view_features(self.network, self.images, self.config.views, self.world, positions)
        generator = randomness.torch_generator(self.config.seed, "heads", step.number)
        sample = torch.randperm(len(seen), generator=generator)[:3000]
        labels = outputs_of(self.network, seen[sample, 0]).argmax(-1).reshape(len(sample), -1)
        self.merged = merge.choose(trees, trial.alike, labels.numpy(), self.config.merge)
        self.searched = self.network.one_head(self.merged.head)
        self.optimizer = None  # its memory is of parameters that are no more
        self.network = condense.condense(
            self.network, self.images, seen, self.neighbours, trees, self.merged, self.config, step.number, self.world
        )
        self.seen = step.number + 1, seen
        return self._measure(*(outputs_of(self.network, side).argmax(-1) for side in seen.unbind(1)))

    def _consolidate(self, step: schedule.Step) -> Measures:
        if step.first:
            self.optimizer = consolidate.optimizer(self.network, self.config)
        assert self.optimizer is not None
        labels_i, labels_j, views = consolidate.consolidation_pass(
            self.network, self.optimizer, self.images, self.config, step.number, self.world
        )
        self.views += views
        return self._measure(labels_i, labels_j)

    def _measure(self, labels_i: Tensor, labels_j: Tensor) -> Measures:
        return measure(labels_i.cpu(), labels_j.cpu(), self.network.clusters, self.config.consolidation.tau)

    def _training_views(self, positions: Tensor, step: int) -> population.Views:
        """Fresh views of these images, each augmented on its own."""
        generator = randomness.torch_generator(self.config.seed, "views", step)
        pixels = to_float(self.images[positions].to(self.device))
        views = make_views(pixels, self.config.views, generator)
        return population.Views(
            *(augment(view, self.config.augmentation, generator, signed=self.config.views.signed) for view in views)
        )

    def _start(self) -> ClusterNetwork:
        """The random start: calibrated heads for the relaxed search, the paper's lively draw for evolution."""
        settings = self.config.network
        channels = self.images.shape[1]
        if self.config.schedule[0].kind == "relaxed":
            heads = self.config.relaxed.heads
            network = fresh_network(channels, settings, heads, self.config.seed, backbone=self.backbone).to(self.device)
            if self.config.relaxed.calibrate:
                relaxed.calibrate(network, self.images, self.config)
            return network
        views = self._training_views(torch.arange(min(500, len(self.images))), 0)

        def draw(attempt: int) -> ClusterNetwork:
            return fresh_network(channels, settings, 1, self.config.seed, attempt, self.backbone).to(self.device)

        def alive(network: ClusterNetwork) -> int:
            labels = population.member_labels(network, flatten(network), views, self.config.evolution.chunk)
            return 0 if labels is None else len(torch.cat(labels).bincount().nonzero())

        return lively_network(draw, alive, min(settings.alive, settings.clusters))

    def _shared_state(self) -> list[Tensor]:
        """What must be the same in every process."""
        slots = [] if self.optimizer is None else list(self.optimizer.state.values())
        return [*self.network.state_dict().values(), *(value for slot in slots for value in slot.values())]

    def snapshot(self) -> Snapshot:
        """A copy of the state after the last finished step."""
        tensors = {f"network.{name}": value.clone() for name, value in self.network.state_dict().items()}
        if self.searched:
            tensors |= {f"searched.{name}": value for name, value in self.searched.state_dict().items()}
        if self.neighbours is not None:
            tensors["neighbours"] = self.neighbours
        optimizer = self.optimizer.state_dict() if self.optimizer else None
        if optimizer:
            for index, slots in optimizer["state"].items():
                tensors |= {f"optimizer.{index}.{slot}": value.clone() for slot, value in slots.items()}
        data = {
            "step": self.step,
            "views": self.views,
            "seconds": self.seconds,
            "heads": self.network.heads,
            "clusters": self.network.clusters,
            "optimizer": optimizer and optimizer["param_groups"],
            "merged": self.merged and self.merged._asdict(),
            "random": randomness.global_state(),
        }
        return Snapshot(tensors, data)

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot of a trainer with the same images and configuration."""
        tensors, data = snapshot
        channels = self.images.shape[1]
        self.network = network_of(snapshot, self.config, channels, self.backbone)
        self.searched = searched_network_of(snapshot, self.config, channels, self.backbone)
        self.neighbours = tensors.get("neighbours")
        self.seen = None
        self.step, self.views, self.seconds = data["step"], data["views"], data["seconds"]
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


def check_fit(images: Tensor, config: Config) -> None:
    """Refuse images and settings that do not fit each other."""
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise ValueError(f"images are {images.dtype} of shape {tuple(images.shape)}; uint8 (N, C, H, W) is wanted")
    kinds = {stage.kind for stage in config.schedule}
    for kind, batch in schedule.batch_sizes(config).items():
        if kind in kinds and batch > len(images):
            raise ValueError(
                f"{kind}.batch is {batch} but there are only {len(images)} images; "
                f"give --{kind}.batch {len(images)} or less"
            )
    side = min(images.shape[2:]) * config.views.upsample
    if config.augmentation.crop >= side:
        raise ValueError(
            f"augmentation.crop is {config.augmentation.crop} but the views are only {side} pixels wide or high"
        )
