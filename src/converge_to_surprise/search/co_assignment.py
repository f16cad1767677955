"""How often two neighbors are in the same cluster, for neighborhoods of several widths.

Neighbors are the images whose learned features are most alike, without augmentation, in a sample of the collection.
The sample bounds the cost, and it keeps the answer from depending on how many images there are: among ten times as many
images the five nearest ones are ten times as near, and in the end show nothing but copies of the same style.

How wide should a neighborhood be? Among n images nearest-neighbor methods look at ever more neighbors, which are an
ever smaller part of the collection: n to the power of 4 / (4 + d) for points in d dimensions. Here d is 2, as in maps
of images. But where there are many clusters, so many neighbors would not fit into one. So with c clusters the width is
``WIDEST`` n^(2/3), and at most ``SHARE`` of the n / c images of a mean cluster.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Table = npt.NDArray[np.float64]

SAMPLE = 6_000
"""Images among which neighbors are counted, and on which heads are compared."""
WIDEST = 1 / 3
"""The widest neighborhood, as a part of n^(2/3) for n images."""
SHARE = 0.4
"""The widest neighborhood as a part of a mean cluster."""
NARROWEST = 4
"""Neighbors of the narrowest neighborhood."""
STEP = math.sqrt(2)
"""From one width to the next."""


def widths(images: int) -> list[int]:
    """Numbers of neighbors for which pairs are counted among so many images, the smallest first.

    >>> widths(300), widths(30), widths(3)
    ([4, 6, 8, 11, 15], [4], [2])
    """
    widest = min(images - 1, max(NARROWEST, round(WIDEST * images ** (2 / 3))))
    steps = itertools.count()
    smaller = itertools.takewhile(lambda width: width < widest, (round(NARROWEST * STEP**step) for step in steps))
    return [*smaller, widest]


def width(images: int, n_clusters: int) -> int:
    """The number of neighbors for so many clusters among so many images.

    >>> width(300, 2), width(300, 15)
    (15, 8)
    """
    found = widths(images)
    return found[_place(found, images, n_clusters)]


def _place(found: Sequence[int], images: int, n_clusters: int) -> int:
    wanted = max(1.0, min(found[-1], SHARE * images / n_clusters))
    return int(np.abs(np.log(np.array(found) / wanted)).argmin())


@dataclass(frozen=True)
class CoAssignments:
    """How often each pair of outputs was assigned to an image and to its neighbor, both orders counted alike."""

    tables: npt.NDArray[np.floating]
    """(widths, heads, K, K)"""
    widths: tuple[int, ...]
    """Neighbors of each image in each of the tables."""
    items: int
    """Images that are no copies of each other."""

    @classmethod
    def of_one_width(cls, tables: Table) -> Self:
        """Pairs of one kind only. (heads, K, K)"""
        return cls(((tables + tables.transpose(0, 2, 1)) / 2)[None], (1,), 1)

    @classmethod
    def count(cls, labels: Tensor, neighbors: Tensor, n_outputs: int, items: int) -> Self:
        """From the outputs of both views of every image under every head (n, 2, heads) and its neighbors (n, k), the
        nearest first. ``items``: images that are no copies of each other, which is what neighbors are searched among.
        """
        wanted = [width for width in widths(items) if width <= neighbors.shape[1]] or [neighbors.shape[1]]
        # Halves of small whole numbers are exact in single precision.
        found = np.zeros((len(wanted), labels.shape[2], n_outputs, n_outputs), np.float32)
        for head, sides in enumerate(labels.unbind(2)):
            pairs = n_outputs * sides[:, :1] + sides[:, 1][neighbors]  # (n, k)
            total = torch.zeros(n_outputs**2, dtype=torch.long)
            for place, (start, stop) in enumerate(zip([0, *wanted], wanted, strict=False)):
                total += pairs[:, start:stop].flatten().bincount(minlength=n_outputs**2)
                table = total.reshape(n_outputs, n_outputs)
                found[place, head] = (table + table.t()).numpy() / 2
        return cls(found, tuple(wanted), items)

    def of_heads(self, heads: range) -> Self:
        """Those of some heads, which follow one another."""
        return replace(self, tables=self.tables[:, heads.start : heads.stop])

    def narrowest(self) -> Self:
        """Those of the nearest neighbors only."""
        return replace(self, tables=self.tables[:1], widths=self.widths[:1])

    def place(self, n_clusters: int) -> int:
        """The place of the width for so many clusters."""
        return _place(self.widths, self.items, n_clusters)

    def at(self, n_clusters: int) -> Table:
        """The pairs at the width for so many clusters. (heads, K, K)"""
        found: Table = self.tables[self.place(n_clusters)].astype(np.float64)
        return found
