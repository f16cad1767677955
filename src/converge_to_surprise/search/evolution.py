"""The evolution strategy as ask and tell (paper 3.3, eq. 8; Salimans et al. 2017).

    θ ← (1 − ηλ) θ + η / (mσ) · Σ_i r_i ε_i        ε_i ~ N(0, σ² I), r_i the centered ranks of the m scores

Members come in mirrored pairs θ ± ε. The noise of a pair is a function of (seed, step, pair) and, in guided evolution,
of a subspace: it is generated when it is needed and never stored for the whole population.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from ..config import Evolution
from ..core import rng, surprise

Score = Callable[[Tensor, Tensor], float | Tensor]
"""A function of two label sequences (N,), to be maximized."""


@dataclass(frozen=True)
class NamedScore:
    """A built-in score: of label sequences (..., N) it gives (...), so that many members are scored at once."""

    function: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, labels_i: Tensor, labels_j: Tensor) -> Tensor:
        return self.function(labels_i, labels_j)


@dataclass(frozen=True)
class Guide:
    """The subspace in which a share of the noise's variance lies (``guided.py``)."""

    basis: Tensor
    """Orthonormal rows. (k, D)"""
    share: float

    def steer(self, isotropic: Tensor, within: Tensor) -> Tensor:
        """Noise (n,) of covariance (1 - s) I + s n/k U U^T from standard normal draws (n,) and (k,)."""
        scale = math.sqrt(self.share * len(isotropic) / len(within))
        return math.sqrt(1 - self.share) * isotropic + scale * (within @ self.basis)


@dataclass(frozen=True)
class Generation:
    """Everything that determines the population of one step around θ."""

    seed: int
    step: int
    fraction: float
    """Fraction of the parameters that is perturbed and decayed in this step."""
    settings: Evolution
    guide: Guide | None = None


def fraction_perturbed(epoch: int, settings: Evolution) -> float:
    """The ramp: ``ramp_start`` in epoch 0, growing linearly to 1 in epoch ``ramp_epochs`` - 1.

    >>> [fraction_perturbed(epoch, Evolution()) for epoch in (0, 99, 500)]
    [0.01, 1.0, 1.0]
    """
    if settings.ramp_epochs <= 1:
        return 1.0
    climbed = min(1.0, epoch / (settings.ramp_epochs - 1))
    return settings.ramp_start + (1 - settings.ramp_start) * climbed


def perturbed(generation: Generation, size: int) -> Tensor | None:
    """Sorted positions (n,) of the perturbed parameters among ``size``, or None if all are."""
    chosen = math.ceil(generation.fraction * size)
    if chosen >= size:
        return None
    generator = rng.numpy_generator(generation.seed, "perturbed", generation.step)
    return torch.from_numpy(np.sort(generator.choice(size, chosen, replace=False)))


def noise(generation: Generation, pair: int, size: int) -> Tensor:
    """ε of one pair, (D,): normal with deviation σ at the perturbed positions, 0 elsewhere."""
    where = perturbed(generation, size)
    generator = rng.numpy_generator(generation.seed, "noise", generation.step, pair)
    drawn = torch.from_numpy(generator.standard_normal(size if where is None else len(where), dtype=np.float32))
    if generation.guide is not None:
        drawn = _steered(generation, pair, drawn, where)
    drawn *= generation.settings.sigma
    return drawn if where is None else torch.zeros(size).index_copy_(0, where, drawn)


def _steered(generation: Generation, pair: int, drawn: Tensor, where: Tensor | None) -> Tensor:
    """Standard normal draws (n,), partly moved into the subspace as it is at the perturbed positions."""
    assert generation.guide is not None
    basis = generation.guide.basis.cpu()
    if not len(basis):
        return drawn
    generator = rng.numpy_generator(generation.seed, "guide", generation.step, pair)
    within = torch.from_numpy(generator.standard_normal(len(basis), dtype=np.float32))
    return Guide(basis if where is None else basis[:, where], generation.guide.share).steer(drawn, within)


def ask(theta: Tensor, generation: Generation, members: range) -> Iterator[Tensor]:
    """The parameter vectors of the given members; member 2p is θ + ε_p and member 2p + 1 is θ − ε_p."""
    for pair, both in itertools.groupby(members, lambda member: member // 2):
        epsilon = noise(generation, pair, len(theta)).to(theta.device)
        for member in both:
            yield theta + epsilon if member % 2 == 0 else theta - epsilon


def centered_ranks(scores: Tensor) -> Tensor:
    """Ranks from −1/2 (worst) to 1/2 (best); equal scores share their mean rank and NaN counts as the worst."""
    values = scores.double().cpu().numpy()
    # NaN members tie with each other below everything, −inf included.
    order = rankdata(np.where(np.isnan(values), -np.inf, values), method="min")
    order = np.where(np.isnan(values), 0, order)
    ranks = rankdata(order, method="average")
    return torch.from_numpy((ranks - 1) / (len(values) - 1) - 0.5)


def tell(theta: Tensor, scores: Tensor, generation: Generation) -> Tensor:
    """θ after the update of eq. 8. Decay, like noise, applies to the perturbed parameters only."""
    settings = generation.settings
    if scores.shape != (settings.population,):
        raise ValueError(f"{tuple(scores.shape)} scores for a population of {settings.population}")
    direction = weighted_noise(theta, centered_ranks(scores), generation)
    decay = torch.full_like(theta, 1 - settings.learning_rate * settings.weight_decay)
    where = perturbed(generation, len(theta))
    if where is not None:
        decay = torch.ones_like(theta).index_copy_(0, where.to(theta.device), decay[: len(where)])
    return decay * theta + settings.learning_rate / (settings.population * settings.sigma) * direction


def weighted_noise(theta: Tensor, weights: Tensor, generation: Generation) -> Tensor:
    """Σ_i w_i ε_i over all members, (D,), given their weights (m,).

    With the scores themselves as weights its mean is, for a linear score, mσ² C times the score's gradient, where C is
    the noise's covariance over σ².
    """
    direction = torch.zeros_like(theta)
    for pair in range(len(weights) // 2):
        weight = float(weights[2 * pair] - weights[2 * pair + 1])
        direction += weight * noise(generation, pair, len(theta)).to(theta.device)
    return direction


def named_score(name: str, clusters: int) -> NamedScore:
    """The built-in scores by name."""
    scores = {
        "surprise": NamedScore(lambda i, j: surprise.surprise(surprise.count(i, j, clusters))),
        "orderliness": NamedScore(lambda i, j: surprise.orderliness(surprise.joint_counts(i, j, clusters))),
    }
    if name not in scores:
        raise ValueError(
            f"unknown score {name!r}; known: {', '.join(scores)}. From Python, any function of two labelings works."
        )
    return scores[name]
