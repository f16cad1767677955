"""Images with a known structure, for benchmarks and tests that must not depend on files."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def striped_images(count: int, side: int = 8, seed: int = 0) -> tuple[Tensor, npt.NDArray[np.int64]]:
    """Bright horizontal or vertical bars on a noisy background, uint8 (N, 1, H, W), and which of the two each image is."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 2, count)
    pixels = rng.integers(0, 60, (count, side, side))
    for image, kind in zip(pixels, classes, strict=True):
        start = rng.integers(1, side - 3)
        bar = (slice(start, start + 3), slice(None)) if kind else (slice(None), slice(start, start + 3))
        image[bar] += 180
    return torch.from_numpy(pixels.astype(np.uint8))[:, None], classes
