"""Color of views (B, C, H, W): the perceived brightness, and colors turned around it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

GRAY = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in the perceived brightness (ITU-R BT.601)."""
YIQ = (GRAY, (0.595716, -0.274453, -0.321263), (0.211456, -0.522591, 0.311135))
"""Rows: brightness, and the two axes of the plane of colors around it, as in the NTSC standard."""


def gray(views: Tensor) -> Tensor:
    """Perceived brightness, (B, 1, H, W)."""
    if views.shape[1] != 3:
        return views.mean(1, keepdim=True)
    weights = torch.tensor(GRAY, device=views.device, dtype=views.dtype)
    return (views * weights[None, :, None, None]).sum(1, keepdim=True)


def shift_hue(views: Tensor, shift: Tensor) -> Tensor:
    """Turn the colors of each view (B, 3, H, W) around the gray axis by a fraction ``shift`` (B,) of a full circle.

    The brightness of every pixel stays. Differences of colors are turned alike, because the turn is linear.
    """
    to_yiq = torch.tensor(YIQ, dtype=torch.float64)
    angle = shift.double() * (2 * math.pi)
    zero, one, cos, sin = torch.zeros_like(angle), torch.ones_like(angle), angle.cos(), angle.sin()
    turn = torch.stack([one, zero, zero, zero, cos, -sin, zero, sin, cos], 1).reshape(-1, 3, 3)
    matrices = (torch.linalg.inv(to_yiq) @ turn.cpu() @ to_yiq).to(views.device, views.dtype)
    turned: Tensor = matrices @ views.flatten(2)
    return turned.reshape(views.shape)
