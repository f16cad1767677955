"""One gradient step on the relaxed surprise.

The argmax in the counts becomes a softmax with temperature T over the l2-normalized logits P:

    p_k = mean of P_k over both views,   t_k = mean of P_k(view i) P_k(view j),   S = Σ_{t_k > p_k²} D(t_k ‖ p_k²)

which has a gradient: one backward pass replaces a population. T sets the resolution: lower values give finer clusters.
A head that starts from random directions is penalized during the first part of the search while its effective number
of clusters exp H(p) is below its floor, so that more clusters appear than will remain; merging then joins those that
belong together. The floors differ from head to head. After merging, refining moves the boundaries at a higher T: at low
T the softmax is nearly one-hot, so only boundary images receive gradient.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ..config import Config, Relaxed
from ..core import rng
from ..core.augment import augment
from ..core.surprise import divergence
from ..core.views import Shard, make_views, to_float
from ..distributed.group import SINGLE, ProcessGroup
from ..distributed.sync_batchnorm import synced_batchnorm
from ..model import precision
from ..model.network import ClusterNetwork, channels_last
from .graph_start import imitation_loss
from .optimizer import EPS, REFINE_EPS, Optimizer

WARM_UP = 30
"""Steps over which the learning rate rises."""
FLOOR = 1e-5
"""The learning rate at the end of the cosine."""
CALIBRATION_BATCH = 500
"""Images of each batch on which the heads are calibrated."""


def relaxed_surprise(
    soft_i: Tensor, soft_j: Tensor, group: ProcessGroup = SINGLE, shard: Shard | None = None
) -> tuple[Tensor, Tensor]:
    """S of soft assignments (B, heads, K) for each head, (heads,), and the mean assignment p, (heads, K).

    For a shard of a batch, p and t are those of the whole batch.
    """
    mean, matches = (soft_i.mean(0) + soft_j.mean(0)) / 2, (soft_i * soft_j).mean(0)
    if shard is not None:
        mean, matches = group.sum(torch.stack([mean, matches]) * (len(soft_i) / shard.whole))
    null = mean * mean
    over = matches > null
    # The unused branch must not produce 0/0 in the gradient.
    observed = torch.where(over, matches, 0.5).clamp(max=1 - 1e-6)
    expected = torch.where(over, null, 0.5).clamp(1e-12, 1 - 1e-6)
    return torch.where(over, divergence(observed, expected), 0.0).sum(-1), mean


def entropy(share: Tensor) -> Tensor:
    """H(p) of each head, with a finite gradient where an output is unused. (heads,)"""
    return -(share * (share + 1e-9).log()).sum(-1)


def learning_rate(peak: float, step_in_stage: int, progress: float) -> float:
    """Linear warm-up, then cosine decay to nearly zero."""
    rise = min(1.0, (step_in_stage + 1) / WARM_UP)
    return peak * rise * 0.5 * (1 + math.cos(math.pi * progress)) + FLOOR


def floors(settings: Relaxed, heads: int) -> Tensor:
    """The floor of each head in nats: effective numbers of clusters evenly spaced between the two configured ones."""
    smallest, largest = settings.diversity_floor
    return (
        torch.linspace(smallest, largest, heads).log() if heads > 1 else torch.tensor([(smallest + largest) / 2]).log()
    )


def diversity(share: Tensor, floor: Tensor, weight: float) -> Tensor:
    """The penalty of heads whose entropy is below their floor in nats (heads,). (heads,), at most 0"""
    return weight * (entropy(share) - floor.to(share.device)).clamp(max=0)


def new_optimizer(network: ClusterNetwork, config: Config, refining: bool = False) -> Optimizer:
    return Optimizer(network, config.precision, config.relaxed.learning_rate, REFINE_EPS if refining else EPS)


class StepInfo(NamedTuple):
    """The position of a step in the run."""

    number: int
    in_stage: int
    progress: float
    refining: bool
    """Whether the clusters are merged: smaller steps, higher temperature."""
    floor: Tensor | None = None
    """Entropy in nats below which each head is penalized; None: no head is. (heads,)"""


class Pairs(NamedTuple):
    """The images of a step, or the shard of them that this process takes."""

    images: Tensor
    """uint8 (B, C, H, W)"""
    partners: Tensor
    """The images that give view j: the images themselves or their neighbors. uint8 (B, C, H, W)"""
    targets: Tensor | None = None
    """The clusters of each image that the first heads imitate, (B, imitating heads), while the other heads maximize the
    surprise; None: all heads maximize it."""
    group: ProcessGroup = SINGLE
    shard: Shard | None = None


def relaxed_step(
    network: ClusterNetwork, optimizer: Optimizer, pairs: Pairs, config: Config, info: StepInfo
) -> tuple[Tensor, Tensor]:
    """One gradient step; returns both views' labels (B, heads). With a shard it is the step of the whole batch."""
    settings, group, shard = config.relaxed, pairs.group, pairs.shard
    generator = rng.torch_generator(config.seed, "views", info.number)
    device = next(network.parameters()).device
    network.train()
    pixels = [to_float(part.to(device)) for part in (pairs.images, pairs.partners)]
    views = make_views(pixels[0], config.views, generator, pixels[1], shard)
    augmented = augment(torch.cat(views), config.augmentation, generator, shard, batches=2, signed=config.views.signed)
    with precision.lowered(config.precision, device), synced_batchnorm(network, group):
        outputs = network(channels_last(augmented)).reshape(len(augmented), network.heads, network.n_outputs)
    loss = torch.zeros((), device=device)
    imitating = 0
    if pairs.targets is not None:
        imitating = pairs.targets.shape[1]
        whole = len(pairs.images) if shard is None else shard.whole
        scale = config.consolidation.logit_scale
        loss = loss + imitation_loss(outputs[:, :imitating], pairs.targets.to(device), scale, whole)
    if imitating < network.heads:
        temperature = settings.refine_temperature if info.refining else settings.temperature
        soft_i, soft_j = torch.softmax(outputs[:, imitating:] / temperature, -1).tensor_split(2)
        score, mean = relaxed_surprise(soft_i, soft_j, group, shard)
        if info.floor is not None:
            score = score + diversity(mean, info.floor[imitating:], settings.diversity)
        loss = loss - score.sum()
    peak = settings.refine_learning_rate if info.refining else settings.learning_rate
    optimizer.set_learning_rate(learning_rate(peak, info.in_stage, info.progress))
    optimizer.minimize(loss, partial(group.sum_gradients, network))
    labels_i, labels_j = outputs.detach().argmax(-1).tensor_split(2)
    return labels_i, labels_j


