"""Panels of 3x3 images for every cluster and class with enough images in common (figures 3 to 5 of the paper)."""

from __future__ import annotations

import io
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from ..core.metrics import Labels

FEWEST = 50
"""Images that a cluster and a class must share for a panel."""
SIDE = 3
PICTURE = 56
"""Pixels that a small image is enlarged to, about."""
GAP, CAPTION, COLUMNS = 10, 16, 5

Pixels = npt.NDArray[np.uint8]


class Panel(NamedTuple):
    """Images of one class in one cluster."""

    cluster: int
    number: int
    """The class."""
    images: int
    """How many there are."""
    shown: list[int]
    """Positions of the nine (or fewer) that are shown."""


def choose(clusters: Labels, classes: Labels, seed: int = 0) -> list[Panel]:
    """The panels of a clustering, by cluster and class; which images are shown is drawn from ``seed``."""
    rng = np.random.default_rng(seed)
    found = []
    for cluster in np.unique(clusters):
        for number in np.unique(classes[clusters == cluster]):
            members = np.flatnonzero((clusters == cluster) & (classes == number))
            if len(members) >= FEWEST:
                picked = np.sort(rng.choice(members, size=min(SIDE * SIDE, len(members)), replace=False))
                found.append(Panel(int(cluster), int(number), len(members), picked.tolist()))
    return found


def draw(panels: list[Panel], images: Pixels, captions: list[str]) -> bytes:
    """A PNG of all panels. ``images``: (N, C, H, W) with 1 or 3 channels; one caption per panel."""
    scale = max(1, round(PICTURE / max(images.shape[2:])))
    height, width = images.shape[2] * scale, images.shape[3] * scale
    font = ImageFont.load_default()
    inner = max(SIDE * (width + 2), *(int(font.getlength(caption)) + 2 for caption in captions), 1)
    cell = (inner + GAP, CAPTION + SIDE * (height + 2) + GAP)
    columns = max(1, min(COLUMNS, len(panels)))
    rows = max(1, -(-len(panels) // columns))
    sheet = Image.new("RGB", (GAP + columns * cell[0], GAP + rows * cell[1]), "white")
    pen = ImageDraw.Draw(sheet)
    for position, (panel, caption) in enumerate(zip(panels, captions, strict=True)):
        left, top = GAP + position % columns * cell[0], GAP + position // columns * cell[1]
        pen.text((left, top), caption, fill="black", font=font)
        for place, index in enumerate(panel.shown):
            corner = (left + place % SIDE * (width + 2), top + CAPTION + place // SIDE * (height + 2))
            sheet.paste(_picture(images[index], (width, height)), corner)
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()


def _picture(pixels: Pixels, size: tuple[int, int]) -> Image.Image:
    """One image (C, H, W) enlarged without smoothing."""
    flat = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
    return Image.fromarray(np.ascontiguousarray(flat)).convert("RGB").resize(size, Image.Resampling.NEAREST)
