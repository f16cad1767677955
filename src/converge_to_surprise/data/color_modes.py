"""Pictures of every kind of pixel as plain gray or plain color: palettes, alpha, print colors, 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

DEEP = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
"""Modes with more than eight bits a pixel, all of them gray."""
PRINTED = ("CMYK", "YCbCr", "HSV")


class UnknownMode(Exception):  # noqa: N818 - becomes the reason for which a picture is skipped
    """Pixels that cannot be turned into bytes without guessing."""


def to_plain(image: Image.Image) -> Image.Image:
    """A loaded picture of any mode as L (gray) or RGB. What is transparent shows white."""
    if image.mode in DEEP:
        return Image.fromarray(_deep_to_bytes(np.asarray(image), image.format == "PNG"))
    if image.has_transparency_data:
        colored = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, colored).convert("L" if image.mode in ("L", "LA", "La", "1") else "RGB")
    if image.mode in ("L", "RGB"):
        return image
    if image.mode == "1":
        return image.convert("L")
    if image.mode in ("P", "RGBX", *PRINTED):
        return image.convert("RGB")
    raise UnknownMode(f"its pixels are of the kind {image.mode}, which is not supported")


def _deep_to_bytes(pixels: npt.NDArray[Any], png: bool) -> npt.NDArray[np.uint8]:
    """Gray levels 0..65535 as 0..255. Whole numbers of 32 bits and fractions count as what their range says.

    The scale is never fitted to the single picture: two pictures of one light stay equally bright.
    """
    if not np.isfinite(pixels).all():
        raise UnknownMode("it has a pixel that is not finite")
    low, high = float(pixels.min()), float(pixels.max())
    if low < 0 or high > 65535:
        raise UnknownMode(f"its pixels lie in {low:g}..{high:g}; supported are 0..1 (fractions), 0..255 and 0..65535")
    # A PNG file has 16 bits, whichever mode Pillow opens it in.
    if pixels.dtype == np.uint16 or png or high > 255:
        scale = 1 / 257
    else:
        scale = 255.0 if np.issubdtype(pixels.dtype, np.floating) and high <= 1 else 1.0
    return np.round(pixels * scale).astype(np.uint8)
