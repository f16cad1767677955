"""What pictures are, from the pictures alone: their rims, their colors and their edges."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..config import PictureKind
from .edges import gradients
from .views import background, to_float

LOOKED_AT = 500
"""Pictures that are looked at, evenly spaced."""
SIDE = 48
"""Larger pictures are looked at at about this size."""
LIKE_BACKGROUND = 0.06
"""Difference of brightness up to which a pixel of the rim counts as background."""
PLAIN = 0.6
"""Fraction of the rim that is background from which on the background is plain."""
MOST_PICTURES = 0.9
"""Fraction of the pictures of which this must be true."""
COLORED = 0.02
"""Mean difference between the channels from which on a picture has colors."""
EDGE = 0.03
"""Change of brightness from one pixel to the next that counts as an edge."""
BUSY = 0.45
"""Fraction of pixels on edges from which on a picture is busy: no outline stands out."""


class PictureTraits(NamedTuple):
    """Figures of some pictures, (n,) each."""

    plain: Tensor
    """Fraction of the outermost pixels that have the background color."""
    color: Tensor
    """Mean difference between the largest and the smallest channel."""
    busy: Tensor
    """Fraction of pixels on edges."""

    @classmethod
    def of(cls, images: Tensor) -> PictureTraits:
        """The traits of uint8 images (n, C, H, W)."""
        scale = max(1, max(images.shape[2:]) // SIDE)
        pixels = F.avg_pool2d(to_float(images), (min(scale, images.shape[2]), min(scale, images.shape[3])))
        off = (pixels - background(pixels)).abs().amax(1)
        rim = torch.cat([off[:, 0], off[:, -1], off[:, :, 0], off[:, :, -1]], 1)
        strength = gradients(pixels).square().sum(1).sqrt()
        return cls(
            (rim <= LIKE_BACKGROUND).float().mean(1),
            (pixels.amax(1) - pixels.amin(1)).mean((1, 2)),
            (strength > EDGE).float().mean((1, 2)),
        )


def picture_kind(images: Tensor) -> PictureKind:
    """The kind of uint8 images (N, C, H, W), from up to 500 of them."""
    step = -(-len(images) // LOOKED_AT)
    parts = [PictureTraits.of(images[start : start + 50 * step : step]) for start in range(0, len(images), 50 * step)]
    traits = PictureTraits(*(torch.cat(values) for values in zip(*parts, strict=True)))
    plain = float(traits.plain.quantile(1 - MOST_PICTURES)) >= PLAIN
    if float(traits.color.median()) < COLORED:
        return "glyph" if plain else "gray"
    # On a plain background the colors themselves are what pixels have most in common, not the shapes.
    return "object" if plain or float(traits.busy.median()) < BUSY else "scene"
