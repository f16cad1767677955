"""Images that show the same thing twice: the same picture saved again, smaller, brighter or turned a little.

An image is compared in a small version, normalized in brightness and contrast. The distance of two images is the root
of the mean squared difference of these, relative to the contrast: 0 for the same picture, about 1.4 for unrelated ones.
Pictures that were saved again as JPEG, halved, brightened by 15 % or turned by a degree are mostly nearer than
``RADIUS``; pictures of one kind that are not the same one hardly ever are.

All pairs within the radius are found: projected on some principal components, two points are never farther apart than
they are in full, so a search in few dimensions gives every pair and some more, which the full distance sorts out.

A run keeps its groups as a table: RUN/duplicates.csv.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from scipy.spatial import cKDTree
from torch import Tensor

from ..config.storage import csv_bytes, read_csv, write_atomically

RADIUS = 0.1
"""Largest distance of a near-duplicate from the first image of its group."""
SIDE = 16
"""Images are compared at this size."""
MIN_CONTRAST = 4.0
"""Standard deviation in gray levels; below it there is only noise to compare."""
BRIGHTNESS = 0.75
"""What a difference in brightness from black to white adds to the distance."""
COMPONENTS = 10
"""Principal components in which candidates are searched."""
SAMPLE = 5000
"""Images from which the components are computed."""
CHUNK_PIXELS = 2**24
"""Pixels that are normalized at a time."""
BLOCK, MOST_PAIRS = 4096, 2**18
"""Images whose neighbors are searched at a time, and the pairs that are compared at a time, about."""
ROUNDING = 1e-4
"""How far single precision may be off."""

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


class DuplicateGroup(NamedTuple):
    """An image and its near-duplicates, in the order of the images."""

    images: list[int]
    distances: list[float]
    """The distance of each one from the first."""


def near_duplicates(images: Tensor) -> list[DuplicateGroup]:
    """The groups of near-duplicates among uint8 images (N, C, H, W), ordered by their first image.

    The first image that is in no group yet leads one: every later image within the radius of it that is in no other
    group belongs to it. So a chain of small changes does not join what looks different.
    """
    points = _projected(images)
    tree = cKDTree(points)
    free = np.ones(len(images), dtype=bool)
    groups: list[DuplicateGroup] = []
    start = 0
    while start < len(images):
        leaders = np.flatnonzero(free[start : start + BLOCK]) + start
        stop = min(len(images), start + BLOCK)
        if len(leaders):
            counts = np.asarray(tree.query_ball_point(points[leaders], RADIUS + ROUNDING, return_length=True))
            # So many leaders that their pairs fit: where many images are alike, the first leader takes the others.
            some = max(1, int(np.searchsorted(np.cumsum(counts - 1), MOST_PAIRS, side="right")))
            stop = stop if some >= len(leaders) else int(leaders[some])
            leaders = leaders[:some][counts[:some] > 1]
            groups += _lead(images, leaders, tree, points, free)
        start = stop
    return groups


def _lead(
    images: Tensor, leaders: Integers, tree: cKDTree, points: Floats, free: npt.NDArray[np.bool_]
) -> list[DuplicateGroup]:
    """The groups of some leaders in order. ``free`` are the images without a group; it is updated."""
    candidates: Any = tree.query_ball_point(points[leaders], RADIUS + ROUNDING, return_sorted=True)
    rows = []
    for leader, found in zip(leaders.tolist(), candidates, strict=True):
        others = np.array(found, dtype=np.int64)
        rows.append(others[(others > leader) & free[others]])
    many = [len(row) for row in rows]
    pairs = _distances(images, np.repeat(leaders, many), np.concatenate([*rows, leaders[:0]]))
    distances = np.split(pairs, np.cumsum(many))[: len(rows)]
    groups = []
    for leader, row, found in zip(leaders.tolist(), rows, distances, strict=True):
        near = (found <= RADIUS) & free[row]
        if not free[leader] or not near.any():
            continue
        members = row[near]
        free[leader], free[members] = False, False
        rounded = [round(float(distance), 4) for distance in found[near]]
        groups.append(DuplicateGroup([leader, *members.tolist()], [0.0, *rounded]))
    return groups


def _distances(images: Tensor, first: Integers, second: Integers) -> Floats:
    """The distance between the images at two lists of positions (n,). (n,)"""
    size = _rows(images)
    parts = [
        (_normalized(images[torch.from_numpy(first[start : start + size])])
         - _normalized(images[torch.from_numpy(second[start : start + size])])).norm(dim=1)
        for start in range(0, len(first), size)
    ]  # fmt: skip
    return np.asarray(torch.cat([*parts, torch.zeros(0)]), dtype=np.float32)


def _projected(images: Tensor) -> Floats:
    """The normalized images on the principal components of a sample of them. (N, at most COMPONENTS)"""
    chosen = torch.linspace(0, len(images) - 1, min(SAMPLE, len(images))).round().long()
    size = _rows(images)
    sample = torch.cat([_normalized(images[part]) for part in torch.split(chosen, size)])
    centered = (sample - sample.mean(0)).double()
    directions = torch.linalg.eigh(centered.t() @ centered)[1][:, -COMPONENTS:].float()
    parts = [_normalized(images[start : start + size]) @ directions for start in range(0, len(images), size)]
    return np.asarray(torch.cat(parts), dtype=np.float32)


def _rows(images: Tensor) -> int:
    """Images that are normalized at a time."""
    return max(1, CHUNK_PIXELS // math.prod(images.shape[1:]))


def _normalized(images: Tensor) -> Tensor:
    """Points whose Euclidean distance is the distance of the images (n, C, H, W). (n, D)"""
    height, width = images.shape[2:]
    small = F.adaptive_avg_pool2d(images.float(), (min(SIDE, height), min(SIDE, width)))
    flat = small.flatten(1)
    centered = flat - flat.mean(1, keepdim=True)
    spread = centered.square().mean(1, keepdim=True).sqrt().clamp(min=MIN_CONTRAST)
    brightness = small.mean((2, 3)) * (BRIGHTNESS / 255 / math.sqrt(images.shape[1]))
    return torch.cat([centered / spread / math.sqrt(flat.shape[1]), brightness], 1)


def write_duplicates(path: Path, groups: Sequence[DuplicateGroup], names: Sequence[str] | None) -> None:
    """One row per image that has near-duplicates; ``names``: the files of all images, if they have any."""
    rows = [
        (number, image if names is None else names[image], f"{distance:.4f}")
        for number, group in enumerate(groups)
        for image, distance in zip(*group, strict=True)
    ]
    write_atomically(path, csv_bytes([("group", "image" if names is None else "file", "distance"), *rows]))


def read_duplicates(path: Path, names: Sequence[str] | None, images: int) -> list[DuplicateGroup] | None:
    """The groups that ``write_duplicates`` listed; None if there is no such table of these images."""
    if not path.is_file():
        return None
    known = range(images) if names is None else names
    position = {str(name): number for number, name in enumerate(known)}
    groups: dict[int, DuplicateGroup] = {}
    try:
        for row in read_csv(path):
            group = groups.setdefault(int(row["group"]), DuplicateGroup([], []))
            group.images.append(position[row["image" if names is None else "file"]])
            group.distances.append(float(row["distance"]))
    except (LookupError, TypeError, ValueError):
        return None
    members = [image for group in groups.values() for image in group.images]
    return list(groups.values()) if len(set(members)) == len(members) else None


def duplicates_line(groups: Sequence[DuplicateGroup], path: Path) -> str:
    """How many images have near-duplicates.

    >>> duplicates_line([DuplicateGroup([3, 8], [0, 0.02]), DuplicateGroup([5, 6, 9], [0, 0, 0])], Path("run/d.csv"))
    'near-duplicates: 5 images in 2 groups; see run/d.csv'
    """
    images = sum(len(group.images) for group in groups)
    return f"near-duplicates: {images:,} images in {len(groups):,} group{'s' * (len(groups) > 1)}; see {path}"
