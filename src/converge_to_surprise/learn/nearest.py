"""The points nearest to every point, and which of them are so on both sides.

Points are looked at a stretch of rows at a time, so that beside positions and distances next to no memory grows with
their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits
from torch import Tensor

from .world import ALONE, World

TOGETHER = 256
"""Points that scikit-learn compares at a time."""
ROWS = 64 * TOGETHER
"""Points whose neighbours are looked for together."""
ROUNDING = 1e-4
"""Distances that differ by less than this share of a typical one are the same."""


def stretches(rows: int, least: int = ROWS) -> Iterator[tuple[int, int]]:
    """Stretches of ``least`` rows from the first to the last, which takes up to twice as many: none is tiny.

    >>> list(stretches(50, 20)), list(stretches(7, 20))
    ([(0, 20), (20, 50)], [(0, 7)])
    """
    starts = range(0, max(1, rows // least) * least, least)
    return ((start, rows if start == starts[-1] else start + least) for start in starts)


class Found(NamedTuple):
    """Neighbours of some images, nearest first. In 32 bits: they are held for all images at once."""

    positions: Tensor
    """int32 (n, count)"""
    distances: Tensor
    """float32 (n, count)"""


def search(points: Tensor, first: int, among: Tensor, pool: Tensor, count: int, threads: int) -> Found:
    """Neighbours of the images ``first``, ``first`` + 1, ... that lie at these points (n, D). (n, count)

    ``among``: the points of the pool's images; ``pool``: their positions.
    """
    index = NearestNeighbors(algorithm="brute").fit(among.numpy())
    with threadpool_limits(threads):
        distances, found = index.kneighbors(points.numpy(), n_neighbors=min(count + 1, len(pool)))
    positions = pool[torch.from_numpy(found)]
    # Whoever is its own neighbour loses itself; the others lose their farthest.
    others = positions != torch.arange(first, first + len(points))[:, None]
    others[others.all(1), -1] = False
    kept = (part[others].reshape(len(points), -1) for part in (positions.int(), torch.from_numpy(distances).float()))
    return Found(*kept)


def nearest(points: Tensor, count: int, pool: Tensor, threads: int, world: World = ALONE) -> Found:
    """The ``count`` nearest other points of the pool. (N, count)

    ``points``: float32 (N, D). ``pool``: the positions among which neighbours are looked for.
    """
    return search_all(lambda start, stop: points[start:stop], len(points), points[pool], pool, count, threads, world)


def search_all(
    between: Callable[[int, int], Tensor],
    total: int,
    among: Tensor,
    pool: Tensor,
    count: int,
    threads: int,
    world: World,
) -> Found:
    """Neighbours of all ``total`` images, a stretch at a time, each process's share by itself. (N, count)

    ``between``: the points of the images from one position to another.
    """
    own = world.share(total, TOGETHER)
    shape = len(own), min(count, len(pool) - 1)
    whole = Found(torch.empty(shape, dtype=torch.int32), torch.empty(shape))
    for start, stop in stretches(len(own)):
        first, last = own.start + start, own.start + stop
        found = search(between(first, last), first, among, pool, count, threads)
        for place, part in zip(whole, found, strict=True):
            place[start:stop] = part
    return Found(*(world.gather(part, total, TOGETHER) for part in whole))


def on_both_sides(found: Found, pool: Tensor, count: int) -> Tensor:
    """Which neighbours are among the ``count`` nearest of an image that is among their ``count`` nearest. bool (N, k)

    An image beyond the pool, which is in nobody's list, counts as if it were: by its distance.
    """
    positions, distances = found
    count = min(count, positions.shape[1])
    mutual = torch.zeros_like(positions, dtype=torch.bool)
    reach = torch.zeros(len(positions))
    reach[pool] = distances[pool, count - 1]
    # A distance is rounded differently seen from the other side; that must not part two images.
    reach += ROUNDING * distances.mean()
    for column in range(count):
        mutual[:, column] = distances[:, column] <= reach[positions[:, column]]
    return mutual
