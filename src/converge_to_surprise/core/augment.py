"""Random crop, zoom-out, flip and rotation as one geometric warp, then color jitter (paper 4.1, table 4).

Drawing and applying are separate: ``draw`` uses the generator, ``apply`` is deterministic. The order is the
paper's: crop, zoom-out, flip, rotation, brightness, contrast (and saturation for color). Composed into one affine map,
an image is sampled once, so the nearest-neighbor error does not add up.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..config import Augmentation, Views
from .views import Shard, background, draw_stored, split_masks

GRAY = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in the perceived brightness (ITU-R BT.601)."""


class Draw(NamedTuple):
    """The random parameters of each view of a batch; all of shape (B,)."""

    cut: Tensor
    """Pixels that the crop removes from each axis."""
    top: Tensor
    """First row of the crop."""
    left: Tensor
    """First column of the crop."""
    pad_height: Tensor
    """Black rows added."""
    pad_width: Tensor
    """Black columns added."""
    pad_top: Tensor
    """How many of the black rows come first."""
    pad_left: Tensor
    """How many of the black columns come first."""
    flip: Tensor
    """-1 where mirrored, else 1."""
    angle: Tensor
    """Rotation in radians."""
    brightness: Tensor
    contrast: Tensor
    saturation: Tensor


def draw(settings: Augmentation, count: int, generator: torch.Generator) -> Draw:
    """Parameters of ``count`` independent augmentations."""

    def uniform() -> Tensor:
        return torch.rand(count, generator=generator)

    def whole_below(limit: Tensor | int) -> Tensor:
        """Whole numbers from 0 to ``limit``, both included."""
        return torch.floor(uniform() * (limit + 1))

    def happens(probability: float) -> Tensor:
        return (uniform() < probability).float()

    def factor(spread: float) -> Tensor:
        return 1 + (2 * uniform() - 1) * spread

    cut = whole_below(settings.crop) * happens(settings.crop_prob)
    top, left = whole_below(cut), whole_below(cut)
    smallest, largest = settings.zoom_out
    pad = (smallest + whole_below(largest - smallest)) * happens(settings.zoom_out_prob)
    vertical = happens(0.5)
    pad_height, pad_width = pad * vertical, pad * (1 - vertical)
    pad_top, pad_left = whole_below(pad_height), whole_below(pad_width)
    flip = 1 - 2 * happens(settings.flip_prob)
    angle = (2 * uniform() - 1) * math.radians(settings.rotation) * happens(settings.rotation_prob)
    return Draw(
        cut, top, left, pad_height, pad_width, pad_top, pad_left, flip, angle,
        factor(settings.brightness), factor(settings.contrast), factor(settings.saturation),
    )  # fmt: skip


def apply(views: Tensor, drawn: Draw, settings: Augmentation, *, signed: bool) -> Tensor:
    """Augment views (B, C, H, W) as drawn: values in [0, 1] or, if signed, differences from the background."""
    drawn = Draw(*(value.to(views.device) for value in drawn))
    return jitter(warp(views, drawn, settings), drawn, settings, -1 if signed else 0)


def augment(
    views: Tensor,
    settings: Augmentation,
    generator: torch.Generator,
    shard: Shard | None = None,
    batches: int = 1,
    *,
    signed: bool,
) -> Tensor:
    """Draw and apply. The views can be a ``shard`` of each of several concatenated batches."""
    drawn = draw(settings, len(views) if shard is None else shard.whole * batches, generator)
    if shard is not None:
        drawn = Draw(*(shard.of(values) for values in drawn))
    return apply(views, drawn, settings, signed=signed)


def skip(images: Tensor, settings: tuple[Views, Augmentation], count: int, generator: torch.Generator) -> None:
    """Advance the generator as the views of ``count`` of the images would: another process makes them."""
    views, augmentation = settings
    if views.stored:
        draw_stored(images, count, generator)
    else:
        split_masks(count, 1, 1, generator)
    for _ in range(2):
        draw(augmentation, count, generator)


def warp(views: Tensor, drawn: Draw, settings: Augmentation) -> Tensor:
    """The geometric part: each output pixel is rotated back, un-flipped and mapped into the padded crop."""
    if not (settings.rotation or settings.crop or settings.zoom_out_prob or settings.flip_prob):
        return views
    count, _, height, width = views.shape
    # Coordinates are pixels with the origin in the middle of the image; x runs along the width.
    canvas_width, canvas_height = width - drawn.cut + drawn.pad_width, height - drawn.cut + drawn.pad_height
    scale_x, scale_y = canvas_width / width, canvas_height / height
    shift_x = drawn.left - drawn.pad_left + (canvas_width - width) / 2
    shift_y = drawn.top - drawn.pad_top + (canvas_height - height) / 2
    cos, sin = drawn.angle.cos(), drawn.angle.sin()
    # affine_grid expects units in which each half axis is 1: hence the ratios of the sides.
    row_x = torch.stack(
        [scale_x * cos * drawn.flip, -scale_x * sin * drawn.flip * height / width, 2 * shift_x / width], 1
    )
    row_y = torch.stack([scale_y * sin * width / height, scale_y * cos, 2 * shift_y / height], 1)
    grid = F.affine_grid(torch.stack([row_x, row_y], 1), [count, 1, height, width], align_corners=False)
    if settings.fill == "black":
        grid = _mask_outside_crop(grid, drawn, height, width)
    # Sampling gives 0 outside the image: subtract the background before and add it after.
    offset = background(views) if settings.fill == "background" else None
    source = views if offset is None else views - offset
    warped = F.grid_sample(source, grid, mode=settings.sampling, padding_mode="zeros", align_corners=False)
    return warped if offset is None else warped + offset


def _mask_outside_crop(grid: Tensor, drawn: Draw, height: int, width: int) -> Tensor:
    """Move grid points outside the crop off the image, where sampling gives black."""
    x = (grid[..., 0] + 1) * (width / 2) - drawn.left[:, None, None]
    y = (grid[..., 1] + 1) * (height / 2) - drawn.top[:, None, None]
    inside = (x >= 0) & (x < (width - drawn.cut)[:, None, None])
    inside &= (y >= 0) & (y < (height - drawn.cut)[:, None, None])
    return torch.where(inside[..., None], grid, 4.0)


def jitter(views: Tensor, drawn: Draw, settings: Augmentation, low: int = 0) -> Tensor:
    """Brightness, contrast about the view's mean and, for color, saturation; values are clipped to [low, 1]."""
    if settings.brightness:
        views = (views * drawn.brightness[:, None, None, None]).clamp(low, 1)
    if settings.contrast:
        mean = gray(views).mean((1, 2, 3), keepdim=True)
        views = (mean + (views - mean) * drawn.contrast[:, None, None, None]).clamp(low, 1)
    if settings.saturation and views.shape[1] == 3:
        pale = gray(views)
        views = (pale + (views - pale) * drawn.saturation[:, None, None, None]).clamp(low, 1)
    return views


def gray(views: Tensor) -> Tensor:
    """Perceived brightness, (B, 1, H, W)."""
    if views.shape[1] != 3:
        return views.mean(1, keepdim=True)
    weights = torch.tensor(GRAY, device=views.device, dtype=views.dtype)
    return (views * weights[None, :, None, None]).sum(1, keepdim=True)


def widened(settings: Augmentation, rotation: float, crop: int) -> Augmentation:
    """The same augmentation with more rotation, always applied, and a larger crop in pixels."""
    return replace(
        settings, rotation=min(180.0, settings.rotation + rotation), rotation_prob=1.0, crop=settings.crop + crop
    )
