"""Gradient training with the surprising clusters as labels (paper 3.3, algorithm 1).

One pass: label the un-augmented views in evaluation mode, keep the contributing images, balance them to the median
cluster size, draw new views and augmentations, and minimize the cross-entropy of both views with the image's cluster.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..config import Config
from ..core import rng, surprise
from ..core.augment import augment
from ..core.views import make_views, to_float
from ..distributed.group import current
from ..distributed.sync_batchnorm import synced_batchnorm
from ..model import precision
from ..model.inference import label_views
from ..model.network import ClusterNetwork, channels_last
from .optimizer import Optimizer
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
    if len(chosen) > LIMIT:  # ordered like an epoch of the search, to read the file in long stretches
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


def new_optimizer(network: ClusterNetwork, config: Config) -> Optimizer:
    return Optimizer(network, config.precision, config.consolidation.learning_rate)


def consolidation_pass(
    network: ClusterNetwork, optimizer: Optimizer, images: Tensor, config: Config, step: int
) -> tuple[Tensor, Tensor, int]:
    """One pass over the contributing images.

    Returns the labels (N,) of both views before the pass and the number of views trained on (0 if no cluster is
    surprising).
    """
    labels_i, labels_j = label_views(network, images, config.views)
    balance = rng.torch_generator(config.seed, "balance", step)
    positions, labels = surrogate_set(labels_i, labels_j, network.n_outputs, config.consolidation.tau, balance)
    generator = rng.torch_generator(config.seed, "consolidation", step)
    network.train()
    # Nearly equal batches, so that the last one is not too small for batch normalization.
    batches = max(1, round(len(positions) / config.consolidation.batch_size))
    for part in torch.arange(len(positions)).tensor_split(batches):
        if len(part) >= 2:
            _train_on_batch(network, optimizer, (images, positions[part], labels[part]), config, generator)
    return labels_i, labels_j, 2 * len(positions)


def _train_on_batch(
    network: ClusterNetwork,
    optimizer: Optimizer,
    batch: tuple[Tensor, Tensor, Tensor],
    config: Config,
    generator: torch.Generator,
) -> None:
    """One step on the images at some positions (n,) with these labels (n,)."""
    images, positions, labels = batch
    group, shard = current().shard(len(positions))
    if shard is not None:
        positions, labels = shard.of(positions), shard.of(labels)
    device = next(network.parameters()).device
    pixels, target = to_float(images[positions].to(device)), labels.to(device)
    loss = torch.zeros((), device=device)
    with synced_batchnorm(network, group):
        for view in make_views(pixels, config.views, generator, shard=shard):
            augmented = augment(view, config.augmentation, generator, shard, signed=config.views.signed)
            with precision.lowered(config.precision, device):
                outputs = network(channels_last(augmented))
            loss = loss + F.cross_entropy(outputs * config.consolidation.logit_scale, target)
    # The loss of each shard is weighted by its rows; the gradients are summed over the processes.
    weighted = loss if shard is None else loss * (len(positions) / shard.whole)
    optimizer.minimize(weighted, partial(group.sum_gradients, network))
