"""One initialization from its first step to its last, one record per step. It touches no file and prints nothing.

    trainer = Trainer(images, config)
    for record in trainer.run():
        ...

Between two records ``trainer.snapshot()`` is everything needed to continue from there, bit for bit. The loop over
several initializations is in ``restarts.py``.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Generator
from concurrent.futures import Executor

import torch
from torch import Tensor

from ..config import Config
from ..core import rng
from ..core.augment import augment
from ..core.measures import Measures, measure
from ..core.metrics import Labels
from ..core.views import make_views, to_float
from ..distributed.group import current
from ..model.backbone import Backbone
from ..model.inference import logits_of, map_augmented_views, view_features
from ..model.network import ClusterNetwork, flatten, load_flat
from ..model.precision import exact, multiplying
from . import (
    co_assignment,
    consolidate,
    copies,
    evolution,
    graph_start,
    guided,
    head_fusion,
    merge,
    neighbors,
    population,
    relaxed,
    schedule,
)
from .chunking import resolve_hardware
from .initialization import initial_network
from .optimizer import Optimizer
from .record import Record
from .snapshot import Networks, Snapshot
from .threads import available_threads, thread_pool, torch_threads

SYNC_EVERY = 100
"""Steps after which the processes of a group compare their weights."""
DISCRIMINANT_SAMPLE = 10_000
"""Images from which the heads of a graph stage are computed."""
GROWTH = 5 / 4
"""If more than so many times the clusters of a round before hold, or all that the coarsest head has, the search may not
have found all: the next graph is clustered more finely, and optional stages are not skipped."""
OVER_PRODUCTION = 1.5
"""The coarsest clustering then has this many times the clusters that hold."""


class Trainer:
    """Takes one network through the schedule."""

    def __init__(
        self,
        images: Tensor,
        config: Config,
        score: evolution.Score | None = None,
        backbone: Backbone | None = None,
    ) -> None:
        """``images``: uint8 (N, C, H, W). ``score``: what evolution maximizes instead of the configured score.
        ``backbone``: the user's own network instead of ResNet-9.
        """
        schedule.check_images(images, config)
        self.images = images
        self.config = config = resolve_hardware(config, images)
        self.backbone = backbone
        self.score = score or evolution.named_score(config.evolution.score, config.max_clusters)
        self.device = torch.device(config.device)
        self.threads = config.threads or available_threads()
        self.total = schedule.count_steps(config, len(images))
        self.step = 0
        self.views = 0
        self.seconds = 0.0
        self.optimizer: Optimizer | None = None
        self.neighbors: Tensor | None = None
        self.memory: guided.Memory | None = None
        """What spans the subspace of guided evolution."""
        self.targets: Tensor | None = None
        """The clusters that the heads imitate in a graph stage, and started from afterwards. (N, heads)"""
        self.graph_floor: Tensor | None = None
        """The entropy that each head must have until the graph is clustered for the last time. (all heads,)"""
        self.held: list[int] = []
        """The numbers of clusters that held each time before the graph was clustered again."""
        self.grows = False
        """Whether there may be more clusters than the search has found, so that the next graph is clustered finely."""
        self.copies: Tensor | None = None
        """The first image of each image's group of near-duplicates. (N,)"""
        self.merge_features: Tensor | None = None
        """Both views' features of all images at the last merge (N, 2, D), unless the run was resumed after it."""
        self._merge_step: int | None = None
        self.networks = Networks(self._initial_network())

    @property
    def network(self) -> ClusterNetwork:
        return self.networks.network

    def run(self) -> Generator[Record]:
        """Work through the remaining steps of the schedule."""
        remaining = itertools.islice(schedule.steps(self.config, len(self.images)), self.step, None)
        group = current()
        self.threads = max(1, (self.config.threads or available_threads()) // group.local_size)
        with thread_pool(self.threads, self.device) as workers, multiplying(self.config.precision, self.device):
            for step in remaining:
                began = time.perf_counter()
                if self._skips(step):
                    self.step = step.number + 1
                    continue
                measures = self._do(step, workers)
                if step.number % SYNC_EVERY == SYNC_EVERY - 1:
                    group.check_sync(self._shared_state())
                self.step = step.number + 1
                self.seconds += time.perf_counter() - began
                yield Record(
                    step=step.number, epoch=step.epoch, stage=step.stage, kind=step.kind, **measures._asdict(),
                    views=self.views, seconds=round(self.seconds, 3),
                )  # fmt: skip

    def _skips(self, step: schedule.Step) -> bool:
        """Whether a step is left out: optional ones are, unless the number of clusters that hold has grown."""
        clusters_again = step.kind == "graph" and step.first and self.targets is not None
        if clusters_again and (self.grows or not step.optional):
            number, coarsest = self._number_that_holds(step)
            # Where nothing holds at first, finer clusters would be those of noise or of ever smaller differences.
            before = self.held[-1] if self.held else number
            self.grows = number > GROWTH * before > GROWTH or number >= coarsest > 1
            self.held.append(number)
        return step.optional and not self.grows

    def _do(self, step: schedule.Step, workers: Executor) -> Measures:
        if step.kind in ("evolution", "guided"):
            return self._evolve(step, workers)
        if step.kind in ("graph", "relaxed", "refine"):
            return self._relax(step)
        if step.kind == "merge":
            return self._merge(step)
        return self._consolidate(step)

    def _evolve(self, step: schedule.Step, workers: Executor) -> Measures:
        """Score a population around θ and move θ (paper 3.3, eq. 8)."""
        settings = self.config.evolution
        positions = schedule.batch_positions(step, self.images, self.config.seed)
        views = self._training_views(positions, step.number, self._evolution_partners(positions, step))
        fraction = evolution.fraction_perturbed(step.epoch, settings)
        guide = self._guide(step, views) if step.kind == "guided" else None
        generation = evolution.Generation(self.config.seed, step.number, fraction, settings, guide)
        labeler = population.BatchLabeler(self.network, views, settings.chunk_size, workers, self.config.precision)
        theta = flatten(self.network)
        scores = population.scores(labeler, theta, generation, self.score)
        updated = evolution.tell(theta, scores, generation)
        if step.kind == "guided" and self.memory is not None:
            self.memory = self.memory.with_update(updated - theta, self.config.guided)
        load_flat(updated, self.network)
        labels_i, labels_j = population.refresh(labeler)
        self.views += 2 * len(positions) * (settings.population + 1)
        return self._measure(labels_i, labels_j)

    def _evolution_partners(self, positions: Tensor, step: schedule.Step) -> Tensor | None:
        """The images from which view j of these images comes; None if it is always their own."""
        probability = self.config.evolution.neighbor_prob
        if not probability:
            return None
        if self.neighbors is None:
            self.neighbors = self.nearest_neighbors()
        generator = rng.torch_generator(self.config.seed, "partners", step.number)
        return neighbors.draw_partners(self.neighbors, positions, probability, generator)

    def _guide(self, step: schedule.Step, views: population.ViewPair) -> evolution.Guide:
        """The subspace of this step, with the newest gradient of the relaxed surprise."""
        settings = self.config.guided
        memory = guided.Memory.empty(flatten(self.network)) if step.first or self.memory is None else self.memory
        if settings.gradients:
            gradient = guided.surrogate_gradient(self.network, views, self.config)
            memory = memory.with_gradient(gradient, settings)
            self.views += 2 * min(settings.batch_size, len(views.i))
        self.memory = memory
        return evolution.Guide(memory.basis(), settings.share)

    def _relax(self, step: schedule.Step) -> Measures:
        """One gradient step: on the relaxed surprise, or towards clusterings of the neighbor graph."""
        if step.first:
            self._begin_stage(step)
        assert self.optimizer is not None
        assert self.neighbors is not None
        positions = schedule.batch_positions(step, self.images, self.config.seed)
        generator = rng.torch_generator(self.config.seed, "partners", step.number)
        partners = neighbors.draw_partners(self.neighbors, positions, self.config.relaxed.neighbor_prob, generator)
        whole = len(positions)
        self.views += 2 * whole
        group, shard = current().shard(whole)
        if shard is not None:
            positions, partners = shard.of(positions), shard.of(partners)
        pixels = self.images[positions]
        targets = self.targets[positions] if step.kind == "graph" and self.targets is not None else None
        others = neighbors.partner_images(self.images, partners)
        pairs = relaxed.Pairs(pixels, others, targets, group, shard)
        info = relaxed.StepInfo(step.number, step.in_stage, step.progress, step.kind == "refine", self._floor(step))
        labels = relaxed.relaxed_step(self.network, self.optimizer, pairs, self.config, info)
        # The middle head has the middle granularity.
        middle = min(self.network.heads, self.config.relaxed.heads) // 2
        both = torch.stack(labels, 1)[..., middle].cpu()
        return self._measure(*group.gather(both, whole).unbind(1))

    def _floor(self, step: schedule.Step) -> Tensor | None:
        """The entropy below which each head is penalized in this step. (heads,)"""
        settings = self.config.relaxed
        if step.kind == "refine":
            return None
        if self.targets is None:
            return relaxed.floors(settings, self.network.heads) if step.progress < settings.diversity_until else None
        # Once the graph is not clustered again, all heads go on by themselves.
        return self.graph_floor if step.graph_ahead else None

    def _set_targets(self, targets: Tensor) -> None:
        """What heads imitate (N, heads); the other heads must have as many clusters, from coarse to fine."""
        self.targets = targets
        found = graph_start.entropies(targets)
        spread = torch.linspace(0, len(found) - 1, self.config.relaxed.random_heads).round().long()
        self.graph_floor = torch.cat([torch.zeros_like(found), found[spread]])

    def _begin_stage(self, step: schedule.Step) -> None:
        """What a sequence of gradient steps of one kind needs: neighbors, targets, an optimizer."""
        if step.kind == "refine":
            # Right after the merge the features of the images are known.
            features = self.merge_features if self._merge_step == step.number - 1 else None
            self.neighbors = self.nearest_neighbors(self.network, features)
        elif step.kind == "graph":
            self._cluster_neighbor_graph(step)
        elif self.neighbors is None:  # after a graph stage they are known
            self.neighbors = self.nearest_neighbors()
        self.optimizer = relaxed.new_optimizer(self.network, self.config, step.kind == "refine")

    def _cluster_neighbor_graph(self, step: schedule.Step) -> None:
        """Set the targets of a graph stage: by edges at the beginning of a run, later by the learned features."""
        settings = self.config.relaxed
        count = max(settings.graph_neighbors, settings.neighbors)
        near = self.nearest_neighbors(self.network if step.number else None, count=count)
        assert self.copies is not None
        self.neighbors = near[:, : settings.neighbors].contiguous()
        links = near[:, : settings.graph_neighbors]
        least = OVER_PRODUCTION * self.held[-1] if self.grows and settings.grow else 0.0
        found = graph_start.cluster_graph(links, self.copies, self.config, step.number, least)
        network, targets = graph_start.fit_outputs(self.network, found, settings.grow)
        self._set_targets(targets)
        # Features that are not trained separate a clustering at once, and heads would never give it up.
        self.networks = Networks(network if self.config.views.stored else self._as_discriminants(network, step))

    def _number_that_holds(self, step: schedule.Step) -> tuple[int, int]:
        """The number of clusters that the heads of the graph would be merged to now, 1 if not even two clearly hold,
        and the number that the coarsest of them has before merging.
        """
        network = self.network.select_heads(self._kinds_of_heads()[0])
        positions = self._sample(len(self.images), step)
        features = view_features(network, self.images, self.config.views, positions)
        counts, labels = self._co_assignments(network, features, positions)
        trees, found = merge.select_kind(counts, labels, [range(network.heads)], self.config).selection
        number = 1 if found.one_is_a_level else found.n_clusters
        return number, min(tree.n_clusters for tree in trees)

    def _sample(self, count: int, step: schedule.Step) -> Tensor:
        """Rows on which clusters are tested and heads compared."""
        generator = rng.torch_generator(self.config.seed, "heads", step.number)
        return torch.randperm(count, generator=generator)[: co_assignment.SAMPLE]

    def _co_assignments(
        self, network: ClusterNetwork, features: Tensor, positions: Tensor
    ) -> tuple[co_assignment.CoAssignments, Labels]:
        """How neighbors among the images at some positions (n,) are clustered, and the outputs of every head for their
        first views (n, heads). ``features``: of both views of those images (n, 2, D)
        """
        sides = [logits_of(network, side).argmax(-1).reshape(len(side), -1) for side in features.unbind(1)]
        points = neighbors.image_points(self.images[positions], self.config, network, features)
        if self.copies is None:
            self.nearest_neighbors()
        assert self.copies is not None
        groups = copies.groups_within(self.copies, positions)
        items = max(2, len(copies.members(groups).leaders))
        widest = co_assignment.widths(items)[-1]
        near = copies.neighbors_beyond(points, groups, widest, neighbors.Search(self.config.seed, self.threads))
        counts = co_assignment.CoAssignments.count(torch.stack(sides, 1), near, network.n_outputs, items)
        return counts, sides[0].numpy()

    def _as_discriminants(self, network: ClusterNetwork, step: schedule.Step) -> ClusterNetwork:
        """The network with heads that separate their targets as well as the present features allow."""
        assert self.targets is not None
        generator = rng.torch_generator(self.config.seed, "discriminant", step.number)
        sample = torch.randperm(len(self.images), generator=generator)[:DISCRIMINANT_SAMPLE].sort().values
        features = map_augmented_views(network, self.images[sample], self.config, generator, network.features)
        network = graph_start.discriminant_heads(network, features, self.targets[sample].repeat(2, 1))
        current().broadcast_tensors(network.head.parameters())  # it may differ in the last bits between machines
        return network

    def nearest_neighbors(
        self, network: ClusterNetwork | None = None, features: Tensor | None = None, count: int | None = None
    ) -> Tensor:
        """Neighbors of every image by edges or by a network's features, none of them its near-duplicate. (N, count)"""
        search = neighbors.Search(self.config.seed, self.threads)
        points = neighbors.image_points(self.images, self.config, network, features)
        if self.copies is None:
            self.copies = copies.copy_groups(points, search)
        return copies.neighbors_beyond(points, self.copies, count or self.config.relaxed.neighbors, search)

    def _unlearned_neighbors(self, positions: Tensor) -> Tensor:
        """Neighbors among the images at some positions (n,) that do not depend on the network: those by its features
        would confirm what it has joined. By edges, from which the search started, and by pixels, unless light and color
        do not count. (n, k)
        """
        embeddings = [neighbors.image_embedding(self.images, self.config, None)]
        if not self.config.views.stored and not self.config.views.edges:
            embeddings.append(neighbors.pixel_embedding(self.images, self.config))
        assert self.copies is not None
        groups = copies.groups_within(self.copies, positions)
        search = neighbors.Search(self.config.seed, self.threads)
        found = [
            copies.neighbors_beyond(points, groups, self.config.relaxed.neighbors, search)
            for points in (neighbors.points_at(self.images, positions, embedding) for embedding in embeddings)
        ]
        return torch.cat(found, 1)

    def _merge(self, step: schedule.Step) -> Measures:
        """Merge the clusters of every head, select a head, and fit one head to the result."""
        positions = neighbors.pool_positions(len(self.images), self.config.seed)
        # Everything that follows uses the same views and the same backbone.
        features = view_features(self.network, self.images, self.config.views, positions)
        rows = self._sample(len(features), step)
        counts, labels = self._co_assignments(self.network, features[rows], positions[rows])
        kind = merge.select_kind(counts, labels, self._kinds_of_heads(), self.config)
        trees, result = kind.selection
        network = self.network.select_heads(kind.heads)
        evidence = head_fusion.Evidence(features, self._unlearned_neighbors(positions), trees, result)
        fused = head_fusion.fuse_heads(network, self.images, evidence, self.config, step.number)
        self.networks = Networks(fused, network.select_head(result.head), result)
        self.optimizer = self.memory = None  # they refer to replaced parameters
        self.merge_features = features if len(features) == len(self.images) else None
        self._merge_step = step.number
        return self._measure(*(logits_of(self.network, side).argmax(-1) for side in features.unbind(1)))

    def _kinds_of_heads(self) -> list[range]:
        """The heads that started from the neighbor graph, and those that started from random directions."""
        heads = self.network.heads
        imitating = heads if self.targets is None else min(heads, self.targets.shape[1])
        return [kind for kind in (range(imitating), range(imitating, heads)) if kind]

    def _consolidate(self, step: schedule.Step) -> Measures:
        """One pass of gradient training on the surprising clusters (paper 3.3, algorithm 1)."""
        if step.first:
            self.optimizer = consolidate.new_optimizer(self.network, self.config)
        assert self.optimizer is not None
        labels_i, labels_j, views = consolidate.consolidation_pass(
            self.network, self.optimizer, self.images, self.config, step.number
        )
        self.views += views
        return self._measure(labels_i, labels_j)

    def _measure(self, labels_i: Tensor, labels_j: Tensor) -> Measures:
        return measure(labels_i.cpu(), labels_j.cpu(), self.network.n_outputs, self.config.consolidation.tau)

    def _training_views(self, positions: Tensor, step: int, partners: Tensor | None = None) -> population.ViewPair:
        """New views of these images, each augmented on its own; view j is of the partners, if there are any."""
        generator = rng.torch_generator(self.config.seed, "views", step)
        pixels = to_float(self.images[positions].to(self.device))
        others = None if partners is None else to_float(self.images[partners].to(self.device))
        views = make_views(pixels, self.config.views, generator, others)
        signed = self.config.views.signed
        return population.ViewPair(*(augment(v, self.config.augmentation, generator, signed=signed) for v in views))

    def _initial_network(self) -> ClusterNetwork:
        """The initial network; it depends neither on the number of processes nor on the precision."""
        with torch_threads(self.threads), exact(self.device):
            few = torch.arange(min(500, len(self.images)))
            return initial_network(self.images, self.config, self.backbone, lambda: self._training_views(few, 0))

    def _shared_state(self) -> list[Tensor]:
        """The tensors that must be equal in every process."""
        slots = [] if self.optimizer is None else list(self.optimizer.adam.state.values())
        memory = () if self.memory is None else self.memory
        return [*self.network.state_dict().values(), *(value for slot in slots for value in slot.values()), *memory]

    def snapshot(self) -> Snapshot:
        """A copy of the state after the last completed step."""
        tensors, described = self.networks.snapshot()
        if self.neighbors is not None:
            tensors["neighbors"] = self.neighbors
        if self.targets is not None:
            tensors["targets"] = self.targets
        if self.copies is not None:
            tensors["copies"] = self.copies
        if self.optimizer is not None:
            tensors |= self.optimizer.tensors()
        if self.memory is not None:
            tensors |= self.memory.tensors()
        data = {
            "step": self.step,
            "views": self.views,
            "seconds": self.seconds,
            "held": list(self.held),
            "grows": self.grows,
            **described,
            "optimizer": self.optimizer and self.optimizer.data(),
            "random": rng.global_state(),
        }
        return Snapshot(tensors, data)

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot of a trainer with the same images and configuration."""
        tensors, data = snapshot
        self.networks = Networks.restore(snapshot, self.config, self.images.shape[1], self.backbone)
        self.neighbors, self.copies = tensors.get("neighbors"), tensors.get("copies")
        self.targets = self.graph_floor = None
        if (targets := tensors.get("targets")) is not None:
            self._set_targets(targets)
        self.memory = guided.Memory.load(tensors, self.device)
        self.merge_features = None
        self.step, self.views, self.seconds = data["step"], data["views"], data["seconds"]
        self.held, self.grows = list(data["held"]), data["grows"]
        self.optimizer = None
        if data["optimizer"]:
            self.optimizer = Optimizer(self.network, self.config.precision)
            self.optimizer.load(tensors, data["optimizer"])
        rng.restore_global_state(data["random"])
