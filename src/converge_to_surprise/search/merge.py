"""Which boundaries between clusters hold: the merge tree, its cut, the choice among heads.

Two kinds of pairs try the boundaries: two views of one image, augmented more widely than in training, and views of two
images that look alike. For two clusters a and b the 2x2 table of co-assignments says how well the boundary between them
holds: its phi coefficient is 1 if the views of a pair are never on different sides and 0 if that is left to chance. The
pair of clusters with the weakest boundary is merged, again and again.

As long as the boundaries between different things are all that is left, the weakest of them is about as strong as it will
be after the next merge; a boundary inside one thing is plainly weaker. So the curve of the weakest boundary against the
number of clusters is flat up to the right number and falls after it: that is where the trees are cut.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..config import Augmentation, Config, Merge
from ..core import rng as randomness
from ..core import surprise
from ..core.augment import augment, pass_over, widened
from ..core.metrics import Labels, adjusted_rand_index
from ..core.views import make_views, to_float
from ..distributed.group import SINGLE, ProcessGroup
from ..model.inference import CHUNK
from ..model.network import ClusterNetwork, channels_last
from .neighbors import partners

Table = npt.NDArray[np.float64]

PAIRS_PER_IMAGE = 20
"""More pairs of one image say little that is new."""


class MergeStep(NamedTuple):
    """Two clusters become one."""

    kept: int
    gone: int
    phi: float
    """How well their boundary held."""


class MergeTree(NamedTuple):
    """All joins of a head from its finest clusters to one, weakest boundary first."""

    joins: list[MergeStep]
    outputs: int
    clusters: int
    """Clusters before the first join that is not the dissolution of a tiny one."""

    @property
    def alive(self) -> list[int]:
        """Outputs that were given to any view."""
        return sorted({output for join in self.joins for output in (join.kept, join.gone)})

    def groups(self, clusters: int) -> list[int]:
        """For every output the output that stands for its cluster, once ``clusters`` clusters are left."""
        groups = np.arange(self.outputs)
        for kept, gone, _ in self.joins[: len(self.joins) + 1 - clusters]:
            groups[groups == gone] = kept
        return [int(group) for group in groups]

    def representatives(self, clusters: int) -> list[int]:
        """The outputs that stand for the clusters, once ``clusters`` are left."""
        groups = self.groups(clusters)
        return sorted({groups[output] for output in self.alive}) or [0]

    def boundary(self, clusters: int) -> float:
        """phi of the weakest boundary among ``clusters`` clusters."""
        return self.joins[len(self.joins) + 1 - clusters].phi if clusters > 1 else 1.0


class BoundaryCounts(NamedTuple):
    """How often each pair of clusters was given to a pair of views, for every head. (heads, K, K) each"""

    wide: Tensor
    """Two views of one image, widely augmented."""
    alike: Tensor
    """Views of two images that look alike, augmented as in training."""


class MergeResult(NamedTuple):
    """Where the trees were cut, which head stands for them, and why."""

    clusters: int
    head: int
    outputs: list[int]
    """The output of that head that stands for each cluster."""
    joins: list[MergeStep]
    """The head's whole merge tree."""
    boundaries: dict[int, float]
    """phi of the weakest boundary of the typical head at each number of clusters."""
    information: list[float]
    """What each head's label of an image says about the label of its neighbor, at the cut, in nats."""
    agreement: list[float]
    """Adjusted Rand index of the chosen head with every head at the cut."""

    @classmethod
    def of(cls, data: dict[str, Any]) -> MergeResult:
        """A choice from its fields as plain data."""
        joins = [MergeStep(*join) for join in data["joins"]]
        boundaries = {int(clusters): value for clusters, value in data["boundaries"].items()}
        return cls(**(data | {"joins": joins, "boundaries": boundaries}))

    @property
    def finest(self) -> int:
        """Clusters before any merging."""
        return len(self.joins) + 1

    def coarser(self, clusters: int) -> list[int]:
        """For every cluster the one that stands for it when only ``clusters`` are left."""
        groups = self.finer(clusters, 1 + max([*self.outputs, *(join.gone for join in self.joins)]))
        return [self.outputs.index(groups[output]) for output in self.outputs]

    def finer(self, clusters: int, outputs: int) -> list[int]:
        """For every output of the head the one that stands for it when ``clusters`` clusters are left."""
        return MergeTree(self.joins, outputs, self.finest).groups(clusters)


@torch.inference_mode()
def count_boundary_pairs(
    network: ClusterNetwork, images: Tensor, neighbors: Tensor, config: Config, step: int, world: ProcessGroup = SINGLE
) -> BoundaryCounts:
    """Label pairs of both kinds."""
    side = min(images.shape[2:]) * config.views.upsample
    wide = widened(config.augmentation, config.merge.rotation, round(config.merge.crop * side))
    generator = randomness.torch_generator(config.seed, "merge", step)
    device = next(network.parameters()).device

    def tally(settings: Augmentation, pairs: int, share: float) -> Tensor:
        total = torch.zeros(network.heads, network.clusters, network.clusters, dtype=torch.long)
        # Each chunk is counted by one process.
        own = range(world.rank * CHUNK, pairs, world.size * CHUNK)
        for start in range(0, pairs, CHUNK):
            count = min(CHUNK, pairs - start)
            positions = torch.randint(len(images), (count,), generator=generator)
            others = partners(neighbors, positions, share, generator)
            if start not in own:
                pass_over(settings, count, generator)
                continue
            pixels = [to_float(images[which].to(device)) for which in (positions, others)]
            labels = [
                network.logits(channels_last(augment(view, settings, generator, signed=config.views.signed)))
                .argmax(-1)
                .reshape(count, -1)
                .t()
                .cpu()
                for view in make_views(pixels[0], config.views, generator, pixels[1])
            ]
            total += surprise.joint_counts(labels[0], labels[1], network.clusters)
        return world.sum(total)

    most = PAIRS_PER_IMAGE * len(images)
    network.eval()
    trial = BoundaryCounts(
        tally(wide, min(most, config.merge.augmented_pairs), share=0.0),
        tally(config.augmentation, min(most, config.merge.neighbor_pairs), share=1.0),
    )
    network.train()
    return trial


