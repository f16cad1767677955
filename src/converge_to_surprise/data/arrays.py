"""Arrays as images: any usual layout, dtype and range of values, brought to uint8 (N, C, H, W).

Arrays from Python and from files are converted by the same code, a block of images at a time, so that memory besides
the images themselves does not grow with their number. Bytes that have the wanted size already are not copied.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..config.memory import check_planned
from .resize import Bytes, Shape, fit_images

Array = npt.NDArray[Any]
Sizing = Callable[[Shape], tuple[int, int]]
"""From the (C, H, W) of an array's images to the (H, W) that they are brought to."""

HINT = "for feature vectors give --input embeddings"
"""Part of messages about numbers that are no images."""
BLOCK_VALUES = 2**22
"""Values that are checked or converted at a time."""


class Scale(NamedTuple):
    """The values that stand for black and for full brightness."""

    low: float
    high: float


BYTES = Scale(0, 255)
FRACTIONS = Scale(0, 1)


def to_numpy(pixels: object) -> Array:
    """A torch tensor, an array, or anything that numpy can convert."""
    if isinstance(pixels, Tensor):
        values = pixels.detach().cpu()
        return np.asarray((values.float() if values.dtype == torch.bfloat16 else values).numpy())  # numpy has none
    return np.asarray(pixels)


def to_nchw(pixels: Array, name: str) -> Array:
    """(N, H, W), (N, H, W, C) or (N, C, H, W) numbers as (N, C, H, W). ``name`` is what messages call them."""
    numbers = any(np.issubdtype(pixels.dtype, kind) for kind in (np.integer, np.floating, np.bool_))
    if not numbers:
        raise ValueError(f"{name} has dtype {pixels.dtype}; pixels are bytes, booleans, integers or floats")
    if pixels.ndim == 3:
        return pixels[:, None]
    if pixels.ndim == 4 and pixels.shape[3] in (1, 3):
        return pixels.transpose(0, 3, 1, 2)
    if pixels.ndim == 4 and pixels.shape[1] in (1, 3):
        return pixels
    ask = f"; {HINT}" if pixels.ndim == 2 else ""
    raise ValueError(
        f"{name} has shape {pixels.shape}; images are (N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or 3 channels{ask}"
    )


