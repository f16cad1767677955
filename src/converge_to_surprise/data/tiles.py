"""Small pictures of vectors, for a page that has no other pictures of them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

SIDE = 12
"""Longest side of a tile in pixels."""
SAMPLE = 10_000
"""Vectors from which mean and spread of every value are computed."""
ROWS = 4096


def tiles(items: Tensor) -> Tensor:
    """The first view of items (N, V, 1, D) as gray squares: values above their mean are bright. uint8 (N, 1, S, S)"""
    features = items.shape[3]
    side = min(SIDE, math.ceil(math.sqrt(features)))
    sample = items[:: max(1, len(items) // SAMPLE), 0, 0].float()
    mean, spread = sample.mean(0), sample.std(0).clamp(min=1e-12)
    parts = []
    for rows in torch.split(items[:, 0, 0], ROWS):
        values = ((rows.float() - mean) / spread).clamp(-3, 3)
        if features > side * side:
            values = F.adaptive_avg_pool1d(values[:, None], side * side)[:, 0]
        parts.append(F.pad(values, (0, side * side - values.shape[1])))
    whole = torch.cat(parts)
    top = 2 * whole.std().clamp(min=1e-12)
    return ((whole / top).clamp(-1, 1) * 127 + 128).round().to(torch.uint8).reshape(-1, 1, side, side)
