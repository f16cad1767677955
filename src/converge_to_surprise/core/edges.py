"""Edges of pictures (B, C, H, W): where brightness changes, whatever the light.

Light, color cast and background are what two views of a photograph share most easily. Three steps remove them:
a slope that goes on around a pixel is light that falls off and is subtracted; what is left is divided by the edges
around it and in the whole picture; and squares make faint edges, which are noise, fainter.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .color import gray

FAINT = 0.01
"""Strength, as a difference of brightness, below which an edge counts as noise: plain areas stay black."""
ORIENTATIONS = 8
"""Directions of brightness that ``edge_histograms`` distinguishes."""
CELLS = 8
"""Cells of ``edge_histograms`` along the shorter side."""


def gradients(images: Tensor) -> Tensor:
    """Change of the perceived brightness along the width and along the height, by Sobel's operator. (B, 2, H, W)"""
    across = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]], device=images.device) / 8
    padded = F.pad(gray(images), (1, 1, 1, 1), mode="replicate")
    return F.conv2d(padded, torch.stack([across, across.t()])[:, None].to(images.dtype))


def normalized_strength(change: Tensor) -> Tensor:
    """Strength of edges from gradients (B, 2, H, W), in proportion to those around it and in the whole image.

    (B, 1, H, W), from 0 to below 1; in a picture that is equally strong everywhere it is 1/5.
    """
    power = (change * change).sum(1, keepdim=True)
    strength = power.sqrt()
    usual = _around(strength, 6) + strength.mean((2, 3), keepdim=True) + FAINT
    return power / (power + usual * usual)


def edge_map(views: Tensor) -> Tensor:
    """The edges of views in [0, 1], bright on black. (B, 1, H, W), from 0 to below 1"""
    change = gradients(views)
    return normalized_strength(change - _around(change, 12))


def edge_histograms(images: Tensor) -> Tensor:
    """How strong the edges of each direction are in each cell of an image: what distinguishes shapes. (B, D)"""
    change = gradients(images)
    strength = edge_map(images)
    angles = torch.arange(ORIENTATIONS, device=images.device) * (2 * math.pi / ORIENTATIONS)
    directions = torch.stack([angles.cos(), angles.sin()], 1).to(images.dtype)[:, :, None, None]
    unit = change / (change * change).sum(1, keepdim=True).sqrt().clamp(min=1e-9)
    oriented = F.conv2d(unit, directions).clamp(min=0).square() * strength
    cell = max(1, round(min(images.shape[2:]) / CELLS))
    # Cells overlap, so that a small shift changes little.
    return F.avg_pool2d(oriented, 2 * cell - 1, cell, cell - 1).flatten(1)


def _around(values: Tensor, fraction: int) -> Tensor:
    """The mean over a square that reaches 1 / ``fraction`` of the shorter side, inside the image. (B, C, H, W)"""
    reach = max(2, min(values.shape[2:]) // fraction)
    width = 2 * reach + 1
    rows = F.avg_pool2d(values, (width, 1), 1, (reach, 0), count_include_pad=False)
    return F.avg_pool2d(rows, (1, width), 1, (0, reach), count_include_pad=False)
