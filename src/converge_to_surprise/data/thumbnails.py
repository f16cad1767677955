"""Pictures of items that are not images themselves, for the page."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..config.images import ImageOptions
from .cache import Progress, cached
from .listing import Listing
from .skipped import nothing_readable

BLANK = 128
"""Gray value in place of a picture that cannot be read."""


class Thumbnails(NamedTuple):
    pictures: Tensor
    """uint8 (N, C, H, W)"""
    names: list[str]


def read_thumbnails(listing: Listing, count: int, progress: Progress | None) -> Thumbnails:
    """A picture for each of ``count`` items, in the order of the listing; gray where it cannot be read."""
    if len(listing) != count:
        raise ValueError(f"--images is {listing.source}, which has {len(listing):,} pictures for {count:,} embeddings")
    decoded = cached(listing, ImageOptions(), None, progress)
    if not len(decoded.positions):
        raise ValueError(nothing_readable(listing, decoded.quarantine))
    if len(decoded.positions) == count:
        return Thumbnails(torch.from_numpy(np.asarray(decoded.pixels)), list(listing.names))
    whole = np.full((count, *decoded.pixels.shape[1:]), BLANK, np.uint8)
    whole[decoded.positions] = decoded.pixels
    return Thumbnails(torch.from_numpy(whole), list(listing.names))
