"""Images with a known structure, for benchmarks and tests that must not depend on files."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def striped_images(count: int, side: int = 8, seed: int = 0) -> tuple[Tensor, npt.NDArray[np.int64]]:
    """Bright horizontal or vertical bars on a noisy background, uint8 (N, 1, H, W), and which each image is."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 2, count)
    pixels = rng.integers(0, 60, (count, side, side))
    for image, kind in zip(pixels, classes, strict=True):
        start = rng.integers(1, side - 3)
        bar = (slice(start, start + 3), slice(None)) if kind else (slice(None), slice(start, start + 3))
        image[bar] += 180
    return torch.from_numpy(pixels.astype(np.uint8))[:, None], classes


FINE = 4
"""Points per pixel and side at which shapes are drawn."""
NESTED_TREE: dict[str, tuple[int, ...]] = {"pair": (2,), "square": (2, 2), "cross": (), "bar": ()}
"""The made tree: what divides the images of each shape. pair: texture. square: texture, crossed with the position of a
hole. cross: nothing, it is filled with noise. bar: nothing, it is plain. Shapes differ more than textures: otherwise
texture above shape would be as good a tree."""


def nested_images(count: int, side: int = 20, seed: int = 0) -> tuple[Tensor, npt.NDArray[np.int64], list[str]]:
    """Images whose tree of clusters is known: shape, then texture, crossed with the position of a hole.

    uint8 (N, 1, H, W); for every image its leaf; for every leaf its path, as in "pair/1".
    """
    leaves = [
        "/".join([shape, *map(str, parts)]) for shape, sizes in NESTED_TREE.items() for parts in np.ndindex(*sizes)
    ]
    shapes = list(NESTED_TREE)
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, len(shapes), count)
    truth = np.zeros(count, dtype=np.int64)
    pixels = rng.normal(20, 8, (count, side, side))
    for index, image in enumerate(pixels):
        shape = shapes[kind[index]]
        parts = [int(rng.integers(0, size)) for size in NESTED_TREE[shape]]
        truth[index] = leaves.index("/".join([shape, *map(str, parts)]))
        _draw(image, shape, parts, rng)
    return torch.from_numpy(pixels.clip(0, 255).astype(np.uint8))[:, None], truth, leaves


def _draw(image: npt.NDArray[np.float64], shape: str, parts: list[int], rng: np.random.Generator) -> None:
    """One shape at a slightly random place, drawn at a finer resolution, so that no pixel grid shows."""
    side, fine = len(image), FINE * len(image)
    row, column = (side - 1) / 2 + rng.uniform(-1, 1, 2)
    y, x = (np.mgrid[:fine, :fine] + 0.5) / FINE - 0.5
    y, x, size = y - row, x - column, 0.3 * side * rng.uniform(0.95, 1.05)
    inside = {
        "pair": (abs(abs(x) - 0.85 * size) <= 0.5 * size) & (abs(y) <= 1.3 * size),
        "square": (abs(y) <= 0.85 * size) & (abs(x) <= 0.85 * size),
        "cross": ((abs(y) <= 0.3 * size) | (abs(x) <= 0.3 * size)) & (abs(y) <= 1.5 * size) & (abs(x) <= 1.5 * size),
        "bar": (abs(y) <= 0.45 * size) & (abs(x) <= 1.3 * size),
    }[shape]
    value = np.full_like(y, 160.0)
    if shape == "cross":
        value = np.kron(rng.uniform(60, 255, image.shape), np.ones((FINE, FINE)))
    elif parts:
        value = np.where(np.sin(np.pi * (y if parts[0] else x) / 3) > 0, 230.0, 70.0)
    shown = np.where(inside, value, 0.0)
    if len(parts) > 1:
        away = 0.5 * size if parts[1] else -0.5 * size
        shown[(abs(y - away) <= 2.2) & (abs(x) <= 2.2)] = 0  # within the square, so that no crop loses it
    image += shown.reshape(side, FINE, side, FINE).mean((1, 3))
