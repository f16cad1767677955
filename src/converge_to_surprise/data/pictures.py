"""Decode many pictures in parallel and in order, with a bounded number in memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .decode import BadPicture, decode
from .listing import Listing
from .resize import Shape
from .skipped import SkippedFile

CHUNK = 256
"""Files in a chunk, at most."""
BLOCK = 16
"""Files that one thread decodes in one go, at most."""
BLOCK_BYTES = 2**22
AHEAD = 64
"""Blocks that wait or are being decoded: at most 256 MB, however many files there are."""


class Chunk(NamedTuple):
    """The files ``start`` to ``stop`` of a listing."""

    start: int
    stop: int
    positions: npt.NDArray[np.int64]
    """(n,) Positions of the pictures in the listing."""
    pixels: npt.NDArray[np.uint8]
    """(n, C, H, W)"""
    quarantined: list[SkippedFile]


def stream(
    listing: Listing, shape: Shape, threads: int = 0, start: int = 0, stop: int | None = None
) -> Generator[Chunk, None, None]:
    """The pictures of a listing from ``start`` to ``stop``, in its order. Closing the iterator stops the decoding.

    A chunk may hold no picture at all if its files are bad. Where chunks end depends on ``start`` and ``shape`` alone.
    """
    block = min(BLOCK, max(1, BLOCK_BYTES // math.prod(shape)))
    per_chunk = CHUNK // BLOCK
    stop = len(listing) if stop is None else stop
    starts = iter(range(start, stop, block))
    pool = ThreadPoolExecutor(threads or None, thread_name_prefix="decode")
    try:
        ahead: deque[Future[Chunk]] = deque()
        while True:
            for first in islice(starts, AHEAD - len(ahead)):
                ahead.append(pool.submit(_decode_block, listing, shape, first, min(first + block, stop)))
            if not ahead:
                return
            yield _joined([ahead.popleft().result() for _ in range(min(per_chunk, len(ahead)))])
    finally:
        pool.shutdown(cancel_futures=True)


def _decode_block(listing: Listing, shape: Shape, start: int, stop: int) -> Chunk:
    positions: list[int] = []
    pixels = np.empty((stop - start, *shape), np.uint8)
    quarantined: list[SkippedFile] = []
    for position in range(start, stop):
        try:
            pixels[len(positions)] = decode(listing.paths[position], shape)
            positions.append(position)
        except BadPicture as bad:
            quarantined.append(SkippedFile(listing.names[position], str(bad), bad.kind))
    return Chunk(start, stop, np.array(positions, np.int64), pixels[: len(positions)], quarantined)


def _joined(blocks: list[Chunk]) -> Chunk:
    return Chunk(
        blocks[0].start,
        blocks[-1].stop,
        np.concatenate([block.positions for block in blocks]),
        np.concatenate([block.pixels for block in blocks]),
        [bad for block in blocks for bad in block.quarantined],
    )