def image_shape_of(features: int, image_shape: tuple[int, ...] | None) -> Shape:
    """(C, H, W) of flattened images: as given, where one side may be -1 for what is left, or else a square.

    >>> image_shape_of(64, None), image_shape_of(10, (1, -1)), image_shape_of(48, (4, 4, 3))
    ((1, 8, 8), (1, 1, 10), (3, 4, 4))
    """
    side = math.isqrt(features)
    shape = tuple(int(side) for side in image_shape or (side, side))
    if shape.count(-1) == 1 and 0 not in shape:
        shape = tuple(features // -math.prod(shape) if side == -1 else side for side in shape)
    if len(shape) not in (2, 3) or min(shape, default=0) < 1 or math.prod(shape) != features:
        raise ValueError(
            f"image_shape is {image_shape}, which does not make images of {features} values; "
            "give (H, W), (H, W, C) or (C, H, W) of that size"
        )
    if len(shape) == 2:
        return (1, *shape)
    return (shape[2], shape[0], shape[1]) if shape[2] in (1, 3) else (shape[0], shape[1], shape[2])


def check_flattened(rows: Array, name: str) -> None:
    """Refuse numbers (N, D) that cannot be flattened images, or that look like feature vectors."""
    ask = 'give image_shape=(H, W) or (C, H, W) for flattened images, or input="embeddings" for feature vectors'
    if math.isqrt(rows.shape[1]) ** 2 != rows.shape[1]:
        raise ValueError(f"{name} has shape {rows.shape}, which is not a square image; {ask}")
    if why := _like_features(rows, name):
        raise ValueError(f"{name} has shape {rows.shape} and {why}, as feature vectors have; {ask}")


def _like_features(rows: Array, name: str) -> str | None:
    """A property of finite numbers (N, D) that pixels do not have, or None."""
    if rows.dtype in (np.uint8, np.bool_):
        return None
    low, high = _extremes(rows, name)
    if low < 0:
        return "negative values"
    if not np.issubdtype(rows.dtype, np.floating):
        return None
    if high > 1 and not all((rows[some] == np.round(rows[some])).all() for some in blocks(rows.shape)):
        return "fractions above 1"
    lengths = np.concatenate([np.linalg.norm(rows[some].astype(np.float64), axis=1) for some in blocks(rows.shape)])
    return "rows of length 1" if np.allclose(lengths, 1, atol=1e-3) else None


def unflatten(rows: Array, image_shape: tuple[int, ...] | None) -> Array:
    """Flattened images (N, values) as (N, C, H, W)."""
    channels, height, width = image_shape_of(rows.shape[1], image_shape)
    if image_shape is not None and len(image_shape) == 3 and image_shape[2] in (1, 3):
        return rows.reshape(-1, height, width, channels).transpose(0, 3, 1, 2)
    return rows.reshape(-1, channels, height, width)


def natural_scale(pixels: Array, name: str) -> Scale:
    """0..255 for bytes and values like bytes, 0..1 for fractions, otherwise from the minimum to the maximum.

    ``pixels`` (N, C, H, W) must be finite: otherwise the first image that is not is named.
    """
    if pixels.dtype == np.uint8:
        return BYTES
    if pixels.dtype == np.bool_:
        return FRACTIONS
    low, high = _extremes(pixels, name)
    if low >= 0 and high <= 255:
        return FRACTIONS if np.issubdtype(pixels.dtype, np.floating) and high <= 1 else BYTES
    return Scale(low, high)


def check_pixel_range(scale: Scale, name: str) -> None:
    """Refuse values outside of 0..255: it is not known which of them mean black and white."""
    if scale not in (BYTES, FRACTIONS):
        raise ValueError(
            f"{name} has pixels from {scale.low:g} to {scale.high:g}; "
            f"they must lie in 0..255, or in 0..1 for floats: scale them first ({HINT})"
        )


def to_images(pixels: Array, scale: Scale, name: str, sizing: Sizing | None = None) -> Tensor:
    """Numbers (N, C, H, W) as a uint8 tensor of the size that ``sizing`` asks for; beyond the scale they are cut off.

    Bytes of that size are not copied. A memory-mapped array then stays on disk in its own layout, because it may not
    fit into memory. Everything else is created in memory after a check that it fits.
    """
    count, channels, height, width = pixels.shape
    size = (height, width) if sizing is None else sizing((channels, height, width))
    if pixels.dtype == np.uint8 and scale == BYTES and size == (height, width):
        return to_tensor(pixels if _on_disk(pixels) else np.ascontiguousarray(pixels))
    shape = (count, channels, *size)
    check_planned(math.prod(shape), f"the {count:,} images of {name}, {size[0]}x{size[1]} pixels each,")
    images = np.empty(shape, np.uint8)
    for rows in blocks(pixels.shape):
        part = _to_bytes(pixels[rows], scale)
        if size == (height, width):
            images[rows] = part
        else:
            fit_images(part, images[rows])
    return torch.from_numpy(images)


def _to_bytes(pixels: Array, scale: Scale) -> Bytes:
    """Values as 0..255."""
    if pixels.dtype == np.uint8 and scale == BYTES:
        return pixels
    values = pixels if np.issubdtype(pixels.dtype, np.floating) else pixels.astype(np.float64)
    if scale == BYTES:
        values = values.clip(0, 255)
    elif scale == FRACTIONS:
        values = values.clip(0, 1) * 255
    else:
        span = max(scale.high - scale.low, np.finfo(np.float64).tiny)
        values = ((values.astype(np.float64) - scale.low) / span).clip(0, 1) * 255
    return np.round(values).astype(np.uint8)


def _extremes(pixels: Array, name: str) -> tuple[float, float]:
    """The smallest and the largest value."""
    lows, highs = [], []
    for rows in blocks(pixels.shape):
        part = pixels[rows]
        low, high = part.min(), part.max()
        if not (np.isfinite(low) and np.isfinite(high)):
            image, *where = np.argwhere(~np.isfinite(part))[0]
            value = part[(image, *where)]
            raise ValueError(
                f"{name} has a pixel that is {value} in image {rows.start + image}; pixels must be finite numbers"
            )
        lows.append(low)
        highs.append(high)
    return float(min(lows)), float(max(highs))


def blocks(shape: Sequence[int]) -> Iterator[slice]:
    """Slices of the images of an array of this shape, each of about ``BLOCK_VALUES`` values."""
    together = max(1, BLOCK_VALUES // max(1, math.prod(shape[1:])))
    return (slice(start, start + together) for start in range(0, shape[0], together))


def _on_disk(pixels: object) -> bool:
    """Whether an array is memory-mapped, or part of one that is."""
    while isinstance(pixels, np.ndarray) and not isinstance(pixels, np.memmap):
        pixels = pixels.base
    return isinstance(pixels, np.memmap)


def to_tensor(images: Array) -> Tensor:
    """Without a copy. Images are never written to, so torch's warning about read-only arrays does not apply."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(images)