@torch.no_grad()
def calibrate(network: ClusterNetwork, images: Tensor, config: Config, rounds: int = 8) -> None:
    """Initialize the heads as random directions of the whitened features of ``rounds`` augmented batches.

    With torch's standard initialization 3 of 64 outputs are active, and a search that starts with 3 clusters stays
    there.
    """
    generator = rng.torch_generator(config.seed, "calibration")
    batch = min(CALIBRATION_BATCH, len(images))
    device = next(network.parameters()).device
    network.train()
    gathered = []
    for _ in range(rounds):
        positions = torch.randperm(len(images), generator=generator)[:batch]
        view, _ = make_views(to_float(images[positions].to(device)), config.views, generator)
        gathered.append(
            network.features(
                channels_last(augment(view, config.augmentation, generator, signed=config.views.signed))
            ).cpu()
        )
    features = torch.cat(gathered).double()
    mean = features.mean(0)
    values, vectors = torch.linalg.eigh((features - mean).t() @ (features - mean) / len(features))
    whiten = vectors @ torch.diag((values.clamp(min=0) + 1e-3 * values.max().clamp(min=1e-12)).rsqrt()) @ vectors.t()
    rows = torch.randn(network.head.weight.shape, generator=generator, dtype=torch.double)
    rows = torch.nn.functional.normalize(rows, dim=1) @ whiten
    # Only the direction of the logits matters; this scale keeps Adam's first steps in proportion.
    rows *= 0.3 / (math.sqrt(rows.shape[1]) * rows.std())
    network.head.weight.copy_(rows.float())  # rounded here, because not every device has doubles
    network.head.bias.copy_(-(rows @ mean).float())
