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
ORIENTATIONS = 12
"""Directions of change that ``edge_histograms`` distinguishes."""
CELL = 4
"""Distance in pixels between the centers of two cells of ``edge_histograms``; a cell is twice as wide."""
SIDE = 32
"""Pixels along each side at which edges are counted: larger and smaller pictures are resized."""


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
    """How strong the edges of each direction are in each cell of an image: what distinguishes shapes. (B, D)

    Histograms of oriented gradients (Dalal and Triggs 2005) in proportion to the edges around a cell and in the whole
    image, by their square roots, so that distances are Hellinger's. Cells at the rim count less.
    """
    across, down = _strongest_gradients(resized(images)).unbind(1)
    strength = torch.hypot(across, down)[:, None]
    turn = torch.atan2(down, across)[:, None] * (ORIENTATIONS / (2 * math.pi))
    directions = torch.arange(ORIENTATIONS, device=images.device)[:, None, None]
    # Each edge counts for the two directions next to its own, in proportion to how near they are.
    apart = (turn - directions + ORIENTATIONS / 2).remainder(ORIENTATIONS) - ORIENTATIONS / 2
    # Cells overlap, so that a small shift changes little.
    cells = F.avg_pool2d((1 - apart.abs()).clamp(min=0) * strength, 2 * CELL, CELL)
    power = cells.square().sum(1, keepdim=True)
    usual = F.avg_pool2d(power, 3, 1, 1, count_include_pad=False) + power.mean((2, 3), keepdim=True)
    rows, columns = (_falling_to_the_rim(extent).to(cells) for extent in cells.shape[2:])
    return ((cells / (usual + FAINT**2).sqrt()).sqrt() * rows[:, None] * columns).flatten(1)


def resized(images: Tensor) -> Tensor:
    """Images as squares: those of one collection have one shape, and long ones would have thousands of cells."""
    size = images.shape[2:]
    if size == (SIDE, SIDE):
        return images
    return F.interpolate(images, (SIDE, SIDE), mode="bilinear", antialias=max(size) > SIDE)


def _strongest_gradients(images: Tensor) -> Tensor:
    """The gradient of the channel that changes most: edges between colors of equal brightness count. (B, 2, H, W)"""
    batch, channels, height, width = images.shape
    each = gradients(images.reshape(-1, 1, height, width)).reshape(batch, channels, 2, height, width)
    strongest = each.square().sum(2, keepdim=True).argmax(1, keepdim=True)
    return each.take_along_dim(strongest, 1)[:, 0]


def _falling_to_the_rim(extent: int) -> Tensor:
    """Weights of cells along one side: what is shown lies in the middle more often than at the rim. (extent,)"""
    return torch.sin(math.pi * torch.arange(1, extent + 1) / (extent + 1)).sqrt()


def _around(values: Tensor, fraction: int) -> Tensor:
    """The mean over a square that reaches 1 / ``fraction`` of the shorter side, inside the image. (B, C, H, W)"""
    reach = max(2, min(values.shape[2:]) // fraction)
    width = 2 * reach + 1
    rows = F.avg_pool2d(values, (width, 1), 1, (reach, 0), count_include_pad=False)
    return F.avg_pool2d(rows, (1, width), 1, (0, reach), count_include_pad=False)
