"""Arrays from Python as images: any usual shape and range of values, brought to uint8 (N, C, H, W)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .store import Array


class Scale(NamedTuple):
    """The values that stand for black and for full brightness."""

    low: float
    high: float


def to_numpy(pixels: object) -> Array:
    """A torch tensor, an array or anything that numpy makes an array of."""
    if isinstance(pixels, Tensor):
        return np.asarray(pixels.detach().cpu().numpy())
    return np.asarray(pixels)


def image_shape_of(features: int, image_shape: tuple[int, ...] | None) -> tuple[int, int, int]:
    """(C, H, W) of flattened images: as given, or else a square if that is possible, or else a single row.

    >>> image_shape_of(64, None), image_shape_of(10, None), image_shape_of(48, (4, 4, 3))
    ((1, 8, 8), (1, 1, 10), (3, 4, 4))
    """
    if image_shape is None:
        side = math.isqrt(features)
        return (1, side, side) if side * side == features else (1, 1, features)
    shape = tuple(int(side) for side in image_shape)
    if len(shape) not in (2, 3) or min(shape, default=0) < 1 or math.prod(shape) != features:
        raise ValueError(
            f"image_shape is {image_shape}, which does not make images of {features} values; "
            "give (H, W), (H, W, C) or (C, H, W) of that size"
        )
    if len(shape) == 2:
        return (1, *shape)
    return (shape[2], shape[0], shape[1]) if shape[2] in (1, 3) else (shape[0], shape[1], shape[2])


def unflatten(rows: Array, image_shape: tuple[int, ...] | None) -> Array:
    """Flattened images (N, values) as (N, C, H, W)."""
    channels, height, width = image_shape_of(rows.shape[1], image_shape)
    if image_shape is not None and len(image_shape) == 3 and image_shape[2] in (1, 3):
        return rows.reshape(-1, height, width, channels).transpose(0, 3, 1, 2)
    return rows.reshape(-1, channels, height, width)


def natural_scale(pixels: Array) -> Scale:
    """0..255 for bytes and what looks like bytes, 0..1 for what looks like shares, else from least to most."""
    if pixels.dtype == np.uint8:
        return Scale(0, 255)
    if pixels.dtype == np.bool_:
        return Scale(0, 1)
    low, high = float(pixels.min()), float(pixels.max())
    if low >= 0 and high <= 255:
        return Scale(0, 1) if np.issubdtype(pixels.dtype, np.floating) and high <= 1 else Scale(0, 255)
    return Scale(low, high)


def to_bytes(pixels: Array, scale: Scale) -> Tensor:
    """Values as 0..255 in a contiguous uint8 tensor; what lies beyond the scale is cut off."""
    if pixels.dtype == np.uint8 and scale == (0, 255):
        return torch.from_numpy(np.array(pixels, order="C"))
    span = max(scale.high - scale.low, np.finfo(np.float64).tiny)
    shares: npt.NDArray[np.float64] = (pixels.astype(np.float64) - scale.low) / span
    return torch.from_numpy(np.ascontiguousarray(np.round(shares.clip(0, 1) * 255), dtype=np.uint8))
