"""Which images look alike: the nearest neighbors of every image.

The views of one image teach the search which changes of a picture mean nothing. Augmentation can only play changes that
someone thought of; the step from an image to its nearest neighbor is one that the collection itself offers. So in a
share of the pairs view j comes from a neighbor of the image.

Images are looked at a stretch of rows at a time, so that beside the answer no memory grows with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits
from torch import Tensor

from ..config import Config
from ..core import rng as randomness
from ..core.views import background, to_float
from ..distributed.group import SINGLE, ProcessGroup
from ..model.inference import view_features
from ..model.network import ClusterNetwork
from .sampler import LIMIT

SIDE = 32
"""Larger images are compared at about this size."""
COMPONENTS = 50
"""Principal components in which pixels are compared."""
SAMPLE = 5000
"""Images from which the principal components are taken."""
POOL = 60_000
"""Neighbors are looked for among at most this many images, so that the cost grows with their number only linearly."""
TOGETHER = 256
"""Images that scikit-learn compares at a time."""
ROWS = 64 * TOGETHER
"""Images whose neighbors are looked for together."""
POOL_BYTES = 2**29
"""The pool's pixels are kept in memory if they take no more than this."""

Points = Callable[[Tensor], Tensor]
"""From uint8 images (n, C, H, W) to points (n, D) whose distance says how much they look alike."""


