"""Images brought to another size: one rule for the pictures of files and for arrays."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from PIL import Image

Bytes = npt.NDArray[np.uint8]
Shape = tuple[int, int, int]
"""(C, H, W): 1 (gray) or 3 (red, green, blue) channels, height, width."""


def fit(picture: Image.Image, height: int, width: int) -> Bytes:
    """An L or RGB picture within (H, W, C), enlarged or reduced, the aspect kept."""
    if picture.size != (width, height):
        scale = min(width / picture.width, height / picture.height)
        size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
        picture = picture.resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)
    pixels = np.asarray(picture)
    pixels = pixels.reshape(picture.height, picture.width, -1)
    if picture.size == (width, height):
        return pixels
    canvas = np.empty((height, width, pixels.shape[2]), np.uint8)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])  # (n, C)
    canvas[:] = np.round(border.mean(0))
    top, left = (height - picture.height) // 2, (width - picture.width) // 2
    canvas[top : top + picture.height, left : left + picture.width] = pixels
    return canvas


def fit_images(images: Iterable[Bytes], out: Bytes) -> None:
    """Each of some uint8 images (C, H, W) within the place for it in ``out`` (n, C, H', W')."""
    _, channels, height, width = out.shape
    for image, place in zip(images, out, strict=True):
        plain = image[0] if channels == 1 else image.transpose(1, 2, 0)
        picture = Image.fromarray(np.ascontiguousarray(plain))
        place[:] = fit(picture, height, width).transpose(2, 0, 1)