def phi(table: Table, a: int, b: int) -> float:
    """The phi coefficient of the boundary between clusters a and b in a symmetric table of co-assignments."""
    within = table[a, a] * table[b, b] - table[a, b] * table[b, a]
    sides = (table[a, a] + table[a, b]) * (table[b, a] + table[b, b])
    return float(within / sides) if sides > 0 else 0.0


def merge_tree(joint: Table, smallest: float) -> MergeTree:
    """The merge tree of a head from its co-assignments (K, K).

    A cluster with less than ``smallest`` of the views is dissolved first, into the one that it is most confused with.
    """
    table = (joint + joint.T) / 2
    alive = [int(k) for k in np.flatnonzero(table.sum(1) > 0)]
    joins: list[MergeStep] = []

    def join(kept: int, gone: int) -> None:
        joins.append(MergeStep(kept, gone, phi(table, kept, gone)))
        table[kept] += table[gone]
        table[:, kept] += table[:, gone]
        table[gone] = table[:, gone] = 0
        alive.remove(gone)

    while len(alive) > 1:
        size = table.sum(1)
        least = min(alive, key=lambda k: (size[k], k))
        if size[least] >= smallest * size.sum():
            break
        join(max((k for k in alive if k != least), key=lambda k: (table[least, k], size[k], -k)), least)
    clusters = len(alive)
    while len(alive) > 1:
        pairs = [(a, b) for position, a in enumerate(alive) for b in alive[position + 1 :]]
        a, b = min(pairs, key=lambda pair: phi(table, *pair))
        size = table.sum(1)
        join(*((a, b) if size[a] >= size[b] else (b, a)))
    return MergeTree(joins, len(joint), clusters)


def typical_boundaries(trees: list[MergeTree]) -> dict[int, float]:
    """phi of the weakest boundary at every number of clusters, median over the heads that have so many."""
    return {
        clusters: float(np.median([tree.boundary(clusters) for tree in trees if tree.clusters >= clusters]))
        for clusters in range(2, max(tree.clusters for tree in trees) + 1)
    }


def cut(boundaries: dict[int, float], drop: float) -> int:
    """The largest number of clusters whose weakest boundary is not ``drop`` below what it typically was with fewer.

    >>> cut({2: 0.95, 3: 0.91, 4: 0.93, 5: 0.92, 6: 0.80, 7: 0.78}, drop=0.05)
    5
    """
    kept = sorted(boundaries)[:1]
    for clusters in sorted(boundaries)[1:]:
        if boundaries[clusters] >= np.median([boundaries[fewer] for fewer in kept]) - drop:
            kept.append(clusters)
    return kept[-1] if kept else 1


def head_agreement(trees: list[MergeTree], labels: Labels, clusters: int) -> Table:
    """Adjusted Rand index of every two heads, each cut to at most ``clusters`` clusters. (heads, heads)

    ``labels``: the un-merged outputs of some images under each head. (n, heads)
    """
    table = np.eye(len(trees))
    groups = [np.array(tree.groups(min(clusters, tree.clusters)))[labels[:, h]] for h, tree in enumerate(trees)]
    for a, b in itertools.combinations(range(len(trees)), 2):
        table[a, b] = table[b, a] = adjusted_rand_index(groups[a], groups[b])
    return table


def choose(trees: list[MergeTree], alike: Tensor, labels: Labels, settings: Merge) -> MergeResult:
    """Cut every head's tree at the same number of clusters and take the best head: no class is needed.

    A good clustering tells much apart and keeps together what looks alike: the information that an image's cluster
    carries about its neighbor's is high only if it does both. And what one head finds is more than chance if the other
    heads, which start from other random directions, find it too. The head with the largest product is taken.
    """
    boundaries = typical_boundaries(trees)
    clusters = min(settings.clusters or cut(boundaries, settings.drop), max(tree.clusters for tree in trees))
    able = [tree.clusters >= clusters for tree in trees]
    information = [
        float(surprise.mutual_information(grouped(counts, tree.groups(clusters)))) if fine else 0.0
        for tree, counts, fine in zip(trees, alike, able, strict=True)
    ]
    agreement = head_agreement(trees, labels, clusters)
    head = max(range(len(trees)), key=lambda h: (able[h], information[h] * agreement[h].mean(), -h))
    tree, agreed = trees[head], [float(value) for value in agreement[head]]
    return MergeResult(clusters, head, tree.representatives(clusters), tree.joins, boundaries, information, agreed)


def grouped(joint: Tensor, groups: list[int]) -> Tensor:
    """Counts of output pairs (K, K) as counts of cluster pairs."""
    index = torch.tensor(groups)
    rows = torch.zeros_like(joint).index_add_(0, index, joint)
    return torch.zeros_like(joint).index_add_(1, index, rows)
