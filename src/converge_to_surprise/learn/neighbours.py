"""Which images look alike: the nearest neighbours of every image.

The views of one image teach the search which changes of a picture mean nothing. Augmentation can only play changes that
someone thought of; the step from an image to its nearest neighbour is one that the collection itself offers. So in a
share of the pairs view j comes from a neighbour of the image.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits
from torch import Tensor

from ..config import Config
from ..core.views import to_float
from . import randomness
from .labelling import view_features
from .network import ClusterNetwork

SIDE = 32
"""Larger images are compared at about this size."""
COMPONENTS = 50
"""Principal components in which pixels are compared."""
SAMPLE = 5000
"""Images from which the principal components are taken."""
POOL = 60_000
"""Neighbours are looked for among at most this many images, so that the cost grows with their number only linearly."""


def nearest(points: Tensor, count: int, pool: Tensor, threads: int) -> Tensor:
    """Positions of the ``count`` nearest other points of the pool, nearest first. (N, count)

    ``points``: float32 (N, D). ``pool``: the positions among which neighbours are looked for.
    """
    index = NearestNeighbors(algorithm="brute").fit(points[pool].numpy())
    with threadpool_limits(threads):
        _, found = index.kneighbors(points.numpy(), n_neighbors=min(count + 1, len(pool)))
    neighbours = pool[torch.from_numpy(found)]
    # Whoever is its own neighbour loses itself; the others lose their farthest.
    itself = neighbours == torch.arange(len(points))[:, None]
    itself[~itself.any(1), -1] = True
    return neighbours[~itself].reshape(len(points), -1)


def pixel_points(images: Tensor, generator: torch.Generator) -> Tensor:
    """Small versions of the images, by their principal components. (N, at most COMPONENTS)"""
    scale = max(1, min(images.shape[2:]) // SIDE)
    parts = torch.split(images, SAMPLE)
    small = torch.cat([F.avg_pool2d(to_float(part), scale).flatten(1) for part in parts])
    sample = small[torch.randperm(len(small), generator=generator)[:SAMPLE]]
    mean = sample.mean(0)
    _, _, directions = torch.linalg.svd(sample - mean, full_matrices=False)
    points: Tensor = (small - mean) @ directions[:COMPONENTS].t()
    return points


def whitened(features: Tensor) -> Tensor:
    """Features with their strongest directions toned down, as unit vectors. (N, D)

    A trunk puts most of its variance into what its heads already tell apart; neighbours should count the rest too.
    """
    centred = (features - features.mean(0)).double()
    values, directions = torch.linalg.eigh(centred.t() @ centred / len(centred))
    spread = values.clamp(min=0).sqrt()
    toned = centred @ directions / (spread + 0.03 * spread.max().clamp(min=1e-9))
    return F.normalize(toned, dim=1).float()


def pool_positions(images: int, seed: int) -> Tensor:
    """The images among which neighbours are looked for, in order."""
    generator = randomness.torch_generator(seed, "pool")
    return torch.randperm(images, generator=generator)[:POOL].sort().values


def alike(network: ClusterNetwork | None, images: Tensor, config: Config, threads: int) -> Tensor:
    """Neighbours of every image (N, config.relaxed.neighbours): by its pixels or, given a network, by its features."""
    if network is None:
        points = pixel_points(images, randomness.torch_generator(config.seed, "components"))
    else:
        points = whitened(view_features(network, images, config.views))
    return nearest(points, config.relaxed.neighbours, pool_positions(len(images), config.seed), threads)


def partners(neighbours: Tensor, positions: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """For each image either itself or, with probability ``share``, one of its neighbours. (B,)"""
    column = torch.randint(neighbours.shape[1], (len(positions),), generator=generator)
    chosen = torch.rand(len(positions), generator=generator) < share
    return torch.where(chosen, neighbours[positions, column], positions)
