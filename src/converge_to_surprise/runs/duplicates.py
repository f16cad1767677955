"""The table of near-duplicates of a run: RUN/duplicates.csv."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..config.storage import csv_bytes, read_csv, write_atomically
from ..data.near_duplicates import DuplicateGroup


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
