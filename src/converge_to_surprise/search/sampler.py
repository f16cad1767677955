"""The order in which an epoch visits the images: random, and kind to a disk that holds more of them than memory does.

Up to ``LIMIT`` images the order is one permutation of all of them. For more, that would cost memory and time with every
image, and every batch would be read from places all over the file. So there the images are shuffled on two levels: the
file is cut into blocks of consecutive images, the blocks come in random order, a window takes the next few hundred of
them, and the images of a window come in random order. A batch still holds images from all over the file, but while a
window lasts everything is read from its few stretches, and once it is over they are not needed again in that epoch.

Either way an image's turn is a function of (seed, epoch) alone: nothing is remembered from batch to batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from ..core import rng as randomness

LIMIT = 2**18
"""Images up to which everything is done with all of them at once."""
BLOCK = 128
"""Consecutive images that belong together: about 100 KB of small pictures, as much as a system reads ahead."""
WINDOW = 512
"""Blocks whose images are mixed, at most: enough that a batch is random even if the file is sorted by kind."""


class _Windows(NamedTuple):
    """An epoch's blocks in random order, cut into near-equal windows."""

    blocks: tuple[Tensor, ...]
    """The numbers of each window's blocks."""
    starts: list[int]
    """How many images come before each window."""


def stretches(images: int, start: int, stop: int, seed: int, epoch: int) -> list[tuple[int, int]]:
    """What will be read from when the windows that begin with a turn from ``start`` to ``stop`` come up: their blocks,
    each as a first position and the one after its last. Nothing for few images.
    """
    if images <= LIMIT:
        return []
    blocks, starts = _windows(images, seed, "order", epoch)
    begun = blocks[bisect_left(starts, start) : bisect_left(starts, stop)]
    numbers = sorted(number for window in begun for number in window.tolist())
    return [(number * BLOCK, min(images, (number + 1) * BLOCK)) for number in numbers]


def epoch_indices(images: int, start: int, stop: int, seed: int, epoch: int, purpose: str = "order") -> Tensor:
    """Positions of the images whose turn in the epoch is from ``start`` to ``stop``. (stop - start,)

    >>> epoch_indices(10, 4, 8, seed=0, epoch=0).tolist()
    [2, 5, 4, 8]
    """
    if images <= LIMIT:
        return _permutation(images, seed, purpose, epoch)[start:stop].clone()
    return blocked_epoch_indices(images, start, stop, seed, epoch, purpose)


def blocked_epoch_indices(images: int, start: int, stop: int, seed: int, epoch: int, purpose: str = "order") -> Tensor:
    """The same on two levels, for any number of images."""
    starts = _windows(images, seed, purpose, epoch).starts
    parts = []
    for number in range(bisect_right(starts, start) - 1, bisect_right(starts, stop - 1)):
        window = _window(images, seed, purpose, epoch, number)
        parts.append(window[max(0, start - starts[number]) : stop - starts[number]])
    return torch.cat(parts)


# What the steps of an epoch have in common is kept, and only of the newest few: at most a window of positions each.
@lru_cache(maxsize=2)
def _permutation(images: int, seed: int, purpose: str, epoch: int) -> Tensor:
    return torch.randperm(images, generator=randomness.torch_generator(seed, purpose, epoch))


@lru_cache(maxsize=2)
def _windows(images: int, seed: int, purpose: str, epoch: int) -> _Windows:
    blocks = -(-images // BLOCK)
    order = torch.randperm(blocks, generator=randomness.torch_generator(seed, purpose, epoch))
    windows = order.tensor_split(-(-blocks // WINDOW))
    lacking = blocks * BLOCK - images  # of the last block, wherever it has come to lie
    sizes = [len(window) * BLOCK - lacking * bool((window == blocks - 1).any()) for window in windows]
    return _Windows(windows, [0, *accumulate(sizes)][:-1])


@lru_cache(maxsize=2)
def _window(images: int, seed: int, purpose: str, epoch: int, number: int) -> Tensor:
    """The images of one window in random order."""
    blocks = _windows(images, seed, purpose, epoch).blocks[number]
    positions = (blocks[:, None] * BLOCK + torch.arange(BLOCK)).flatten()
    positions = positions[positions < images]
    generator = randomness.torch_generator(seed, purpose, epoch, number)
    return positions[torch.randperm(len(positions), generator=generator)]