def stretches(rows: int, least: int = ROWS) -> Iterator[tuple[int, int]]:
    """Stretches of ``least`` rows from the first to the last, which takes up to twice as many: none is tiny.

    >>> list(stretches(50, 20)), list(stretches(7, 20))
    ([(0, 20), (20, 50)], [(0, 7)])
    """
    starts = range(0, max(1, rows // least) * least, least)
    return ((start, rows if start == starts[-1] else start + least) for start in starts)


def search(points: Tensor, first: int, among: Tensor, pool: Tensor, count: int, threads: int) -> Tensor:
    """Neighbors of the images ``first``, ``first`` + 1, ... that lie at these points (n, D). (n, count)

    ``among``: the points of the pool's images; ``pool``: their positions.
    """
    index = NearestNeighbors(algorithm="brute").fit(among.numpy())
    with threadpool_limits(threads):
        _, found = index.kneighbors(points.numpy(), n_neighbors=min(count + 1, len(pool)))
    neighbors = pool[torch.from_numpy(found)]
    # Whoever is its own neighbor loses itself; the others lose their farthest.
    itself = neighbors == torch.arange(first, first + len(points))[:, None]
    itself[~itself.any(1), -1] = True
    return neighbors[~itself].reshape(len(points), -1)


def nearest(points: Tensor, count: int, pool: Tensor, threads: int, world: ProcessGroup = SINGLE) -> Tensor:
    """Positions of the ``count`` nearest other points of the pool, nearest first. (N, count)

    ``points``: float32 (N, D). ``pool``: the positions among which neighbors are looked for.
    """
    return _all_nearest(lambda start, stop: points[start:stop], len(points), points[pool], pool, count, threads, world)


def _all_nearest(
    between: Callable[[int, int], Tensor],
    total: int,
    among: Tensor,
    pool: Tensor,
    count: int,
    threads: int,
    world: ProcessGroup,
) -> Tensor:
    """Neighbors of all ``total`` images, a stretch at a time, each process's share by itself. (N, count)

    ``between``: the points of the images from one position to another.
    """
    own = world.share(total, TOGETHER)
    edges = [(own.start + start, own.start + stop) for start, stop in stretches(len(own))]
    found = [search(between(start, stop), start, among, pool, count, threads) for start, stop in edges]
    return world.gather(torch.cat(found), total, TOGETHER)


def pixel_space(images: Tensor, generator: torch.Generator, signed: bool = False) -> Points:
    """Small versions of images, by the principal components of a sample of these. (n, at most COMPONENTS)

    Signed: of what differs from each image's background.
    """
    scale = max(1, min(images.shape[2:]) // SIDE)

    def small(part: Tensor) -> Tensor:
        pixels = to_float(part)
        return F.avg_pool2d(pixels - background(pixels) if signed else pixels, scale).flatten(1)

    sample = small(images[torch.randperm(len(images), generator=generator)[:SAMPLE]])
    mean = sample.mean(0)
    _, _, directions = torch.linalg.svd(sample - mean, full_matrices=False)
    directions = directions[:COMPONENTS].t()
    return lambda part: torch.cat(
        [(small(part[start:stop]) - mean) @ directions for start, stop in stretches(len(part), SAMPLE)]
    )


class Whitening(NamedTuple):
    """Tones the strongest directions of features down: a backbone puts most of its variance into what its heads already
    tell apart; neighbors should count the rest too.
    """

    mean: Tensor
    """(D,)"""
    directions: Tensor
    """(D, D) doubles"""
    spread: Tensor
    """Standard deviation along each direction, kept from 0. (D,) doubles"""

    @classmethod
    def of(cls, features: Tensor) -> Whitening:
        """The whitening of features (N, D)."""
        mean = features.mean(0)
        centered = (features - mean).double()
        values, directions = torch.linalg.eigh(centered.t() @ centered / len(centered))
        spread = values.clamp(min=0).sqrt()
        return cls(mean, directions, spread + 0.03 * spread.max().clamp(min=1e-9))

    def __call__(self, features: Tensor) -> Tensor:
        """Whitened features as unit vectors. (n, D)"""
        toned = (features - self.mean).double() @ self.directions / self.spread
        return F.normalize(toned, dim=1).float()


def pool_positions(images: int, seed: int) -> Tensor:
    """The images among which neighbors are looked for, in order."""
    generator = randomness.torch_generator(seed, "pool")
    return torch.randperm(images, generator=generator)[:POOL].sort().values


def alike(
    network: ClusterNetwork | None,
    images: Tensor,
    config: Config,
    threads: int,
    world: ProcessGroup = SINGLE,
    known: Tensor | None = None,
) -> Tensor:
    """Neighbors of every image (N, config.relaxed.neighbors): by its pixels or, given a network, by its features.

    ``known``: both views' features of all images (N, 2, D), if someone has them already.
    """
    pool = pool_positions(len(images), config.seed)
    count = config.relaxed.neighbors
    if network is not None and len(images) <= LIMIT:
        both = view_features(network, images, config.views, world) if known is None else known
        features = both.mean(1)
        return nearest(Whitening.of(features)(features), count, pool, threads, world)
    points, among = space(network, images, pool, config)
    return _all_nearest(lambda start, stop: points(images[start:stop]), len(images), among, pool, count, threads, world)


def space(network: ClusterNetwork | None, images: Tensor, pool: Tensor, config: Config) -> tuple[Points, Tensor]:
    """What makes points of images, whichever and however many, and the points of the pool. By features the whitening
    is the pool's.
    """
    if network is None:
        points = pixel_space(images, randomness.torch_generator(config.seed, "components"), config.views.signed)
        return points, torch.cat([points(images[pool[start:stop]]) for start, stop in stretches(len(pool))])

    def features(part: Tensor) -> Tensor:
        return view_features(network, part, config.views).mean(1)

    known = torch.cat([features(images[pool[start:stop]]) for start, stop in stretches(len(pool))])
    whitening = Whitening.of(known)
    return lambda part: whitening(features(part)), whitening(known)


class Pool:
    """The pixels of the images that can be somebody's neighbor, wherever they lie in the file.

    They come up at random all the time. Kept in memory, they leave the disk to the epoch's own order; if they are too
    large for that, or so few that all images are neighbors, they are read where they lie.
    """

    def __init__(self, images: Tensor, seed: int) -> None:
        self.images = images
        self.seed = seed

    @cached_property
    def _kept(self) -> tuple[Tensor, Tensor] | None:
        """Positions and pixels of the pool, if they are kept in memory."""
        if len(self.images) <= LIMIT or self.images[0].numel() * POOL > POOL_BYTES:
            return None
        positions = pool_positions(len(self.images), self.seed)
        return positions, self.images[positions]

    def partners(self, own: Tensor, positions: Tensor, partners: Tensor) -> Tensor:
        """Images of the partners of the images ``own`` at ``positions``; some are their own. (B, C, H, W)"""
        if self._kept is None:
            return self.images[partners]
        places, kept = self._kept
        pixels = own.clone()
        others = partners != positions
        pixels[others] = kept[torch.searchsorted(places, partners[others])]
        return pixels


def partners(neighbors: Tensor, positions: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """For each image either itself or, with probability ``share``, one of its neighbors. (B,)"""
    column = torch.randint(neighbors.shape[1], (len(positions),), generator=generator)
    chosen = torch.rand(len(positions), generator=generator) < share
    return torch.where(chosen, neighbors[positions, column], positions)
