"""Nearest neighbors among any number of points, nearly exact.

Comparing all points with each other takes time in proportion to N². Here the points are divided into about √N cells
around centers found by k-means on a sample, and the neighbors of a point are searched in the cells whose centers are
nearest to it. One matrix product compares the points of a cell with all points that search there. The time grows with
N·√N, and beside the points and the result no memory grows with their number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..distributed.group import current
from ..model.inference import map_ordered

PROBED = 12
"""Cells in which the neighbors of a point are searched."""
SAMPLE_PER_CELL = 64
"""Points for each cell from which the centers are computed."""
ROUNDS = 6
"""Rounds of k-means."""
ROWS = 4096
"""Points that are compared with centers or with other points at a time."""
QUERIES = 2**16
"""Points whose neighbors are searched at a time."""


class Cells(NamedTuple):
    """Points divided into cells."""

    points: Tensor
    """(N, D)"""
    order: Tensor
    """Positions of the points, cell by cell. (N,)"""
    edges: list[int]
    """Where each cell begins in ``order``, and N."""
    centers: Tensor
    """(cells, D)"""

    @classmethod
    def of(cls, points: Tensor, generator: torch.Generator) -> Cells:
        count = math.isqrt(len(points))
        sample = torch.randperm(len(points), generator=generator)[: SAMPLE_PER_CELL * count]
        centers = k_means(points[sample], count)
        cell = nearest_centers(points, centers, 1)[:, 0]
        edges = torch.cat([torch.zeros(1, dtype=torch.int64), cell.bincount(minlength=count).cumsum(0)])
        return cls(points, cell.argsort(stable=True), edges.tolist(), centers)

    def members(self, cell: int) -> Tensor:
        """Positions of the points of a cell. (n,)"""
        return self.order[self.edges[cell] : self.edges[cell + 1]]


class Nearest(NamedTuple):
    """The nearest points that some points have found so far."""

    distance: Tensor
    """Squared distances, ascending. (n, k)"""
    position: Tensor
    """(n, k)"""

    @classmethod
    def none(cls, rows: int, count: int) -> Nearest:
        return cls(torch.full((rows, count), torch.inf), torch.zeros(rows, count, dtype=torch.int64))

    def closest(self, count: int) -> Nearest:
        distance, column = self.distance.topk(min(count, self.distance.shape[1]), largest=False)
        return Nearest(distance, self.position.gather(1, column))

    def joined(self, rows: Tensor | slice, other: Nearest) -> Nearest:
        """The nearest of what these rows and another search found."""
        pairs = zip(self, other, strict=True)
        return Nearest(*(torch.cat([own[rows], new], 1) for own, new in pairs)).closest(self.distance.shape[1])


def k_means(points: Tensor, count: int) -> Tensor:
    """Centers of ``count`` cells; the first points are the first centers. (count, D)"""
    centers = points[:count].clone()
    for _ in range(ROUNDS):
        cell = nearest_centers(points, centers, 1)[:, 0]
        sizes = cell.bincount(minlength=count)
        sums = torch.zeros_like(centers).index_add_(0, cell, points)
        centers = torch.where(sizes[:, None] > 0, sums / sizes[:, None].clamp(min=1), centers)
    return centers


def nearest_centers(points: Tensor, centers: Tensor, count: int) -> Tensor:
    """The ``count`` cells whose centers are nearest to each point, nearest first. (N, count)"""
    halves = centers.square().sum(1) / 2
    parts = torch.split(points, ROWS)
    return torch.cat([(halves - part @ centers.t()).topk(count, largest=False).indices for part in parts])


def search(points: Tensor, count: int, threads: int, generator: torch.Generator) -> Tensor:
    """Positions of the ``count`` nearest other points of every point (N, D), nearest first. (N, count)

    The points are split among the processes.
    """
    cells = Cells.of(points, generator)
    group = current()
    own = group.share(len(points), ROWS)
    edges = range(own.start, own.stop, QUERIES)
    found = [_search(cells, range(start, min(start + QUERIES, own.stop)), count, threads) for start in edges]
    return group.gather(torch.cat(found), len(points), ROWS)


def _search(cells: Cells, queries: range, count: int, threads: int) -> Tensor:
    """The same for a range of points."""
    found = Nearest.none(len(queries), count)

    def one(visit: tuple[Tensor, Tensor]) -> tuple[Tensor, Nearest]:
        rows, members = visit
        return rows, _nearest_among(cells.points, rows + queries.start, members, count)

    def take(visits: Iterator[tuple[Tensor, Tensor]]) -> None:
        for rows, nearer in map_ordered(one, visits, threads):
            for known, new in zip(found, found.joined(rows, nearer), strict=True):
                known[rows] = new

    take(_visits(cells, queries))
    lacking = found.distance[:, -1].isinf().nonzero()[:, 0]  # of points whose cells hold too few others
    found.distance[lacking] = torch.inf
    take((rows, cells.order) for rows in torch.split(lacking, ROWS) if len(rows))
    return found.position


def _visits(cells: Cells, queries: range) -> Iterator[tuple[Tensor, Tensor]]:
    """For every cell the rows of the points that search in it, and its members."""
    points = cells.points[queries.start : queries.stop]
    probes = nearest_centers(points, cells.centers, min(PROBED, len(cells.centers)))
    by_cell = probes.flatten().argsort(stable=True)
    rows = by_cell // probes.shape[1]
    sizes = probes.flatten().bincount(minlength=len(cells.centers)).tolist()
    for cell, part in enumerate(torch.split(rows, sizes)):
        members = cells.members(cell)
        yield from ((few, members) for few in torch.split(part, ROWS) if len(few) and len(members))


def _nearest_among(points: Tensor, queries: Tensor, members: Tensor, count: int) -> Nearest:
    """The nearest others of the points at the positions ``queries`` among ``members``."""
    found = Nearest.none(len(queries), count)
    for part in torch.split(members, ROWS):
        # Relative to one of them numbers are small, and with them the rounding of |a - b|² = |a|² + |b|² - 2ab.
        inside, outside = points[part] - points[part[0]], points[queries] - points[part[0]]
        squares = inside.square().sum(1) + outside.square().sum(1)[:, None]
        distance = torch.addmm(squares, outside, inside.t(), alpha=-2)
        distance[part == queries[:, None]] = torch.inf
        found = found.joined(slice(None), Nearest(distance, part.expand(len(queries), -1)))
    return found
