"""Gradient training on the clusters already found (paper 3.3, algorithm 1).

One pass: label the un-augmented views in evaluation mode, keep the contributing images, balance them to the median
cluster size, draw fresh views and augmentations, and minimize the cross-entropy of both views to the image's cluster.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..config import Config
from ..core import rng as randomness
from ..core import surprise
from ..core.augment import augment
from ..core.views import make_views, to_float
from ..distributed.group import SINGLE, ProcessGroup
from ..distributed.sync_batchnorm import synced_batchnorm
from ..model import precision
from ..model.inference import label_views
from ..model.network import ClusterNetwork, channels_last
from .sampler import LIMIT, blocked_epoch_indices


def median_balance(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Positions that give every cluster at most the median cluster size, drawn without replacement and shuffled.

    The median of an even number of sizes is the mean of the middle two, rounded down.
    """
    sizes = torch.bincount(labels)
    limit = int(np.median(sizes[sizes > 0].numpy()))
    shuffled = torch.randperm(len(labels), generator=generator)
    taken = [shuffled[labels[shuffled] == cluster][:limit] for cluster in torch.nonzero(sizes)[:, 0]]
    chosen = torch.cat(taken)
    if len(chosen) > LIMIT:  # read as an epoch of the search would be, in stretches of the file
        seed = int(torch.randint(2**62, (1,), generator=generator))
        return chosen.sort().values[blocked_epoch_indices(len(chosen), 0, len(chosen), seed, 0, "balance")]
    return chosen[torch.randperm(len(chosen), generator=generator)]


def surrogate_set(
    labels_i: Tensor, labels_j: Tensor, clusters: int, tau: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Positions of the training images of one pass and their surrogate labels, balanced and in random order."""
    counts = surprise.count(labels_i, labels_j, clusters)
    chosen = surprise.contributing(labels_i, labels_j, surprise.surprising(counts, tau))
    positions = torch.nonzero(chosen)[:, 0]
    if len(positions):
        positions = positions[median_balance(labels_i[positions], generator)]
    return positions, labels_i[positions]


def optimizer(network: ClusterNetwork, config: Config) -> torch.optim.Adam:
    return torch.optim.Adam(network.parameters(), lr=config.consolidation.learning_rate)


def consolidation_pass(
    network: ClusterNetwork,
    descent: torch.optim.Optimizer,
    images: Tensor,
    config: Config,
    step: int,
    world: ProcessGroup = SINGLE,
) -> tuple[Tensor, Tensor, int]:
    """One pass over the contributing images.

    Returns the labels (N,) of both views from which it started and how many views were trained on (none if no cluster
    was surprising).
    """
    labels_i, labels_j = label_views(network, images, config.views, world)
    balance = randomness.torch_generator(config.seed, "balance", step)
    positions, labels = surrogate_set(labels_i, labels_j, network.clusters, config.consolidation.tau, balance)
    generator = randomness.torch_generator(config.seed, "consolidation", step)
    device = next(network.parameters()).device
    network.train()
    # Near-equal batches, so that no last batch is too small for batch normalization.
    batches = max(1, round(len(positions) / config.consolidation.batch))
    for part in torch.arange(len(positions)).tensor_split(batches):
        if len(part) < 2:
            continue
        team, share = world.batch(len(part))
        own = part if share is None else share.of(part)
        pixels = to_float(images[positions[own]].to(device))
        target = labels[own].to(device)
        loss = torch.zeros((), device=device)
        with synced_batchnorm(network, team):
            for view in make_views(pixels, config.views, generator, share=share):
                with precision.lowered(config.precision, device):
                    outputs = network(
                        channels_last(augment(view, config.augmentation, generator, share, signed=config.views.signed))
                    )
                loss = loss + F.cross_entropy(outputs * config.consolidation.logit_scale, target)
        # Each process's share counts by its rows; the gradients are added up.
        weighted = loss if share is None else loss * (len(own) / share.whole)
        precision.descend(weighted, descent, config.precision, partial(team.sum_gradients, network))
    return labels_i, labels_j, 2 * len(positions)
