"""One uint8 array of images, in memory or memory-mapped, with class labels if there are any."""

from __future__ import annotations

import errno
import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]

CHECKED = 1024
"""Images looked at together: there may be more than fit into memory, and the first few settle most questions."""


@dataclass(frozen=True)
class ImageStore:
    """Images (N, C, H, W) as uint8; ``labels`` (N,) are for evaluation only."""

    images: Tensor
    labels: npt.NDArray[np.int64] | None = None
    names: Sequence[str] | None = None
    """(N,) What the user calls each image: a file's path within its source."""
    class_names: Sequence[str] | None = None
    """What the labels stand for: label k is ``class_names[k]``."""

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width


def to_store(pixels: Array, labels: Array | None, name: str) -> ImageStore:
    """Check an array of images and bring it to uint8 (N, C, H, W). ``name`` is what messages call it."""
    images = _to_bytes(to_nchw(np.asarray(pixels), name), name)
    on_disk = isinstance(pixels, np.memmap) and np.may_share_memory(images, pixels)
    if len(images) == 0:
        raise ValueError(f"{name} holds no images")
    if images.size == 0:
        raise ValueError(f"{name} holds images of {images.shape[2]}x{images.shape[3]} pixels")
    checked, words = (None, None) if labels is None else _check_labels(np.asarray(labels), len(images), name)
    # What lies on disk stays there, in whatever order its pixels have: in memory there may be no room for it.
    return ImageStore(_to_tensor(images if on_disk else np.ascontiguousarray(images)), checked, class_names=words)


def fingerprint(images: Tensor) -> str:
    """SHA-256 over shape and pixels."""
    digest = hashlib.sha256(repr(tuple(images.shape)).encode())
    for start in range(0, len(images), 4096):
        digest.update(images[start : start + 4096].contiguous().numpy().tobytes())
    return digest.hexdigest()


def map_array(path: Path) -> Any:
    """What ``np.load`` makes of a file; a lone array stays on disk until it is read.

    It is mapped for private writing, which never reaches the file, because torch warns of arrays that it may not write.
    Systems refuse that for files larger than their memory; those are mapped for reading.
    """
    try:
        # Pickled objects could run code of whoever wrote the file.
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _parts(flat: Tensor) -> Iterator[Tensor]:
    return (flat[start : start + CHECKED] for start in range(0, len(flat), CHECKED))


def _to_tensor(images: npt.NDArray[np.uint8]) -> Tensor:
    """Without a copy. Images are never written to, so that torch need not warn where that is impossible."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(images)


def check_clusterable(store: ImageStore, name: str) -> None:
    """Refuse what no clustering can be learned from."""
    if len(store) < 2:
        raise ValueError(f"{name} holds {len(store)} image; clustering needs at least 2, and useful clusters many more")
    height, width = store.images.shape[2:]
    if height * width < 2:
        raise ValueError(f"{name} holds images of {height}x{width} pixels; two views need at least 2 pixels")
    flat = store.images.flatten(1)
    if all(bool((part == flat[:1]).all()) for part in _parts(flat)):
        constant = bool((flat[0] == flat[0, 0]).all())
        what = f"constant (every pixel is {int(flat[0, 0])})" if constant else "the same"
        raise ValueError(f"all {len(store)} images of {name} are {what}: there is nothing to tell apart")
    if all(bool((part == part[:, :1]).all()) for part in _parts(flat)):
        raise ValueError(f"every image of {name} is constant (a single gray value): there is nothing to see in them")


def to_nchw(pixels: Array, name: str) -> Array:
    """(N, H, W), (N, H, W, C) or (N, C, H, W) as (N, C, H, W). ``name`` is what messages call it."""
    if pixels.ndim == 3:
        return pixels[:, None]
    if pixels.ndim == 4 and pixels.shape[3] in (1, 3):
        return pixels.transpose(0, 3, 1, 2)
    if pixels.ndim == 4 and pixels.shape[1] in (1, 3):
        return pixels
    raise ValueError(
        f"{name} has shape {pixels.shape}; images are (N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or 3 channels"
    )


def _to_bytes(pixels: Array, name: str) -> npt.NDArray[np.uint8]:
    """Pixels as 0..255: bytes as they are, booleans as black and white, floats from [0, 1] or [0, 255]."""
    if pixels.dtype == np.uint8 or pixels.size == 0:
        return pixels.astype(np.uint8, copy=False)
    if pixels.dtype == np.bool_:
        return pixels.astype(np.uint8) * np.uint8(255)
    if not (np.issubdtype(pixels.dtype, np.floating) or np.issubdtype(pixels.dtype, np.integer)):
        raise ValueError(f"{name} has dtype {pixels.dtype}; pixels are uint8, bool, integers 0..255 or floats")
    low, high = pixels.min(), pixels.max()
    if not (np.isfinite(low) and np.isfinite(high)):
        where = np.argwhere(~np.isfinite(pixels))[0]
        raise ValueError(
            f"{name} has a pixel that is {pixels[tuple(where)]} in image {where[0]}; pixels must be finite"
        )
    if low < 0 or high > 255:
        raise ValueError(f"{name} has pixels from {low} to {high}; they must lie in 0..255, or in 0..1 for floats")
    scale = 255 if np.issubdtype(pixels.dtype, np.floating) and high <= 1 else 1
    return np.round(pixels * scale).astype(np.uint8)


def _check_labels(labels: Array, images: int, name: str) -> tuple[npt.NDArray[np.int64], list[str] | None]:
    """Labels as numbers, and the names of the classes if it was not numbers from 0 on that were given."""
    if labels.shape != (images,):
        raise ValueError(f"{name} has {images} images but labels of shape {labels.shape}")
    if np.issubdtype(labels.dtype, np.integer):
        numbers = labels.astype(np.int64)
        if numbers.min() >= 0 and numbers.max() < 100_000:
            return numbers, None
    # Any other labels (words, negative or huge numbers) are numbered in sorted order.
    values, codes = np.unique(labels, return_inverse=True)
    return codes.astype(np.int64), [str(value) for value in values]
