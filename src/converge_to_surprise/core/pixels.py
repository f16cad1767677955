"""Statistics of an image's pixels: what an image is made of, whatever it shows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SCALES = 3
"""The image itself, at half and at quarter size."""
COLOR_SCALES = 2
"""The same for colors, which say less in detail."""
STEPS = tuple(level / 255 for level in (2.3, 4.3, 8.3, 16.3, 32.3, 64.3))
"""Sizes of a difference between adjacent pixels: none is a difference that means of bytes have, up to rounding."""


def statistics(pixels: Tensor) -> Tensor:
    """Contrasts, steps and moments of brightness, and of color images those of two differences of colors.

    (n, statistics)

    ``pixels``: float32 images (n, 1 or 3, H, W) in [0, 1].
    """
    bright = pixels.mean(1, keepdim=True)
    values = bright.flatten(2)
    mean = values.mean(2)
    centered = values - mean[..., None]
    spread = (centered.square().mean(2) + 1e-6).sqrt()
    skewed, peaked = centered.pow(3).mean(2) / spread.square(), centered.pow(4).mean(2) / spread.pow(3)
    found = [contrasts(bright, SCALES), mean, spread, skewed, peaked, values.amin(2), values.amax(2)]
    found.append(step_shares(bright, SCALES))
    if pixels.shape[1] == 3:
        red, green, blue = torch.split(pixels, 1, 1)
        colors = torch.cat([red - green, blue - (red + green) / 2], 1)
        values = colors.flatten(2)
        spread = (values - values.mean(2, keepdim=True)).square().mean(2)
        found += [contrasts(colors, COLOR_SCALES), values.mean(2), (spread + 1e-6).log() / 2]
    return torch.cat(found, 1)


def contrasts(values: Tensor, scales: int) -> Tensor:
    """Log of the mean square of differences between adjacent pixels, across and down, at each scale. (n, ...)"""
    found = [_log_square(step) for pair in _differences(values, scales) for step in pair if step.numel()]
    return torch.cat(found, 1) if found else values.flatten(1)[:, :0]


def step_shares(values: Tensor, scales: int) -> Tensor:
    """Log of the share of differences between adjacent pixels that exceed each of STEPS, at each scale. (n, ...)

    Two images of one contrast differ in it: few sharp edges on a smooth ground, or fine texture everywhere.
    """
    found: list[Tensor] = []
    for across, down in _differences(values, scales):
        sizes = torch.cat([across.flatten(1), down.flatten(1)], 1).abs()
        if sizes.numel():
            found += [((sizes > step).float().mean(1, keepdim=True) + 0.01).log() for step in STEPS]
    return torch.cat(found, 1) if found else values.flatten(1)[:, :0]


def _differences(values: Tensor, scales: int) -> list[tuple[Tensor, Tensor]]:
    """Differences between adjacent pixels, across and down, at each scale that the image has."""
    found: list[tuple[Tensor, Tensor]] = []
    for scale in range(scales):
        if scale:
            if min(values.shape[2:]) < 4:
                break
            values = F.avg_pool2d(values, 2)
        found.append((values[..., 1:] - values[..., :-1], values[..., 1:, :] - values[..., :-1, :]))
    return found


def _log_square(steps: Tensor) -> Tensor:
    return (steps.flatten(2).square().mean(2) + 1e-5).log()
