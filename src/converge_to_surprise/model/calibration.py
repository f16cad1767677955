"""Calibrate a trained network on a sample of its training images, without classes.

Calibrated confidence is the probability that an augmented view of the image gets the same cluster. The network's
outputs are normalized, so their size does not measure confidence. One parameter, the sharpness, turns them into
probabilities: softmax(sharpness x outputs). It is fitted by maximum likelihood to the clusters of augmented views of
the same images.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor

from ..config import Config
from ..core import rng
from .inference import Calibration, logits_of, map_augmented_views, map_views
from .network import ClusterNetwork
from .novelty import descriptors, fit_novelty, image_statistics

SAMPLE = 2_000
"""Images to which the sharpness and the novelty are fitted."""
DRAWS = 2
"""Augmented pairs of views of each of these images."""
MAX_SHARPNESS = 1_000.0
"""Used where augmented views always keep their cluster, so that the likelihood has no maximum."""


def calibrate(network: ClusterNetwork, images: Tensor, config: Config, statistics: Tensor | None = None) -> Calibration:
    """What turns the outputs of a network with one head into confidence and novelty.

    ``statistics``: of the pixels of images that are stored as features (N, statistics).
    """
    generator = rng.torch_generator(config.seed, "confidence")
    chosen = torch.randperm(len(images), generator=generator)[:SAMPLE]
    sample = images[chosen]
    pairs = map_views(network, sample, config.views, network.features)
    features = torch.cat([torch.stack(pair, 1).cpu() for pair in pairs])
    sharpness = fit_sharpness(network, sample, features, config, generator)
    with torch.inference_mode():
        if statistics is not None:
            statistics = statistics[chosen]
        elif not config.views.stored:
            statistics = image_statistics(sample)
        values = descriptors(features[:, 0], features[:, 1], statistics)
    return Calibration(sharpness, fit_novelty(values, features.shape[2]))


def fit_sharpness(
    network: ClusterNetwork, images: Tensor, features: Tensor, config: Config, generator: torch.Generator
) -> float:
    """The sharpness with which the un-augmented outputs predict the clusters of augmented views best.

    ``features``: of both un-augmented views of the images (n, 2, D).
    """
    clean = F.normalize(logits_of(network, features.flatten(0, 1)), dim=-1).reshape(len(images), 2, -1).mean(1)

    def labels(views: Tensor) -> Tensor:
        return network.logits(views).argmax(-1)

    seen = torch.cat([map_augmented_views(network, images, config, generator, labels) for _ in range(DRAWS)])
    return sharpness_of(clean.repeat(2 * DRAWS, 1), seen)


def sharpness_of(outputs: Tensor, labels: Tensor) -> float:
    """The sharpness that maximizes the likelihood of labels (n,) under the softmax of the outputs (n, n_outputs)."""
    outputs = outputs.double()

    def negative_log_likelihood(log_sharpness: float) -> float:
        return float(F.cross_entropy(math.exp(log_sharpness) * outputs, labels))

    bounds = (0.0, math.log(MAX_SHARPNESS))
    best = minimize_scalar(negative_log_likelihood, bounds=bounds, method="bounded", options={"xatol": 1e-3})
    return math.exp(float(best.x))
