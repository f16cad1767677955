"""What a search for sub-clusters works on: features of both views of every image, plain and augmented.

The features are those of the finished run's network, which stays as it is. So they are computed once for all rounds.
Which images look alike, and which are copies of each other, does not depend on the network.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..config import Augmentation, Config
from ..core import augment, rng
from ..core.views import make_views, to_float
from ..model.inference import CHUNK
from ..model.network import ClusterNetwork, channels_last
from ..model.precision import exact
from .copies import copy_groups, small_groups
from .neighbors import Search, image_embedding

COPIES = 6
"""Augmented copies of each view: all but the last for the search, the last for the test."""
WIDE = 3
"""Strongly augmented pairs of views, which test boundaries."""
POOL = 20_000
"""Images on which rounds search and test; with more, the rest is only labeled."""


class ViewBank(NamedTuple):
    """Features of both views of some images."""

    positions: Tensor
    """Which images they are. (n,)"""
    plain: Tensor
    """Not augmented. (n, 2, D)"""
    augmented: Tensor
    """(n, 2, COPIES, D)"""
    wide: Tensor
    """Pairs augmented more strongly than in training, if the images are pixels. (n, WIDE, 2, D)"""
    points: Tensor
    """Points whose distance measures how different images look, by their edges or as stored. (n, d)"""
    copies: Tensor
    """The first image of the group of near-duplicates of each: itself for most. (n,)"""

    @property
    def mean(self) -> Tensor:
        """The mean of both plain views, rounded as the outputs of a run are. (n, D)"""
        return rounded(self.plain.mean(1))


def rounded(features: Tensor) -> Tensor:
    """Features as they are stored with a run, so that an image has the same sub-cluster from there and from pixels."""
    return features.half().float()


@torch.inference_mode()
def view_bank(network: ClusterNetwork, images: Tensor, config: Config) -> ViewBank:
    """The features of at most ``POOL`` of the images, uint8 (N, C, H, W) or stored features."""
    generator = rng.torch_generator(config.seed, "node pool")
    positions = torch.randperm(len(images), generator=generator)[:POOL].sort().values
    plain, usual, strong = [], [], []
    training = network.training
    network.eval()
    for start in range(0, len(positions), CHUNK):
        part = images[positions[start : start + CHUNK]]
        drawn = rng.torch_generator(config.seed, "node views", start)
        plain.append(_features(network, part, config, None, None))
        copies = [_features(network, part, config, config.augmentation, drawn) for _ in range(COPIES)]
        usual.append(torch.stack(copies, 2))
        wide = wide_augmentation(images, config)
        strong.append(torch.stack([_features(network, part, config, wide, drawn) for _ in range(WIDE)], 1))
    network.train(training)
    points = _points(images, positions, config)
    groups = small_groups(copy_groups(points, Search(config.seed, max(1, config.threads))))
    return ViewBank(positions, torch.cat(plain), torch.cat(usual), torch.cat(strong), points, groups)


def _points(images: Tensor, positions: Tensor, config: Config) -> Tensor:
    embedding = image_embedding(images, config, None)
    chunks = (positions[start : start + CHUNK] for start in range(0, len(positions), CHUNK))
    return torch.cat([embedding(images[chunk]) for chunk in chunks])


def wide_augmentation(images: Tensor, config: Config) -> Augmentation:
    """The augmentation under which boundaries must hold; stored features have only their own copies."""
    if config.views.stored:
        return config.augmentation
    side = min(images.shape[2:]) * config.views.upsample
    return augment.widened(config.augmentation, config.merge.rotation, round(config.merge.crop * side))


def _features(
    network: ClusterNetwork,
    part: Tensor,
    config: Config,
    augmentation: Augmentation | None,
    generator: torch.Generator | None,
) -> Tensor:
    """Features of both views of some images. (n, 2, D)"""
    device = next(network.parameters()).device
    found = []
    with exact(device):
        for view in make_views(to_float(part.to(device)), config.views, generator):
            if augmentation is not None and generator is not None:
                view = augment.augment(view, augmentation, generator, signed=config.views.signed)
            found.append(network.features(channels_last(view)).cpu().float())
    return torch.stack(found, 1)
