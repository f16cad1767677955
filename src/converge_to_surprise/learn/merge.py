"""Which borders between clusters survive wider augmentation: the merge tree, its cut, the choice among heads.

Both views of an image are augmented more widely than in training and labelled. For two clusters a and b the 2x2 table
of co-assignments says how well the border between them holds: its phi coefficient is 1 if the two views never disagree
about the side and 0 if they do so by chance. The pair with the weakest border is merged, again and again.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..config import Config
from ..core import surprise
from ..core.augment import augment, widened
from ..core.metrics import Labels, adjusted_rand_index
from ..core.views import make_views, to_float
from . import randomness
from .labelling import CHUNK
from .network import ResNet9, channels_last

Table = npt.NDArray[np.float64]


class Join(NamedTuple):
    """Two clusters become one."""

    kept: int
    gone: int
    phi: float
    """How well their border held."""


class Tree(NamedTuple):
    """All joins of a head from its finest clusters to one, weakest border first."""

    joins: list[Join]
    outputs: int
    clusters: int
    """Clusters before the first join that is not the dissolution of a tiny one."""

    def groups(self, clusters: int) -> list[int]:
        """For every output the output that stands for its cluster, once ``clusters`` clusters are left."""
        groups = np.arange(self.outputs)
        for kept, gone, _ in self.joins[: len(self.joins) + 1 - clusters]:
            groups[groups == gone] = kept
        return [int(group) for group in groups]

    def border(self, clusters: int) -> float:
        """phi of the weakest border among ``clusters`` clusters."""
        return self.joins[len(self.joins) + 1 - clusters].phi if clusters > 1 else 1.0


class Choice(NamedTuple):
    """The head that was chosen, how far it was merged, and why."""

    head: int
    clusters: int
    groups: list[int]
    """For every output the output that stands for its cluster."""
    joins: list[Join]
    """The chosen head's whole merge tree."""
    agreement: dict[int, float]
    """How well the heads agree with each other at each number of clusters that was considered."""


@torch.inference_mode()
def co_assignments(network: ResNet9, images: Tensor, config: Config, step: int) -> Tensor:
    """How often each pair of clusters is given to the two widely augmented views of an image. (heads, K, K)"""
    generator = randomness.torch_generator(config.seed, "merge", step)
    side = min(images.shape[2:]) * config.views.upsample
    wide = widened(config.augmentation, config.merge.rotation, round(config.merge.crop * side))
    device = next(network.parameters()).device
    total = torch.zeros(network.heads, network.clusters, network.clusters, dtype=torch.long)
    network.eval()
    for start in range(0, config.merge.pairs, CHUNK):
        count = min(CHUNK, config.merge.pairs - start)
        pixels = to_float(images[torch.randint(len(images), (count,), generator=generator)].to(device))
        labels = [
            network.logits(channels_last(augment(view, wide, generator))).argmax(-1).reshape(count, -1).t()
            for view in make_views(pixels, config.views, generator)
        ]
        total += surprise.joint_counts(labels[0], labels[1], network.clusters).cpu()
    network.train()
    return total


def phi(table: Table, a: int, b: int) -> float:
    """The phi coefficient of the border between clusters a and b in a symmetric table of co-assignments."""
    within = table[a, a] * table[b, b] - table[a, b] * table[b, a]
    sides = (table[a, a] + table[a, b]) * (table[b, a] + table[b, b])
    return float(within / sides) if sides > 0 else 0.0


def merge_tree(joint: Table, smallest: float) -> Tree:
    """The merge tree of a head from its co-assignments (K, K).

    A cluster with less than ``smallest`` of the views is dissolved first, into the one that it is most confused with.
    """
    table = (joint + joint.T) / 2
    alive = [int(k) for k in np.flatnonzero(table.sum(1) > 0)]
    joins: list[Join] = []

    def join(kept: int, gone: int) -> None:
        joins.append(Join(kept, gone, phi(table, kept, gone)))
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
    return Tree(joins, len(joint), clusters)


def head_agreement(trees: list[Tree], labels: Labels, clusters: int) -> Table:
    """Adjusted Rand index of every two heads, each cut to ``clusters`` clusters; NaN for heads that have fewer.

    ``labels``: the un-merged outputs of some images under each head. (n, heads)
    """
    table = np.full((len(trees), len(trees)), np.nan)
    able = [head for head, tree in enumerate(trees) if tree.clusters >= clusters]
    cut = {head: np.array(trees[head].groups(clusters))[labels[:, head]] for head in able}
    for a, b in itertools.combinations(able, 2):
        table[a, b] = table[b, a] = adjusted_rand_index(cut[a], cut[b])
    return table


def candidates(trees: list[Tree], weakest: float) -> list[int]:
    """Numbers of clusters worth considering, ascending.

    From half of what the heads have on upwards (very few clusters are agreed on too easily) to where the typical head
    begins to have a border below ``weakest``.
    """
    typical = float(np.median([tree.clusters for tree in trees]))
    found: list[int] = []
    for clusters in range(max(1, math.ceil(typical / 2)), max(tree.clusters for tree in trees) + 1):
        able = [tree for tree in trees if tree.clusters >= clusters]
        if 2 * len(able) < len(trees) or (found and np.median([tree.border(clusters) for tree in able]) < weakest):
            break
        found.append(clusters)
    return found


def choose(joint: Tensor, labels: Labels, config: Config) -> Choice:
    """Cut every head where the heads agree best with each other, and take the head in their midst: no class is needed.

    Heads start from different random directions. What they all find is in the images; where they differ is chance.
    """
    trees = [merge_tree(counts.double().numpy(), config.merge.smallest) for counts in joint]
    options = candidates(trees, config.merge.weakest)
    tables = {clusters: head_agreement(trees, labels, clusters) for clusters in options}
    agreement = {
        clusters: float(np.nanmean(table) + np.nanmedian(table)) / 2
        for clusters, table in tables.items()
        if not np.isnan(table).all()
    }
    if agreement:
        enough = max(agreement.values()) - config.merge.tolerance
        clusters = max(option for option, value in agreement.items() if value >= enough)
        means = np.array([-1.0 if np.isnan(row).all() else np.nanmean(row) for row in tables[clusters]])
        head = int(means.argmax())
    else:  # a single head: follow its tree down to borders that hold
        clusters, head = options[-1], int(np.argmax([tree.clusters for tree in trees]))
    return Choice(head, clusters, trees[head].groups(clusters), trees[head].joins, agreement)


@torch.no_grad()
def keep_head(network: ResNet9, choice: Choice) -> ResNet9:
    """A network of one head: the chosen one, with its merged outputs grouped."""
    single = ResNet9(network.channels, network.clusters, network.width).to(network.head.weight.device)
    state = network.state_dict()
    rows = slice(choice.head * network.clusters, (choice.head + 1) * network.clusters)
    state["head.weight"], state["head.bias"] = state["head.weight"][rows], state["head.bias"][rows]
    state["groups"] = torch.tensor([choice.groups])
    single.load_state_dict(state)
    return single
