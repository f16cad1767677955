"""How pictures are read: the user's wishes, and the working size and color that a sample of the pictures asks for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple, get_args

import numpy as np

from .decode import BadPicture, Probe, Shape, probe
from .listing import Listing

Color = Literal["auto", "gray", "rgb"]
LabelSource = Literal["none", "from-folders"]

SIDE = 48
"""The longer side of a picture where nothing else is asked for: enough to tell things apart, small enough to learn."""
SMALLEST_SIDE, LARGEST_SIDE = 8, 1024
"""What may be asked for. Each view has half of the pixels: with fewer than 8 a side there is nothing left to see."""
PROBED = 500
COLORED_SHARE = 0.01


class SkippedFile(NamedTuple):
    """A file that was skipped, and why."""

    name: str
    reason: str
    kind: str = "damaged"
    """Files of one kind are counted together."""


@dataclass(frozen=True)
class ImageOptions:
    """How to read a user's own images. All but ``image_size`` is for pictures: arrays are gray or in color already."""

    image_size: int | None = None
    """Longer side in pixels; by default 48, or less if the images are smaller."""
    color: Color = "auto"
    """auto: in color if more than one picture of a hundred has any."""
    labels: LabelSource = "none"
    """from-folders: the folders directly below are the classes, for evaluation only."""
    threads: int = 0
    """Pictures decoded at the same time; 0: as many as the machine offers."""

    def __post_init__(self) -> None:
        check_image_size(self.image_size, "image_size")
        if self.color not in get_args(Color):
            raise ValueError(f"color is {self.color!r}; it must be one of {', '.join(get_args(Color))}")
        if self.labels not in get_args(LabelSource):
            raise ValueError(f"labels is {self.labels!r}; it must be one of {', '.join(get_args(LabelSource))}")
        if self.threads < 0:
            raise ValueError(f"threads is {self.threads}; it must be 0 (as many as there are) or more")


def check_image_size(value: object, name: str) -> None:
    """Refuse what is neither None nor a side in pixels. ``name`` is what the user calls it."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if value is not None and not (whole and int(value) in range(SMALLEST_SIDE, LARGEST_SIDE + 1)):  # type: ignore[call-overload]
        raise ValueError(f"{name} is {value!r}; it must be a whole number from {SMALLEST_SIDE} to {LARGEST_SIDE}")


def working_shape(listing: Listing, reading: ImageOptions) -> Shape:
    """(C, H, W) for all pictures of a listing, from up to 500 of them spread evenly."""
    spread = range(0, len(listing), max(1, math.ceil(len(listing) / PROBED)))
    probes, reasons = _probe(listing, spread, reading.threads)
    if not probes:  # as good as never: look at the others, a handful at a time
        rest = [position for position in range(len(listing)) if position not in spread]
        for start in range(0, len(rest), PROBED):
            probes, more = _probe(listing, rest[start : start + PROBED], reading.threads)
            reasons += more
            if probes:
                break
    if not probes:
        raise ValueError(nothing_readable(listing, reasons))
    colored = sum(found.colored for found in probes) > COLORED_SHARE * len(probes)
    in_color = colored if reading.color == "auto" else reading.color == "rgb"
    return (3 if in_color else 1, *working_size([(found.width, found.height) for found in probes], reading.image_size))


def working_size(sizes: Sequence[tuple[int, int]], image_size: int | None) -> tuple[int, int]:
    """(H, W) for pictures of these (width, height): their own if it is one and small, otherwise their median aspect."""
    longer = median(max(size) for size in sizes)
    side = image_size or max(2, min(SIDE, round(longer)))
    if len(set(sizes)) == 1 and longer == side:
        width, height = sizes[0]
        return max(2, height), max(2, width)
    # The logarithm makes upright and lying pictures equal partners.
    lying = median(math.log(width) - math.log(height) for width, height in sizes)
    shorter = max(2, round(side * max(0.5, math.exp(-abs(lying)))))
    return (shorter, side) if lying > 0 else (side, shorter)


def array_size(shape: Shape, image_size: int | None) -> tuple[int, int]:
    """(H, W) for an array of images (C, H, W): as for pictures of this size, but small ones stay exactly as they are.

    So do single rows, which are no pictures: their values have no height that could shrink with the width.
    """
    _, height, width = shape
    if image_size is None and (max(height, width) <= SIDE or min(height, width) == 1):
        return height, width
    return working_size([(width, height)], image_size)


def size_like(shape: Shape, wanted: Shape, name: str) -> tuple[int, int]:
    """(H, W) of ``wanted`` (C, H, W), if images of ``shape`` have its channels and aspect. ``name``: their source."""
    channels, height, width = shape
    same_aspect = working_size([(width, height)], max(wanted[1:])) == wanted[1:]
    if shape == wanted or (channels == wanted[0] and same_aspect):
        return wanted[1:]
    found, made_with = ("x".join(map(str, sides)) for sides in (shape, wanted))
    differ, remedy = ("aspect", "crop or pad") if channels == wanted[0] else ("number of channels", "convert")
    raise ValueError(
        f"the images of {name} are {found} (channels, height, width) and the model was made with {made_with}, "
        f"another {differ}: {remedy} them, or give them as picture files"
    )


def nothing_readable(listing: Listing, quarantine: Sequence[SkippedFile]) -> str:
    return f"none of the {len(listing):,} files of {listing.source} can be read: {first_reasons(quarantine)}"


def first_reasons(quarantine: Sequence[SkippedFile]) -> str:
    """The three most common reasons, each with a file that it holds for, in one line."""
    counts = Counter(skipped.reason for skipped in quarantine)
    example = {skipped.reason: skipped.name for skipped in reversed(quarantine)}
    shown = []
    for reason, count in counts.most_common(3):
        others = f" and {count - 1:,} more" if count > 1 else ""
        shown.append(f"{example[reason]!r}{others}: {reason}")
    rest = len(quarantine) - sum(count for _, count in counts.most_common(3))
    return "; ".join(shown) + (f"; and {rest:,} more files" if rest else "")


def files_line(read: int, skipped: Mapping[str, int], quarantine: Path | None = None) -> str:
    """How many files were read and how many of each kind were skipped; ``quarantine`` is the list of those."""
    total = read + sum(skipped.values())
    if total == read:
        return f"read {read:,} {'file' if read == 1 else 'files'}"
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(skipped.items(), key=lambda item: -item[1]))
    see = "" if quarantine is None else f"; see {quarantine}"
    return f"read {read:,} of {total:,} files; skipped {total - read:,}: {kinds}{see}"


def count_kinds(quarantine: Iterable[SkippedFile]) -> Counter[str]:
    """How many files of each kind were skipped."""
    return Counter(skipped.kind for skipped in quarantine)


def _probe(listing: Listing, positions: Iterable[int], threads: int) -> tuple[list[Probe], list[SkippedFile]]:
    def one(position: int) -> Probe | SkippedFile:
        try:
            return probe(listing.paths[position])
        except BadPicture as bad:
            return SkippedFile(listing.names[position], str(bad), bad.kind)

    with ThreadPoolExecutor(threads or None) as pool:
        found = list(pool.map(one, positions))
    return (
        [answer for answer in found if isinstance(answer, Probe)],
        [answer for answer in found if isinstance(answer, SkippedFile)],
    )
