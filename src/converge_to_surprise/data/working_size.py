"""The working size and color of a collection, from a sample of its pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from ..config.images import ImageOptions
from .decode import BadPicture, Probe, probe
from .listing import Listing
from .resize import Shape
from .skipped import SkippedFile, nothing_readable

SIDE = 48
"""Default of the longer side: enough to tell things apart, small enough to train on."""
PROBED = 500
"""Pictures that are probed."""
COLORED_FRACTION = 0.01


def working_shape(listing: Listing, options: ImageOptions) -> Shape:
    """(C, H, W) for all pictures of a listing, from up to 500 of them, evenly spaced."""
    spread = range(0, len(listing), max(1, math.ceil(len(listing) / PROBED)))
    probes, reasons = _probe(listing, spread, options.threads)
    if not probes:  # rare: try the others
        rest = [position for position in range(len(listing)) if position not in spread]
        for start in range(0, len(rest), PROBED):
            probes, more = _probe(listing, rest[start : start + PROBED], options.threads)
            reasons += more
            if probes:
                break
    if not probes:
        raise ValueError(nothing_readable(listing, reasons))
    colored = sum(found.colored for found in probes) > COLORED_FRACTION * len(probes)
    in_color = colored if options.color == "auto" else options.color == "rgb"
    return (3 if in_color else 1, *working_size([(found.width, found.height) for found in probes], options.image_size))


def working_size(sizes: Sequence[tuple[int, int]], image_size: int | None) -> tuple[int, int]:
    """(H, W) for pictures of these (width, height): their own if it is one and small, otherwise their median aspect."""
    longer = median(max(size) for size in sizes)
    side = image_size or max(2, min(SIDE, round(longer)))
    if len(set(sizes)) == 1 and longer == side:
        width, height = sizes[0]
        return max(2, height), max(2, width)
    # The logarithm treats portrait and landscape pictures alike.
    landscape = median(math.log(width) - math.log(height) for width, height in sizes)
    shorter = max(2, round(side * max(0.5, math.exp(-abs(landscape)))))
    return (shorter, side) if landscape > 0 else (side, shorter)


def array_size(shape: Shape, image_size: int | None, largest: int = SIDE) -> tuple[int, int]:
    """(H, W) for an array of images (C, H, W): as for pictures of this size, but without one those of at most
    ``largest`` pixels stay exactly as they are.

    So do single rows, which are not pictures: their height cannot shrink with the width.
    """
    _, height, width = shape
    if image_size is None and (max(height, width) <= largest or min(height, width) == 1):
        return height, width
    return working_size([(width, height)], image_size or largest)


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
