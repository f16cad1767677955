"""One gradient step on the relaxed surprise.

The argmax in the counts becomes a softmax with temperature T over the l2-normalized logits P:

    p_k = mean of P_k over both views,   t_k = mean of P_k(view i) P_k(view j),   S = Σ_{t_k > p_k²} D(t_k ‖ p_k²)

which has a gradient: one backward pass replaces a population. T sets the resolution: the lower, the finer the clusters.
During the first part of the search a head whose effective number of clusters exp H(p) is below its floor is pulled
apart, which makes sure that more clusters appear than will remain; merging then joins those that belong together. The
floors differ from head to head, so no single number of clusters is favored. Once they are merged, refining moves the
boundaries with a higher T: at the low one the softmax is all but an argmax, and only images on a boundary have a gradient.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ..config import Config, Relaxed
from ..core import rng as randomness
from ..core.augment import augment
from ..core.surprise import divergence
from ..core.views import Share, make_views, to_float
from ..distributed.group import SINGLE, ProcessGroup
from ..distributed.sync_batchnorm import synced_batchnorm
from ..model import precision
from ..model.network import ClusterNetwork, channels_last

WARM_UP = 30
"""Steps over which the learning rate rises."""
FLOOR = 1e-5
"""The learning rate at the end of the cosine."""


def relaxed_surprise(
    soft_i: Tensor, soft_j: Tensor, world: ProcessGroup = SINGLE, share: Share | None = None
) -> tuple[Tensor, Tensor]:
    """S of soft assignments (B, heads, K) for each head, (heads,), and the mean assignment p, (heads, K).

    If this is a process's share of a batch, p and t are those of the whole batch.
    """
    mean, matches = (soft_i.mean(0) + soft_j.mean(0)) / 2, (soft_i * soft_j).mean(0)
    if share is not None:
        mean, matches = world.sum(torch.stack([mean, matches]) * (len(soft_i) / share.whole))
    null = mean * mean
    over = matches > null
    # The unused branch must not poison the gradient with 0/0.
    observed = torch.where(over, matches, 0.5).clamp(max=1 - 1e-6)
    expected = torch.where(over, null, 0.5).clamp(1e-12, 1 - 1e-6)
    return torch.where(over, divergence(observed, expected), 0.0).sum(-1), mean


def entropy(share: Tensor) -> Tensor:
    """H(p) of each head, with a finite slope where an output is dead. (heads,)"""
    return -(share * (share + 1e-9).log()).sum(-1)


def learning_rate(peak: float, step_in_stage: int, progress: float) -> float:
    """A short linear rise, then a cosine to almost nothing."""
    rise = min(1.0, (step_in_stage + 1) / WARM_UP)
    return peak * rise * 0.5 * (1 + math.cos(math.pi * progress)) + FLOOR


def floors(settings: Relaxed, heads: int) -> Tensor:
    """The floor of each head in nats: effective numbers of clusters spread evenly from the smallest to the largest."""
    smallest, largest = settings.diversity_floor
    return (
        torch.linspace(smallest, largest, heads).log() if heads > 1 else torch.tensor([(smallest + largest) / 2]).log()
    )


def diversity(share: Tensor, settings: Relaxed, progress: float) -> Tensor:
    """What a head loses for having fewer clusters than its floor, for as long as the pull lasts. (heads,), at most 0"""
    if progress >= settings.diversity_until:
        return torch.zeros_like(share[:, 0])
    lacking = entropy(share) - floors(settings, len(share)).to(share.device)
    return settings.diversity * lacking.clamp(max=0)


def optimizer(network: ClusterNetwork, config: Config) -> torch.optim.Adam:
    return torch.optim.Adam(network.parameters(), lr=config.relaxed.learning_rate)


class StepInfo(NamedTuple):
    """Where in a run a step lies."""

    number: int
    in_stage: int
    progress: float
    refining: bool
    """Whether clusters are merged already: the pull is over and the steps are smaller."""


def relaxed_step(
    network: ClusterNetwork,
    ascent: torch.optim.Optimizer,
    images: Tensor,
    partners: Tensor,
    config: Config,
    moment: StepInfo,
    world: ProcessGroup = SINGLE,
    share: Share | None = None,
) -> tuple[Tensor, Tensor]:
    """One step on uint8 images (B, C, H, W), view j being the partner's; returns both views' labels (B, heads).

    The images can be this process's share of a batch: the step is that of the whole batch.
    """
    settings = config.relaxed
    generator = randomness.torch_generator(config.seed, "views", moment.number)
    device = next(network.parameters()).device
    network.train()
    pixels = [to_float(part.to(device)) for part in (images, partners)]
    views = make_views(pixels[0], config.views, generator, pixels[1], share)
    augmented = augment(torch.cat(views), config.augmentation, generator, share, batches=2, signed=config.views.signed)
    with precision.lowered(config.precision, device), synced_batchnorm(network, world):
        outputs = network(channels_last(augmented)).reshape(len(augmented), network.heads, network.clusters)
    temperature = settings.refine_temperature if moment.refining else settings.temperature
    soft = torch.softmax(outputs / temperature, -1)
    soft_i, soft_j = soft.tensor_split(2)
    score, mean = relaxed_surprise(soft_i, soft_j, world, share)
    if not moment.refining:
        score = score + diversity(mean, settings, moment.progress)
    peak = settings.refine_learning_rate if moment.refining else settings.learning_rate
    for group in ascent.param_groups:
        group["lr"] = learning_rate(peak, moment.in_stage, moment.progress)
    precision.descend(-score.sum(), ascent, config.precision, partial(world.sum_gradients, network))
    labels_i, labels_j = outputs.detach().argmax(-1).tensor_split(2)
    return labels_i, labels_j


@torch.no_grad()
def calibrate(network: ClusterNetwork, images: Tensor, config: Config, rounds: int = 8) -> None:
    """Start the heads as random directions of the whitened features, so that many outputs win somewhere.

    torch's standard start leaves 3 of 64 outputs alive, and a search that starts with 3 clusters stays there.
    The features are those of ``rounds`` augmented batches.
    """
    generator = randomness.torch_generator(config.seed, "calibration")
    batch = min(500, len(images))
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
    # Only the direction of the logits counts; this size keeps Adam's first steps proportionate.
    rows *= 0.3 / (math.sqrt(rows.shape[1]) * rows.std())
    network.head.weight.copy_(rows.float())  # rounded here: not every device knows doubles
    network.head.bias.copy_(-(rows @ mean).float())
