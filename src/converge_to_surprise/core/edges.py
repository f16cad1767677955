"""Edges of pictures (B, C, H, W): where brightness changes, whatever the light.

Light, color cast and background are the cheapest things that two views of a photograph share. Edges that are divided by
the edges around them do not depend on the first two, and of the third only its outlines remain.
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
"""Directions of brightness that ``edge_histograms`` tells apart."""
CELLS = 8
"""Cells of ``edge_histograms`` along the shorter side."""


def gradients(images: Tensor) -> Tensor:
    """Change of the perceived brightness along the width and along the height, by Sobel's operator. (B, 2, H, W)"""
    across = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]], device=images.device) / 8
    padded = F.pad(gray(images), (1, 1, 1, 1), mode="replicate")
    return F.conv2d(padded, torch.stack([across, across.t()])[:, None].to(images.dtype))


def normalized_strength(change: Tensor) -> Tensor:
    """Strength of edges from gradients (B, 2, H, W), in proportion to those around it and in the whole image.

    (B, 1, H, W), from 0 to below 1; an edge of average strength has 1/3.
    """
    strength = (change * change).sum(1, keepdim=True).sqrt()
    return strength / (strength + _around(strength) + strength.mean((2, 3), keepdim=True) + FAINT)


def edge_map(views: Tensor) -> Tensor:
    """The edges of views in [0, 1], bright on black. (B, 1, H, W), from 0 to below 1"""
    return normalized_strength(gradients(views))


def edge_histograms(images: Tensor) -> Tensor:
    """How strong the edges of each direction are in each cell of an image: what tells shapes apart. (B, D)"""
    change = gradients(images)
    strength = normalized_strength(change)
    angles = torch.arange(ORIENTATIONS, device=images.device) * (2 * math.pi / ORIENTATIONS)
    directions = torch.stack([angles.cos(), angles.sin()], 1).to(images.dtype)[:, :, None, None]
    unit = change / (change * change).sum(1, keepdim=True).sqrt().clamp(min=1e-9)
    oriented = F.conv2d(unit, directions).clamp(min=0).square() * strength
    cell = max(1, round(min(images.shape[2:]) / CELLS))
    # Cells overlap, so that a small shift changes little.
    return F.avg_pool2d(oriented, 2 * cell - 1, cell, cell - 1).flatten(1)


def _around(strength: Tensor) -> Tensor:
    """The mean over a square with about a third of the shorter side. (B, 1, H, W)"""
    reach = max(1, min(strength.shape[2:]) // 6)
    width = 2 * reach + 1
    rows = F.avg_pool2d(strength, (width, 1), 1, (reach, 0), count_include_pad=False)
    return F.avg_pool2d(rows, (1, width), 1, (0, reach), count_include_pad=False)
