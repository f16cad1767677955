"""Photographs of simple objects on an uncluttered background, in any color and light."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 24


def write_outlines(folder: Path, count: int = 90) -> Path:
    """Pictures of an upright bar, a lying bar and a square. Color and brightness of both grounds are random."""
    draw = np.random.default_rng(0)
    row, column = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    for number in range(count):
        height, width = ((9, 3), (3, 9), (7, 7))[number % 3]
        down, right = draw.uniform(-2, 2, 2)
        inside = (abs(row - down) < height) & (abs(column - right) < width)
        light, dark = draw.uniform(130, 250, 3), draw.uniform(0, 90, 3)
        pixels = np.where(inside[..., None], light, dark) + draw.normal(0, 4, (SIDE, SIDE, 3))
        path = folder / f"class {number % 3}" / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
    return folder
