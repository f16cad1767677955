"""The nearest neighbors of every image.

The two views of one image teach the search which changes of a picture carry no meaning. Augmentation covers only the
changes that somebody programmed; the difference between an image and its nearest neighbor is one that the collection
itself contains. So in a fraction of the pairs view j comes from a neighbor of the image.

Images are processed in stretches of rows, so that beside the result no memory grows with their number.
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
from ..core import rng
from ..core.edges import edge_histograms
from ..core.views import background, to_float
from ..distributed.group import current
from ..model.inference import view_features
from ..model.network import ClusterNetwork
from .sampler import LIMIT

SIDE = 32
"""Larger images are compared at about this size."""
COMPONENTS = 50
"""Principal components in which pixels are compared."""
SAMPLE = 5000
"""Images from which the principal components are computed."""
POOL = 60_000
"""Neighbors are searched among at most this many images, so that the cost grows linearly with the number of images."""
QUERY_ROWS = 256
"""Images that scikit-learn compares at a time."""
ROWS = 64 * QUERY_ROWS
"""Images whose neighbors are searched in one call."""
POOL_BYTES = 2**29
"""The pool's pixels are kept in memory if they take no more than this."""

Embedding = Callable[[Tensor], Tensor]
"""From uint8 images (n, C, H, W) to points (n, D) whose distance measures how different they look."""


