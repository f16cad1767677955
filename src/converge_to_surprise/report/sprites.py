"""Thumbnails, many to a sheet, small enough for the page's budget."""

from __future__ import annotations

import base64
import io
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from ..model.inference import map_ordered

COLUMNS, ROWS = 32, 16
PER_SHEET = COLUMNS * ROWS
SIDES = (96, 64, 48, 40, 32, 28, 24, 20)
"""Longest sides that thumbnails are shrunk to."""
PIXEL_ART = 32
"""Images up to this side are kept pixel for pixel where there is room."""
LOSSLESS = 100
QUALITIES = (80, 60, 40)
TRIED = 2 * PER_SHEET
"""Images on which sizes are tried out."""

Numbers = npt.NDArray[np.int64]


class Form(NamedTuple):
    """How thumbnails are made."""

    width: int
    height: int
    quality: int
    """Of WebP; 100: nothing is lost."""


def choose_form(images: Tensor, room: float) -> tuple[Form, float]:
    """The best form in which a thumbnail of images (N, C, H, W) takes at most ``room`` bytes, and what it takes.

    If none is small enough, the smallest.
    """
    height, width = images.shape[2:]
    step = max(1, len(images) // TRIED)
    sample = images[::step][:TRIED]
    form, size = Form(width, height, LOSSLESS), float("inf")
    for form in _forms(height, width):
        size = sum(map(len, encode(sample, form))) / len(sample)
        if size <= room:
            break
    return form, size


def native_form(images: Tensor) -> Form:
    """The form that keeps the most of images (N, C, H, W), whatever it takes."""
    height, width = images.shape[2:]
    return _forms(height, width)[0]


def _forms(height: int, width: int) -> list[Form]:
    longest = max(height, width)
    native = min(longest, SIDES[0])
    found = [Form(width, height, LOSSLESS)] if longest <= PIXEL_ART else []
    for side in (native, *(side for side in SIDES if side < native)):
        scale = side / longest
        shape = max(1, round(width * scale)), max(1, round(height * scale))
        found += [Form(*shape, quality) for quality in QUALITIES]
    return found


def encode(images: Tensor, form: Form) -> list[str]:
    """Sheets with the thumbnails of all images (N, C, H, W), row by row: WebP pictures in base64."""
    parts = torch.split(images, PER_SHEET)
    return list(map_ordered(partial(_sheet, form=form), parts, torch.get_num_threads()))


def _sheet(images: Tensor, form: Form) -> str:
    count, channels = images.shape[:2]
    small = images
    if images.shape[2:] != (form.height, form.width):
        shrunk = F.interpolate(images.float(), (form.height, form.width), mode="bilinear", antialias=True)
        small = shrunk.round().clamp(0, 255).to(torch.uint8)
    columns, rows = min(COLUMNS, count), -(-count // COLUMNS)
    grid = torch.zeros(rows * columns, channels, form.height, form.width, dtype=torch.uint8)
    grid[:count] = small
    tiled = grid.reshape(rows, columns, channels, form.height, form.width).permute(0, 3, 1, 4, 2)
    pixels = tiled.reshape(rows * form.height, columns * form.width, channels).numpy()
    picture = Image.fromarray(pixels[..., 0] if channels == 1 else pixels).convert("RGB")
    buffer = io.BytesIO()
    lossless = form.quality == LOSSLESS
    picture.save(buffer, "WEBP", quality=50 if lossless else form.quality, lossless=lossless, method=2)
    return base64.b64encode(buffer.getvalue()).decode()


def spread(groups: Numbers, confidence: npt.NDArray[np.float32], count: int) -> Numbers:
    """Positions of ``count`` images: every group has its share, from its most to its least typical image."""
    order = np.lexsort((-confidence, groups))
    if count >= len(order):
        return order
    sizes = np.bincount(groups - groups.min())
    shares = np.minimum(sizes, np.maximum((sizes > 0).astype(np.int64), np.floor(sizes * (count / len(order)))))
    kept = []
    for members, share in zip(np.split(order, np.cumsum(sizes)[:-1]), shares.astype(int), strict=True):
        if share:
            kept.append(members[np.unique(np.round(np.linspace(0, len(members) - 1, share)).astype(np.int64))])
    return np.concatenate(kept)
