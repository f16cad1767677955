"""Calibrate a trained network on a sample of its training images, without classes."""

from __future__ import annotations

import torch
from torch import Tensor

from ..config import Config
from ..core import rng
from .confidence import fit_sharpness, mean_outputs
from .inference import Calibration, map_views
from .memorization import without_memory
from .network import ClusterNetwork
from .novelty import descriptors, fit_novelty, image_statistics

SAMPLE = 2_000
"""Images to which the sharpness and the novelty are fitted."""


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
    if config.views.stored:
        clusters = mean_outputs(network, features).argmax(-1)
        sharpness = without_memory(sharpness, sample, clusters, config)
    with torch.inference_mode():
        if statistics is not None:
            statistics = statistics[chosen]
        elif not config.views.stored:
            statistics = image_statistics(sample)
        values = descriptors(features[:, 0], features[:, 1], statistics)
    return Calibration(sharpness, fit_novelty(values, features.shape[2]))
