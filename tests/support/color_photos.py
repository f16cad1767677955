"""A folder of pictures that any backbone can tell apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

COLORS = ((200, 60, 60), (60, 200, 60), (60, 60, 200))


def write_colors(folder: Path, count: int = 90) -> Path:
    """Noisy pictures of three colors, in folders of their classes."""
    draw = np.random.default_rng(0)
    for number in range(count):
        color = COLORS[number % 3]
        pixels = (np.array(color) + draw.normal(0, 30, (20, 20, 3))).clip(0, 255).astype(np.uint8)
        path = folder / f"class {number % 3}" / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return folder
