"""Announce to the operating system which images will be read soon, so that it reads them in long stretches.

A random access to a memory-mapped file makes the system read the surrounding pages too, on some machines megabytes.
Pages that were announced are already in memory. This is advice only: without it everything is the same but slower.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterable

from torch import Tensor

PIECE = 2**17
"""Bytes announced at a time: systems ignore what exceeds their own limit, which is at least this."""


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
