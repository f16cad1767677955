"""One uint8 array of images, in memory or memory-mapped, with class labels if there are any."""

from __future__ import annotations

import errno
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from .arrays import Array, Sizing, blocks, check_pixel_range, natural_scale, to_images, to_nchw

TILE = 12
"""Longest side in pixels of the picture of a vector."""
TILE_SAMPLE = 10_000
"""Vectors from which mean and spread of every value are computed."""
ROWS = 4096
"""Images or vectors that are gone through together."""


@dataclass(frozen=True)
class ImageStore:
    """Images (N, C, H, W) as uint8; ``labels`` (N,) are for evaluation only."""

    images: Tensor
    """Or float32 (N, V, 1, D): embeddings, V views of each item."""
    labels: npt.NDArray[np.int64] | None = None
    names: Sequence[str] | None = None
    """(N,) The name of each image: a file's path within its source."""
    class_names: Sequence[str] | None = None
    """The names of the classes: label k is ``class_names[k]``."""
    thumbnails: Tensor | None = None
    """Pictures of embeddings, uint8 (N, C, H, W), if there are any."""

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    @property
    def pictures(self) -> Tensor | None:
        """The images, or the pictures of embeddings if there are any."""
        return self.thumbnails if self.images.is_floating_point() else self.images

    @property
    def shown(self) -> Tensor:
        """What a page shows of every item. uint8 (N, C, H, W)"""
        return tiles(self.images) if self.pictures is None else self.pictures


def tiles(items: Tensor) -> Tensor:
    """The first view of items (N, V, 1, D) as gray squares: values above their mean are bright. uint8 (N, 1, S, S)"""
    features = items.shape[3]
    side = min(TILE, math.ceil(math.sqrt(features)))
    sample = items[:: max(1, len(items) // TILE_SAMPLE), 0, 0].float()
    mean, spread = sample.mean(0), sample.std(0).clamp(min=1e-12)
    parts = []
    for rows in torch.split(items[:, 0, 0], ROWS):
        values = ((rows.float() - mean) / spread).clamp(-3, 3)
        if features > side * side:
            values = F.adaptive_avg_pool1d(values[:, None], side * side)[:, 0]
        parts.append(F.pad(values, (0, side * side - values.shape[1])))
    whole = torch.cat(parts)
    top = 2 * whole.std().clamp(min=1e-12)
    return ((whole / top).clamp(-1, 1) * 127 + 128).round().to(torch.uint8).reshape(-1, 1, side, side)


def to_store(pixels: Array, labels: Array | None, name: str, sizing: Sizing | None = None) -> ImageStore:
    """Check an array of images and bring it to uint8 (N, C, H, W), as it is or as large as ``sizing`` asks for.

    ``name`` is what messages call it. Values outside of 0..255 are refused: a file does not define which of them mean
    black and white, and another file of the same kind could have another range.
    """
    numbers = to_nchw(np.asarray(pixels), name)
    if len(numbers) == 0:
        raise ValueError(f"{name} holds no images")
    if numbers.size == 0:
        raise ValueError(f"{name} holds images of {numbers.shape[2]}x{numbers.shape[3]} pixels")
    scale = natural_scale(numbers, name)
    check_pixel_range(scale, name)
    checked, words = (None, None) if labels is None else check_labels(np.asarray(labels), len(numbers), name)
    return ImageStore(to_images(numbers, scale, name, sizing), checked, class_names=words)


def fingerprint(images: Tensor) -> str:
    """SHA-256 over shape and pixels."""
    digest = hashlib.sha256(repr(tuple(images.shape)).encode())
    for part in torch.split(images, ROWS):
        digest.update(part.contiguous().numpy().tobytes())
    return digest.hexdigest()


def map_array(path: Path) -> Any:
    """``np.load`` of a file; a single array stays on disk until it is read.

    It is mapped for private writing, which never reaches the file, because torch warns of arrays that it may not write.
    Systems refuse that for files larger than their memory; those are mapped for reading.
    """
    try:
        # Pickled objects could run code.
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
    return np.load(path, mmap_mode="r", allow_pickle=False)


def check_clusterable(store: ImageStore, name: str) -> None:
    """Refuse images that cannot be clustered."""
    if store.images.is_floating_point():
        _check_different(store.images, name)
        return
    if len(store) < 2:
        raise ValueError(f"{name} holds {len(store)} image; clustering needs at least 2, and useful clusters many more")
    height, width = store.images.shape[2:]
    if height * width < 2:
        raise ValueError(f"{name} holds images of {height}x{width} pixels; two views need at least 2 pixels")
    flat = store.images.flatten(1)
    if all(bool((flat[rows] == flat[:1]).all()) for rows in blocks(flat.shape)):
        constant = bool((flat[0] == flat[0, 0]).all())
        what = f"constant (every pixel is {int(flat[0, 0])})" if constant else "the same"
        raise ValueError(f"all {len(store)} images of {name} are {what}: there is nothing to cluster")
    if all(bool((flat[rows] == flat[rows, :1]).all()) for rows in blocks(flat.shape)):
        raise ValueError(f"every image of {name} is constant (a single gray value): there is nothing to see in them")


def _check_different(items: Tensor, name: str) -> None:
    """Refuse embeddings (N, V, 1, D) that cannot be clustered."""
    if len(items) < 2:
        raise ValueError(f"{name} holds {len(items)} item; clustering needs at least 2, and useful clusters many more")
    if all(bool((items[rows] == items[:1]).all()) for rows in blocks(items.shape)):
        raise ValueError(f"all {len(items):,} embeddings of {name} are the same: there is nothing to cluster")


def check_labels(labels: Array, images: int, name: str) -> tuple[npt.NDArray[np.int64], list[str] | None]:
    """Labels as numbers, and the names of the classes unless the labels are numbers from 0 on already."""
    if labels.shape != (images,):
        raise ValueError(f"{name} has {images} images but labels of shape {labels.shape}")
    if np.issubdtype(labels.dtype, np.integer):
        numbers = labels.astype(np.int64)
        if numbers.min() >= 0 and numbers.max() < 100_000:
            return numbers, None
    # Any other labels (words, negative or huge numbers) are numbered in sorted order.
    values, codes = np.unique(labels, return_inverse=True)
    return codes.astype(np.int64), [str(value) for value in values]
