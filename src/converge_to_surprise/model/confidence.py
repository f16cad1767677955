"""Calibrated confidence: the probability that an augmented view of the image gets the same cluster.

The network's outputs are normalized, so their size does not measure confidence. One parameter, the sharpness, turns
them into probabilities: softmax(sharpness x outputs). It is fitted by maximum likelihood to the clusters of augmented
views of the same images, without classes.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor

from ..config import Config
from .inference import logits_of, map_augmented_views
from .network import ClusterNetwork

DRAWS = 2
"""Augmented pairs of views of each of them."""
MAX_SHARPNESS = 1_000.0
"""Used where augmented views always keep their cluster, so that the likelihood has no maximum."""


def fit_sharpness(
    network: ClusterNetwork, images: Tensor, features: Tensor, config: Config, generator: torch.Generator
) -> float:
    """The sharpness with which the un-augmented outputs predict the clusters of augmented views best.

    ``features``: of both un-augmented views of the images (n, 2, D).
    """

    def labels(views: Tensor) -> Tensor:
        return network.logits(views).argmax(-1)

    seen = torch.cat([map_augmented_views(network, images, config, generator, labels) for _ in range(DRAWS)])
    return sharpness_of(mean_outputs(network, features).repeat(2 * DRAWS, 1), seen)


def mean_outputs(network: ClusterNetwork, features: Tensor) -> Tensor:
    """The mean of both views' normalized outputs, from their features (n, 2, D). (n, n_outputs)"""
    return F.normalize(logits_of(network, features.flatten(0, 1)), dim=-1).reshape(len(features), 2, -1).mean(1)


def sharpness_of(outputs: Tensor, labels: Tensor) -> float:
    """The sharpness that maximizes the likelihood of labels (n,) under the softmax of the outputs (n, n_outputs)."""
    outputs = outputs.double()

    def negative_log_likelihood(log_sharpness: float) -> float:
        return float(F.cross_entropy(math.exp(log_sharpness) * outputs, labels))

    bounds = (0.0, math.log(MAX_SHARPNESS))
    best = minimize_scalar(negative_log_likelihood, bounds=bounds, method="bounded", options={"xatol": 1e-3})
    return math.exp(float(best.x))
