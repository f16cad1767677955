"""Gaussian blur of views (B, C, H, W), each by its own standard deviation."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

REACH = 3
"""Standard deviations that the kernel reaches: less than 0.3 % of the Gaussian lies beyond."""


def gaussian_blur(views: Tensor, sigma: Tensor, largest: float) -> Tensor:
    """Blur each view by ``sigma`` (B,) pixels, at most ``largest``; those with 0 stay as they are.

    Beyond the edge the outermost pixels are repeated. The kernel is cut off at three times ``largest`` and sums to 1.
    """
    chosen = sigma > 0
    if not bool(chosen.any()):
        return views
    reach = math.ceil(REACH * largest)
    offsets = torch.arange(-reach, reach + 1, device=views.device)
    # A tiny standard deviation must not make 0/0: its kernel is a single pixel.
    weights = torch.softmax(-(offsets**2) / (2 * sigma[chosen, None].clamp(min=1e-3) ** 2), 1).to(views.dtype)
    blurred = views[chosen]
    for axis in (2, 3):
        blurred = _convolved(blurred, weights, axis, reach)
    result = views.clone()
    result[chosen] = blurred
    return result


def _convolved(views: Tensor, weights: Tensor, axis: int, reach: int) -> Tensor:
    """Each view convolved with its own weights (B, 2 reach + 1) along one axis."""
    padding = (0, 0, reach, reach) if axis == 2 else (reach, reach, 0, 0)
    padded, length = F.pad(views, padding, mode="replicate"), views.shape[axis]
    total = torch.zeros_like(views)
    for offset, weight in enumerate(weights.unbind(1)):
        total += padded.narrow(axis, offset, length) * weight[:, None, None, None]
    return total
