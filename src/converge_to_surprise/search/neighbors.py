"""The nearest neighbors of every image.

The two views of one image teach the search which changes of a picture carry no meaning. Augmentation covers only the
changes that somebody programmed; the difference between an image and its nearest neighbor is one that the collection
itself contains. So in a fraction of the pairs view j comes from a neighbor of the image.

Images are processed in stretches of rows, so that beside the result no memory grows with their number: the points at
which many images are compared lie in a temporary file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits
from torch import Tensor

from ..config import Config
from ..core import rng
from ..core.edges import edge_histograms, resized
from ..core.views import background, to_float
from ..distributed.group import current
from ..model.inference import view_features
from ..model.network import ClusterNetwork
from . import cell_search
from .sampler import LIMIT, announce

COMPONENTS = 64
"""Principal components in which pictures are compared."""
CHUNK = 250
"""Images whose edges are counted at a time: what is computed on the way stays in the cache."""
SAMPLE = 5000
"""Images from which the principal components are computed."""
POOL = 60_000
"""Features are whitened on at most this many images, and merging looks at as many."""
EXACT = 20_000
"""Up to this many images are compared with all others; with more, neighbors are searched in cells."""
QUERY_ROWS = 256
"""Images that scikit-learn compares at a time."""
ROWS = 64 * QUERY_ROWS
"""Images whose neighbors are searched in one call."""
POINT_BYTES = 2**26
"""Points that take more than this are kept in a temporary file."""

Embedding = Callable[[Tensor], Tensor]
"""From images (n, C, H, W) to points (n, D) whose distance measures how different they look."""


def stretches(rows: int, least: int = ROWS) -> Iterator[tuple[int, int]]:
    """Stretches of ``least`` rows; the last one has up to twice as many, so that none is tiny.

    >>> list(stretches(50, 20)), list(stretches(7, 20))
    ([(0, 20), (20, 50)], [(0, 7)])
    """
    starts = range(0, max(1, rows // least) * least, least)
    return ((start, rows if start == starts[-1] else start + least) for start in starts)


def exact_neighbors(points: Tensor, count: int, threads: int) -> Tensor:
    """Positions of the nearest other points of every point (N, D), nearest first, split among the processes. (N, count)

    Fewer columns if there are not so many other points.
    """
    group = current()
    own = group.share(len(points), QUERY_ROWS)
    index = NearestNeighbors(algorithm="brute").fit(points.numpy())
    parts = []
    for start, stop in ((own.start + start, own.start + stop) for start, stop in stretches(len(own))):
        with threadpool_limits(threads):
            _, found = index.kneighbors(points[start:stop].numpy(), n_neighbors=min(count + 1, len(points)))
        neighbors = torch.from_numpy(found)
        # Drop self-matches; otherwise drop the farthest.
        itself = neighbors == torch.arange(start, stop)[:, None]
        itself[~itself.any(1), -1] = True
        parts.append(neighbors[~itself].reshape(stop - start, -1))
    return group.gather(torch.cat(parts), len(points), QUERY_ROWS)


def picture_embedding(images: Tensor, generator: torch.Generator, describe: Embedding = edge_histograms) -> Embedding:
    """What ``describe`` computes from float images, projected on the principal components of a sample of ``images``.
    (n, at most COMPONENTS)
    """

    def described(part: Tensor) -> Tensor:
        return torch.cat([describe(to_float(part[a:b])) for a, b in stretches(len(part), CHUNK)])

    sample = described(images[torch.randperm(len(images), generator=generator)[:SAMPLE]])
    mean = sample.mean(0)
    # Of two images, or of images that hardly differ, most directions have no variance at all; the decomposition of
    # their covariance may then not converge.
    directions = torch.linalg.svd(sample - mean, full_matrices=False)[2][:COMPONENTS].t()

    def project(part: Tensor) -> Tensor:
        return torch.cat([(described(part[a:b]) - mean) @ directions for a, b in stretches(len(part), SAMPLE)])

    return project


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
    """Sorted positions of the images from which features are whitened and merging takes its evidence."""
    generator = rng.torch_generator(seed, "pool")
    return torch.randperm(images, generator=generator)[:POOL].sort().values


def image_points(
    images: Tensor, config: Config, network: ClusterNetwork | None = None, features: Tensor | None = None
) -> Tensor:
    """Points (N, D) whose distance measures how different images look: by their edges or, given a network, by its
    features.

    ``features``: both views' features of all images (N, 2, D), if they are known.
    """
    if config.views.stored:  # a head does not change the features of the images
        network = None
    if network is not None and len(images) <= LIMIT:
        mean = (view_features(network, images, config.views) if features is None else features).mean(1)
        return Whitening.of(mean)(mean)
    return embed_all(images, image_embedding(images, config, network))


class Search(NamedTuple):
    """Finds the nearest other points of every point."""

    seed: int
    threads: int

    def __call__(self, points: Tensor, count: int) -> Tensor:
        """Positions of the nearest other points of every point (N, D): (N, count), exact up to ``EXACT`` points."""
        if len(points) <= max(EXACT, count + 1):
            return exact_neighbors(points, count, self.threads)
        return cell_search.search(points, count, self.threads, rng.torch_generator(self.seed, "cells"))


def image_embedding(images: Tensor, config: Config, network: ClusterNetwork | None) -> Embedding:
    """An embedding for any number of images, by edges or by features whitened on the pool.

    The processes of a group share the work of each call.
    """
    if network is None:
        components = rng.torch_generator(config.seed, "components")
        return _shared(feature_embedding if config.views.stored else picture_embedding(images, components))

    def features(part: Tensor) -> Tensor:
        return view_features(network, part, config.views).mean(1)

    whitening = Whitening.of(points_at(images, pool_positions(len(images), config.seed), features))
    return lambda part: whitening(features(part))


def _shared(embedding: Embedding) -> Embedding:
    """The same embedding, each process of the group computing a part of it."""
    group = current()
    return lambda part: group.gather(embedding(group.own(part, QUERY_ROWS)), len(part), QUERY_ROWS)


def pixel_embedding(images: Tensor, config: Config) -> Embedding:
    """An embedding for any number of images, by their pixels; as for ``image_embedding``."""

    def pixels(part: Tensor) -> Tensor:
        # Where the views lose their background, paper of any brightness looks the same here too.
        return resized(part - background(part) if config.views.signed else part).flatten(1)

    return _shared(picture_embedding(images, rng.torch_generator(config.seed, "components"), pixels))


def points_at(images: Tensor, positions: Tensor, embedding: Embedding) -> Tensor:
    """The points of the images at some positions (n,). (n, D)"""
    return torch.cat([embedding(images[positions[start:stop]]) for start, stop in stretches(len(positions))])


def embed_all(images: Tensor, embedding: Embedding) -> Tensor:
    """The points of all images, in a temporary file if there are many. (N, D)"""
    points: Tensor | None = None
    for start, stop in stretches(len(images)):
        part = embedding(images[start:stop])
        if points is None:
            points = _new_points(len(images), part.shape[1])
        points[start:stop] = part
    assert points is not None
    return points


def _new_points(count: int, dimensions: int) -> Tensor:
    if count * dimensions * 4 <= POINT_BYTES:
        return torch.empty(count, dimensions)
    with tempfile.TemporaryFile() as file:  # the map outlives its name and its handle
        return torch.from_numpy(np.memmap(file, np.float32, "w+", shape=(count, dimensions)))


def partner_images(images: Tensor, partners: Tensor) -> Tensor:
    """The images at the positions ``partners``, which lie anywhere in the file. (B, C, H, W)"""
    if len(images) > LIMIT:
        announce(images, ((position, position + 1) for position in sorted(set(partners.tolist()))))
    return images[partners]


def draw_partners(neighbors: Tensor, positions: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """For each image one of its neighbors with this probability, otherwise the image itself. (B,)"""
    column = torch.randint(neighbors.shape[1], (len(positions),), generator=generator)
    chosen = torch.rand(len(positions), generator=generator) < probability
    return torch.where(chosen, neighbors[positions, column], positions)
