"""The order in which an epoch visits the images: random, with few disk seeks when they do not fit into memory.

Up to ``LIMIT`` images the order is one permutation. For more, a permutation would need memory and time for every image,
and a batch would be read from positions all over the file. There the images are shuffled on two levels: the file is
split into blocks of consecutive images, the blocks are permuted, each window takes the next few hundred blocks, and the
images of a window are permuted. A batch still holds images from all over the file, but during a window only its blocks
are read, and they are not needed again in that epoch.

The order is a function of (seed, epoch): no state is kept between batches.

The blocks of a window are announced to the operating system before they are read. A random access to a memory-mapped
file would make it read the surrounding pages too, on some machines megabytes; pages that were announced are already in
memory. This is advice only: without it everything is the same but slower.
"""

from __future__ import annotations

import ctypes
import mmap
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from ..core import rng

LIMIT = 2**18
"""Largest number of images that is processed at once, without blocks."""
BLOCK = 128
"""Consecutive images in a block: about 100 KB of small pictures, as much as systems read ahead."""
WINDOW = 512
"""Largest number of blocks in a window: enough that a batch is random even if the file is sorted by class."""
PIECE = 2**17
"""Bytes announced at a time: systems ignore what exceeds their own limit, which is at least this."""


class _Windows(NamedTuple):
    """An epoch's blocks in random order, split into nearly equal windows."""

    blocks: tuple[Tensor, ...]
    """The numbers of each window's blocks."""
    starts: list[int]
    """How many images come before each window."""


def upcoming_blocks(images: int, start: int, stop: int, seed: int, epoch: int) -> list[tuple[int, int]]:
    """The blocks of the windows that begin between ``start`` and ``stop`` of the epoch, as (first, last + 1) positions.

    Empty if there are at most ``LIMIT`` images.
    """
    if images <= LIMIT:
        return []
    blocks, starts = _windows(images, seed, "order", epoch)
    begun = blocks[bisect_left(starts, start) : bisect_left(starts, stop)]
    numbers = sorted(number for window in begun for number in window.tolist())
    return [(number * BLOCK, min(images, (number + 1) * BLOCK)) for number in numbers]


def epoch_indices(images: int, start: int, stop: int, seed: int, epoch: int, purpose: str = "order") -> Tensor:
    """Positions of the images from ``start`` to ``stop`` in the order of the epoch. (stop - start,)

    >>> epoch_indices(10, 4, 8, seed=0, epoch=0).tolist()
    [2, 5, 4, 8]
    """
    if images <= LIMIT:
        return _permutation(images, seed, purpose, epoch)[start:stop].clone()
    return blocked_epoch_indices(images, start, stop, seed, epoch, purpose)


def blocked_epoch_indices(images: int, start: int, stop: int, seed: int, epoch: int, purpose: str = "order") -> Tensor:
    """The same with blocks and windows, for any number of images."""
    starts = _windows(images, seed, purpose, epoch).starts
    parts = []
    for number in range(bisect_right(starts, start) - 1, bisect_right(starts, stop - 1)):
        window = _window(images, seed, purpose, epoch, number)
        parts.append(window[max(0, start - starts[number]) : stop - starts[number]])
    return torch.cat(parts)


# Shared by the steps of an epoch; at most a window of positions each.
@lru_cache(maxsize=2)
def _permutation(images: int, seed: int, purpose: str, epoch: int) -> Tensor:
    return torch.randperm(images, generator=rng.torch_generator(seed, purpose, epoch))


@lru_cache(maxsize=2)
def _windows(images: int, seed: int, purpose: str, epoch: int) -> _Windows:
    blocks = -(-images // BLOCK)
    order = torch.randperm(blocks, generator=rng.torch_generator(seed, purpose, epoch))
    windows = order.tensor_split(-(-blocks // WINDOW))
    lacking = blocks * BLOCK - images  # the last block may be shorter
    sizes = [len(window) * BLOCK - lacking * bool((window == blocks - 1).any()) for window in windows]
    return _Windows(windows, [0, *accumulate(sizes)][:-1])


@lru_cache(maxsize=2)
def _window(images: int, seed: int, purpose: str, epoch: int, number: int) -> Tensor:
    """The images of one window in random order."""
    blocks = _windows(images, seed, purpose, epoch).blocks[number]
    positions = (blocks[:, None] * BLOCK + torch.arange(BLOCK)).flatten()
    positions = positions[positions < images]
    generator = rng.torch_generator(seed, purpose, epoch, number)
    return positions[torch.randperm(len(positions), generator=generator)]


def _system_call() -> Callable[[int, int, int], int] | None:
    if not hasattr(mmap, "MADV_WILLNEED"):
        return None
    found: Callable[[int, int, int], int] | None = getattr(ctypes.CDLL(None), "madvise", None)
    if found is not None:
        found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)  # type: ignore[attr-defined]
    return found


_madvise = _system_call()


def announce(images: Tensor, stretches: Iterable[tuple[int, int]]) -> None:
    """Announce that the images (N, C, H, W) between these pairs of positions will be read."""
    size = images.stride(0) * images.element_size()
    if _madvise is None or images.device.type != "cpu" or size != images[0].numel() * images.element_size():
        return
    for first, last in stretches:
        start, stop = (images.data_ptr() + position * size for position in (first, last))
        for piece in range(start - start % mmap.PAGESIZE, stop, PIECE):
            _madvise(piece, min(PIECE, stop - piece), mmap.MADV_WILLNEED)
