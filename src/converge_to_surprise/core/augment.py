"""Random crop, zoom-out, flip and rotation as one geometric warp, then color jitter (paper 4.1, table 4) and blur.

Drawing and applying are separate: ``draw`` uses the generator, ``apply`` is deterministic. The order is the
paper's: crop, zoom-out, flip, rotation, brightness, contrast (and saturation for color). Composed into one affine map,
an image is sampled once, so the nearest-neighbor error does not add up. What contrastive learning adds for photographs
comes where it does there: a crop by area in the crop, hue, gray and blur last. Their numbers are drawn last, and only
where they are used, so that other augmentations stay the same.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..config import Augmentation, Views
from .blur import gaussian_blur
from .color import gray, shift_hue
from .views import Shard, background, draw_stored, split_masks


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
    share_height: Tensor
    """Fraction of the height that the crop by area keeps."""
    share_width: Tensor
    offset_y: Tensor
    """Fraction of the rest that lies above the crop by area."""
    offset_x: Tensor
    hue: Tensor
    """Fraction of a full circle by which colors are turned."""
    gray: Tensor
    """1 where color is removed, else 0."""
    sigma: Tensor
    """Standard deviation of the blur in pixels."""


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
    brightness, contrast = factor(settings.brightness), factor(settings.contrast)
    saturation = factor(settings.saturation)
    nothing, everything = torch.zeros(count), torch.ones(count)
    share_height, share_width, offset_y, offset_x = everything, everything, nothing, nothing
    if settings.crop_area < 1:
        area = 1 - uniform() * (1 - settings.crop_area) * happens(settings.crop_prob)
        aspect = torch.exp((2 * uniform() - 1) * math.log(settings.crop_aspect))
        share_height, share_width = (area / aspect).sqrt().clamp(max=1), (area * aspect).sqrt().clamp(max=1)
        offset_y, offset_x = uniform(), uniform()
    hue = (2 * uniform() - 1) * settings.hue if settings.hue else nothing
    pale = happens(settings.gray_prob) if settings.gray_prob else nothing
    sigma = uniform() * settings.blur * happens(settings.blur_prob) if settings.blur else nothing
    return Draw(
        cut, top, left, pad_height, pad_width, pad_top, pad_left, flip, angle, brightness, contrast, saturation,
        share_height, share_width, offset_y, offset_x, hue, pale, sigma,
    )  # fmt: skip


def apply(views: Tensor, drawn: Draw, settings: Augmentation, *, signed: bool) -> Tensor:
    """Augment views (B, C, H, W) as drawn: values in [0, 1] or, if signed, differences from the background."""
    drawn = Draw(*(value.to(views.device) for value in drawn))
    views = jitter(warp(views, drawn, settings), drawn, settings, -1 if signed else 0)
    return gaussian_blur(views, drawn.sigma, settings.blur) if settings.blur else views


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


class Window(NamedTuple):
    """The part of each view that its crop keeps, in pixels; all of shape (B,)."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor

    @classmethod
    def of(cls, drawn: Draw, height: int, width: int) -> Window:
        """The crop of whole pixels, and the crop by area within it."""
        tall, wide = height - drawn.cut, width - drawn.cut
        kept_height, kept_width = tall * drawn.share_height, wide * drawn.share_width
        top = drawn.top + drawn.offset_y * (tall - kept_height)
        return cls(top, drawn.left + drawn.offset_x * (wide - kept_width), kept_height, kept_width)


def warp(views: Tensor, drawn: Draw, settings: Augmentation) -> Tensor:
    """The geometric part: each output pixel is rotated back, un-flipped and mapped into the padded crop."""
    cropped = settings.crop or settings.crop_area < 1
    if not (settings.rotation or cropped or settings.zoom_out_prob or settings.flip_prob):
        return views
    count, _, height, width = views.shape
    crop = Window.of(drawn, height, width)
    # Coordinates are pixels with the origin in the middle of the image; x runs along the width.
    canvas_width, canvas_height = crop.width + drawn.pad_width, crop.height + drawn.pad_height
    scale_x, scale_y = canvas_width / width, canvas_height / height
    shift_x = crop.left - drawn.pad_left + (canvas_width - width) / 2
    shift_y = crop.top - drawn.pad_top + (canvas_height - height) / 2
    cos, sin = drawn.angle.cos(), drawn.angle.sin()
    # affine_grid expects units in which each half axis is 1: hence the ratios of the sides.
    row_x = torch.stack(
        [scale_x * cos * drawn.flip, -scale_x * sin * drawn.flip * height / width, 2 * shift_x / width], 1
    )
    row_y = torch.stack([scale_y * sin * width / height, scale_y * cos, 2 * shift_y / height], 1)
    grid = F.affine_grid(torch.stack([row_x, row_y], 1), [count, 1, height, width], align_corners=False)
    if settings.fill == "black":
        grid = _mask_outside_crop(grid, crop, height, width)
    # Sampling gives 0 outside the image: subtract the background before and add it after.
    offset = background(views) if settings.fill == "background" else None
    source = views if offset is None else views - offset
    warped = F.grid_sample(source, grid, mode=settings.sampling, padding_mode="zeros", align_corners=False)
    return warped if offset is None else warped + offset


def _mask_outside_crop(grid: Tensor, crop: Window, height: int, width: int) -> Tensor:
    """Move grid points outside the crop off the image, where sampling gives black."""
    x = (grid[..., 0] + 1) * (width / 2) - crop.left[:, None, None]
    y = (grid[..., 1] + 1) * (height / 2) - crop.top[:, None, None]
    inside = (x >= 0) & (x < crop.width[:, None, None])
    inside &= (y >= 0) & (y < crop.height[:, None, None])
    return torch.where(inside[..., None], grid, 4.0)


def jitter(views: Tensor, drawn: Draw, settings: Augmentation, low: int = 0) -> Tensor:
    """Brightness, contrast about the view's mean and, for color, saturation, hue and removal of color.

    Values are clipped to [low, 1] after each.
    """
    if settings.brightness:
        views = (views * drawn.brightness[:, None, None, None]).clamp(low, 1)
    if settings.contrast:
        mean = gray(views).mean((1, 2, 3), keepdim=True)
        views = (mean + (views - mean) * drawn.contrast[:, None, None, None]).clamp(low, 1)
    if settings.saturation and views.shape[1] == 3:
        pale = gray(views)
        views = (pale + (views - pale) * drawn.saturation[:, None, None, None]).clamp(low, 1)
    if settings.hue and views.shape[1] == 3:
        views = shift_hue(views, drawn.hue).clamp(low, 1)
    if settings.gray_prob and views.shape[1] == 3:
        views = torch.where(drawn.gray[:, None, None, None] > 0, gray(views), views)
    return views


def widened(settings: Augmentation, rotation: float, crop: int) -> Augmentation:
    """The same augmentation with more rotation, always applied, and a larger crop in pixels."""
    return replace(
        settings, rotation=min(180.0, settings.rotation + rotation), rotation_prob=1.0, crop=settings.crop + crop
    )
