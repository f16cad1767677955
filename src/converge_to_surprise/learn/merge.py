"""Which borders between clusters survive wider augmentation: the merge tree, its cut, the choice among heads.

Both views of an image are augmented more widely than in training and labelled. For two clusters a and b the 2x2 table
of co-assignments says how well the border between them holds: its phi coefficient is 1 if the two views never disagree
about the side and 0 if they do so by chance. The pair with the weakest border is merged, again and again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..config import Config
from ..core import surprise
from ..core.augment import augment, widened
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


class Choice(NamedTuple):
    """The head that was chosen, its whole merge tree and how far it was followed."""

    head: int
    tree: list[Join]
    joins: int
    groups: list[int]
    """For every output the output that stands for its cluster."""
    orderliness: list[float]
    """Ω after merging, of every head."""


@torch.inference_mode()
def co_assignments(network: ResNet9, images: Tensor, config: Config, step: int) -> Tensor:
    """How often each pair of clusters is given to the two widely augmented views of an image. (heads, K, K)"""
    generator = randomness.torch_generator(config.seed, "merge", step)
    wide = widened(config.augmentation, config.merge.widen)
    chosen = torch.randperm(len(images), generator=generator)[: config.merge.images]
    device = next(network.parameters()).device
    total = torch.zeros(network.heads, network.clusters, network.clusters, dtype=torch.long)
    network.eval()
    for _ in range(config.merge.repeats):
        for start in range(0, len(chosen), CHUNK):
            pixels = to_float(images[chosen[start : start + CHUNK]].to(device))
            labels = [
                network.logits(channels_last(augment(view, wide, generator))).argmax(-1).reshape(len(view), -1).t()
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


def merge_tree(joint: Table, smallest: float) -> tuple[list[Join], int]:
    """All joins from the finest clusters to one, weakest border first, and how many of them dissolve tiny clusters.

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
    dissolved = len(joins)
    while len(alive) > 1:
        pairs = [(a, b) for position, a in enumerate(alive) for b in alive[position + 1 :]]
        a, b = min(pairs, key=lambda pair: phi(table, *pair))
        size = table.sum(1)
        join(*((a, b) if size[a] >= size[b] else (b, a)))
    return joins, dissolved


def joins_below(tree: list[Join], dissolved: int, threshold: float) -> int:
    """How many joins to follow: the tiny clusters' and then every one up to the first border that holds."""
    followed = dissolved
    while followed < len(tree) and tree[followed].phi < threshold:
        followed += 1
    return followed


def groups_after(tree: list[Join], joins: int, clusters: int) -> list[int]:
    """For every output the output that stands for its cluster once the first ``joins`` joins are made."""
    groups = np.arange(clusters)
    for kept, gone, _ in tree[:joins]:
        groups[groups == gone] = kept
    return [int(group) for group in groups]


def merged_orderliness(joint: Tensor, groups: list[int]) -> float:
    """Ω of the co-assignments after merging."""
    index = torch.tensor(groups)
    merged = torch.zeros_like(joint)
    merged.index_put_((index[:, None].expand_as(joint), index[None, :].expand_as(joint)), joint, accumulate=True)
    return float(surprise.orderliness(merged))


def choose(joint: Tensor, config: Config) -> Choice:
    """Merge every head of (heads, K, K) co-assignments and take the one with the highest Ω: no label is needed."""
    options = []
    for head, counts in enumerate(joint):
        tree, dissolved = merge_tree(counts.double().numpy(), config.merge.smallest)
        joins = joins_below(tree, dissolved, config.merge.threshold)
        groups = groups_after(tree, joins, len(counts))
        options.append((merged_orderliness(counts, groups), head, tree, joins, groups))
    order = [option[0] for option in options]
    _, head, tree, joins, groups = max(options, key=lambda option: option[0])
    return Choice(head, tree, joins, groups, order)


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