def stretches(rows: int, least: int = ROWS) -> Iterator[tuple[int, int]]:
    """Stretches of ``least`` rows; the last one has up to twice as many, so that none is tiny.

    >>> list(stretches(50, 20)), list(stretches(7, 20))
    ([(0, 20), (20, 50)], [(0, 7)])
    """
    starts = range(0, max(1, rows // least) * least, least)
    return ((start, rows if start == starts[-1] else start + least) for start in starts)


class NeighborPool(NamedTuple):
    """The points among which neighbors are searched."""

    points: Tensor
    """(n, D)"""
    positions: Tensor
    """Their positions among all images. (n,)"""
    threads: int

    def search(self, points: Tensor, first: int, count: int) -> Tensor:
        """Positions of the nearest neighbors of the images ``first``, ``first`` + 1, ... at these points. (n, count)"""
        index = NearestNeighbors(algorithm="brute").fit(self.points.numpy())
        with threadpool_limits(self.threads):
            _, found = index.kneighbors(points.numpy(), n_neighbors=min(count + 1, len(self.positions)))
        neighbors = self.positions[torch.from_numpy(found)]
        # Drop self-matches; otherwise drop the farthest.
        itself = neighbors == torch.arange(first, first + len(points))[:, None]
        itself[~itself.any(1), -1] = True
        return neighbors[~itself].reshape(len(points), -1)

    def search_all(self, points: Callable[[int, int], Tensor], total: int, count: int) -> Tensor:
        """Neighbors of all ``total`` images, nearest first, split among the processes. (N, count)

        ``points``: the points of the images from one position to another.
        """
        group = current()
        own = group.share(total, QUERY_ROWS)
        edges = [(own.start + start, own.start + stop) for start, stop in stretches(len(own))]
        found = [self.search(points(start, stop), start, count) for start, stop in edges]
        return group.gather(torch.cat(found), total, QUERY_ROWS)


def pixel_embedding(images: Tensor, generator: torch.Generator, config: Config) -> Embedding:
    """Reduced images, or the histograms of their edges, projected on the principal components of a sample of
    ``images``. (n, at most COMPONENTS)

    Where the views lose their background, so do the images first.
    """
    scale = max(1, min(images.shape[2:]) // SIDE)
    signed, by_edges = config.views.signed, config.relaxed.neighbors_by == "edges"

    def small(part: Tensor) -> Tensor:
        pixels = to_float(part)
        if by_edges:
            return edge_histograms(pixels)
        return F.avg_pool2d(pixels - background(pixels) if signed else pixels, scale).flatten(1)

    sample = small(images[torch.randperm(len(images), generator=generator)[:SAMPLE]])
    mean = sample.mean(0)
    _, _, directions = torch.linalg.svd(sample - mean, full_matrices=False)
    directions = directions[:COMPONENTS].t()
    return lambda part: torch.cat(
        [(small(part[start:stop]) - mean) @ directions for start, stop in stretches(len(part), SAMPLE)]
    )


class Whitening(NamedTuple):
    """Reduces the strongest directions of features: a backbone puts most of its variance into what its heads already
    separate, and neighbors should depend on the rest too.
    """

    mean: Tensor
    """(D,)"""
    directions: Tensor
    """(D, D) doubles"""
    spread: Tensor
    """Standard deviation along each direction, bounded away from 0. (D,) doubles"""

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
        whitened = (features - self.mean).double() @ self.directions / self.spread
        return F.normalize(whitened, dim=1).float()


def feature_embedding(items: Tensor) -> Tensor:
    """The mean of an item's un-augmented stored views as a unit vector, so that distances are those of angles. (n, D)

    ``items``: (n, sides, copies, D)
    """
    return F.normalize(to_float(items[:, :, 0]).mean(1), dim=1)


def pool_positions(images: int, seed: int) -> Tensor:
    """Sorted positions of the images among which neighbors are searched."""
    generator = rng.torch_generator(seed, "pool")
    return torch.randperm(images, generator=generator)[:POOL].sort().values


def nearest_neighbors(
    images: Tensor,
    config: Config,
    threads: int,
    network: ClusterNetwork | None = None,
    features: Tensor | None = None,
) -> Tensor:
    """Neighbors of every image (N, config.relaxed.neighbors): by pixels or, given a network, by its features.

    ``features``: both views' features of all images (N, 2, D), if they are known.
    """
    positions = pool_positions(len(images), config.seed)
    count = config.relaxed.neighbors
    if config.views.stored:  # a head does not change the features of the images
        network = None
    if network is not None and len(images) <= LIMIT:
        both = view_features(network, images, config.views) if features is None else features
        mean = both.mean(1)
        points = Whitening.of(mean)(mean)
        return NeighborPool(points[positions], positions, threads).search_all(
            lambda a, b: points[a:b], len(images), count
        )
    embedding, pooled = embed_pool(network, images, positions, config)
    pool = NeighborPool(pooled, positions, threads)
    return pool.search_all(lambda start, stop: embedding(images[start:stop]), len(images), count)


def embed_pool(
    network: ClusterNetwork | None, images: Tensor, positions: Tensor, config: Config
) -> tuple[Embedding, Tensor]:
    """An embedding for any number of images, by pixels or by features whitened on the pool, and the pool's points."""
    if network is None:
        components = rng.torch_generator(config.seed, "components")
        stored = config.views.stored
        embedding = feature_embedding if stored else pixel_embedding(images, components, config)
        parts = [embedding(images[positions[start:stop]]) for start, stop in stretches(len(positions))]
        return embedding, torch.cat(parts)

    def features(part: Tensor) -> Tensor:
        return view_features(network, part, config.views).mean(1)

    known = torch.cat([features(images[positions[start:stop]]) for start, stop in stretches(len(positions))])
    whitening = Whitening.of(known)
    return lambda part: whitening(features(part)), whitening(known)


class PoolImages:
    """The pixels of the images that can be neighbors, which are read at random positions in every step.

    For large collections on disk they are kept in memory, so that the disk is read in the epoch's order only.
    """

    def __init__(self, images: Tensor, seed: int) -> None:
        self.images = images
        self.seed = seed

    @cached_property
    def _in_memory(self) -> tuple[Tensor, Tensor] | None:
        """Positions and pixels of the pool, if they are kept in memory."""
        if len(self.images) <= LIMIT or self.images[0].numel() * POOL > POOL_BYTES:
            return None
        positions = pool_positions(len(self.images), self.seed)
        return positions, self.images[positions]

    def partners(self, own: Tensor, positions: Tensor, partners: Tensor) -> Tensor:
        """The images at the positions ``partners``, given the images ``own`` at ``positions``. (B, C, H, W)"""
        if self._in_memory is None:
            return self.images[partners]
        pooled, pixels_of_pool = self._in_memory
        pixels = own.clone()
        others = partners != positions
        pixels[others] = pixels_of_pool[torch.searchsorted(pooled, partners[others])]
        return pixels


def draw_partners(neighbors: Tensor, positions: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """For each image one of its neighbors with this probability, otherwise the image itself. (B,)"""
    column = torch.randint(neighbors.shape[1], (len(positions),), generator=generator)
    chosen = torch.rand(len(positions), generator=generator) < probability
    return torch.where(chosen, neighbors[positions, column], positions)
