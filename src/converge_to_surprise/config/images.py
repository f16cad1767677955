"""How a user's own images are read."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Literal, SupportsIndex, get_args

Color = Literal["auto", "gray", "rgb"]
LabelSource = Literal["none", "from-folders"]
InputKind = Literal["images", "embeddings"]

SMALLEST_SIDE, LARGEST_SIDE = 8, 1024
"""Range of ``image_size``. Each view has half of the pixels: with sides below 8 too few are left."""

MOST_COPIES = 1000
"""Augmented copies of each view that a pre-trained backbone sees, at most."""


@dataclass(frozen=True)
class ImageOptions:
    """How to read a user's own images. All but ``image_size`` applies to picture files only."""

    image_size: int | None = None
    """Longer side in pixels; by default 48, or less if the images are smaller."""
    color: Color = "auto"
    """auto: in color if more than one picture in a hundred is."""
    labels: LabelSource = "none"
    """from-folders: the folders directly below are the classes, for evaluation only."""
    square: int | None = None
    """Read pictures in color at exactly this many pixels a side, as a pre-trained backbone takes them; larger arrays
    are reduced to it."""
    input: InputKind = "images"
    """embeddings: the source holds feature vectors instead of images."""
    pictures: str | None = None
    """Embeddings: a folder, a table or a column of paths with a picture of every item, for the page."""
    threads: int = 0
    """Pictures decoded at the same time; 0: as many as there are CPU threads."""

    def __post_init__(self) -> None:
        check_image_size(self.image_size, "image_size")
        for name, kind in (("color", Color), ("labels", LabelSource), ("input", InputKind)):
            if (value := getattr(self, name)) not in (known := get_args(kind)):
                raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(known)}")
        if self.threads < 0:
            raise ValueError(f"threads is {self.threads}; it must be 0 (as many as there are) or more")


def check_copies(value: int | None, name: str) -> None:
    """Refuse a number of augmented copies out of range. ``name`` is the user's name for it."""
    if value is not None and not 1 <= value <= MOST_COPIES:
        raise ValueError(f"{name} is {value}; it must be from 1 to {MOST_COPIES}")


def check_image_size(value: object, name: str) -> None:
    """Refuse a value that is neither None nor a side in pixels. ``name`` is the user's name for it."""
    if value is None:
        return
    side = operator.index(value) if isinstance(value, SupportsIndex) and not isinstance(value, bool) else 0
    if not SMALLEST_SIDE <= side <= LARGEST_SIDE:
        raise ValueError(f"{name} is {value!r}; it must be an integer from {SMALLEST_SIDE} to {LARGEST_SIDE}")
