"""Confidence that means something: the probability that an augmented view of the image gets the same cluster.

The outputs say which cluster, but their size says nothing of how sure that is. One number, the sharpness, turns them
into probabilities: softmax(sharpness x outputs). It is chosen so that the probabilities fit best (maximum likelihood)
what augmented views of the same images are given, which no class is needed for.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor

from ..config import Config
from ..core import rng as randomness
from ..distributed.group import SINGLE, ProcessGroup
from .inference import over_augmented, over_views
from .network import ClusterNetwork

SAMPLE = 2_000
"""Images to which the sharpness is fitted."""
DRAWS = 2
"""Augmented pairs of views of each of them."""
LARGEST = 1_000.0
"""Where no augmented view is ever given another cluster, any sharpness fits: this one is taken."""


def fit_sharpness(network: ClusterNetwork, images: Tensor, config: Config, world: ProcessGroup = SINGLE) -> float:
    """The sharpness with which the clean outputs predict the clusters of augmented views best."""
    generator = randomness.torch_generator(config.seed, "confidence")
    sample = images[torch.randperm(len(images), generator=generator)[:SAMPLE]]
    clean = torch.cat([((i + j) / 2).cpu() for i, j in over_views(network, sample, config.views, network.forward)])

    def labels(views: Tensor) -> Tensor:
        return network.logits(views).argmax(-1)

    seen = torch.cat([over_augmented(network, sample, config, generator, labels, world) for _ in range(DRAWS)])
    return sharpness_of(clean.repeat(2 * DRAWS, 1), seen)


def sharpness_of(outputs: Tensor, seen: Tensor) -> float:
    """The sharpness that makes ``seen`` (n,) most likely under the softmax of the outputs (n, clusters)."""
    outputs = outputs.double()

    def surprise_of(log_sharpness: float) -> float:
        return float(F.cross_entropy(math.exp(log_sharpness) * outputs, seen))

    best = minimize_scalar(surprise_of, bounds=(0.0, math.log(LARGEST)), method="bounded", options={"xatol": 1e-3})
    return math.exp(float(best.x))
