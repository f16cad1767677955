"""Decode one picture file to a uint8 array, or give a short reason why not.

Files are untrusted: the kind of file, its length and its number of pixels are checked before anything is decoded, only
a few formats are tried (:mod:`.formats`), and every error of a decoder becomes a :class:`BadPicture`. Lack of memory is
a MemoryError instead: a good picture must not be skipped because of it.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import stat
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, UnidentifiedImageError

from ..config.memory import memory_ran_out
from .formats import AVIF, HEAD, HEIC, STANDARD, decodable, readable, recognize
from .resize import Shape, fit

DECODER = 2
"""Version of the decoder: increased when the same file would decode to other pixels; old caches are then not used."""
PIXEL_BUDGET = 89_478_485
"""Pillow's own limit: what it would only warn about is refused here."""
FILE_BUDGET = 2**30
"""Bytes. Some decoders read the whole file first."""
LARGE = 2**24
"""Pictures of more pixels than this are decoded one at a time: many at once could exhaust the memory.

So are AVIF files: they may decode to more pixels than they claim, and each is decoded by several threads anyway.
"""
PROBE_SIDE = 48
SPARE = 2**24
BYTES_PER_PIXEL = 12
"""Free bytes per pixel, besides SPARE, below which an error means lack of memory: a picture has up to three copies."""
DEEP = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
"""Modes with more than eight bits a pixel, all of them gray."""
PRINTED = ("CMYK", "YCbCr", "HSV")
UNSUPPORTED = "unsupported pixels"

_large = threading.Lock()
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class BadPicture(Exception):  # noqa: N818 - a verdict on a file, not a fault of the program
    """A file that is skipped; the text is the reason, short and for the user.

    Files with the same ``kind`` are counted together.
    """

    def __init__(self, reason: str, kind: str = "damaged") -> None:
        super().__init__(reason)
        self.kind = kind


class Probe(NamedTuple):
    """What determines the working size and color: the upright size in pixels, and whether there is color."""

    width: int
    height: int
    colored: bool


def decode(path: str | Path, shape: Shape) -> npt.NDArray[np.uint8]:
    """The picture as uint8 (C, H, W): upright, its aspect kept, over white where it is transparent.

    It is fitted into H×W and centered; what it does not cover has the mean color of its own border. A picture of
    exactly H×W keeps its pixels. Raises BadPicture, or MemoryError.
    """
    channels, height, width = shape
    with _plain_picture(path, max(height, width)) as (picture, _):
        plain = picture.convert("L" if channels == 1 else "RGB")
        return np.ascontiguousarray(fit(plain, height, width).transpose(2, 0, 1))


def probe(path: str | Path) -> Probe:
    """Size and color of a picture. Raises BadPicture, or MemoryError."""
    with _plain_picture(path, PROBE_SIDE) as (picture, (width, height)):
        picture.thumbnail((PROBE_SIDE, PROBE_SIDE), Image.Resampling.BOX)
        return Probe(width, height, picture.mode == "RGB" and _is_colored(np.asarray(picture)))


def hide_pillow_warnings() -> None:
    """Hide Pillow's warnings about odd files in this process. For the command line, not for libraries.

    The results do not depend on it. Warning filters apply to the whole process, so a library must not set them.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    warnings.filterwarnings("error", category=Image.DecompressionBombWarning)


@contextlib.contextmanager
def _plain_picture(path: str | Path, side: int) -> Iterator[tuple[Image.Image, tuple[int, int]]]:
    """The first frame, upright, as L or RGB, at least twice ``side`` long or in full, and its full upright size."""
    held = 0
    try:
        _check_kind(path)
        with open(path, "rb") as file, _identify(path, file) as image:
            _check_size(image)
            full = image.size
            if image.format != "HEIF":  # it would decode a thumbnail, which may show something else
                image.draft(None, (2 * side, 2 * side))  # JPEG only: decoded at 1/2, 1/4 or 1/8 of its size
            # A progressive JPEG is held in full size while it is decoded.
            held = math.prod(full if image.info.get("progressive") else image.size)
            with _large if held > LARGE or image.format == "AVIF" else contextlib.nullcontext():
                image.load()
                plain, turn = to_plain(image), _orientation(image)
                upright = plain.transpose(_UPRIGHT[turn]) if turn in _UPRIGHT else plain
                yield upright, full[::-1] if turn >= 5 else full
    except (BadPicture, MemoryError):
        raise
    except PermissionError:
        raise BadPicture("may not be read (permission denied)", "no permission") from None
    except FileNotFoundError:
        raise BadPicture("it vanished while it was read", "missing") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise BadPicture(f"too many pixels; the limit is {PIXEL_BUDGET // 10**6} million", "too large") from None
    except Exception as error:  # the decoders raise many kinds of errors
        _check_memory(path, held, error)
        raise BadPicture(f"truncated or damaged ({_in_one_line(error)})") from None


def _check_memory(path: str | Path, pixels: int, error: Exception) -> None:
    """Raise MemoryError if a lack of memory may be the cause of an error: few decoders report it."""
    try:
        if memory_ran_out(error):
            raise MemoryError
        mmap.mmap(-1, SPARE + BYTES_PER_PIXEL * pixels).close()  # reserved, but not written to
    except (MemoryError, OSError):
        raise MemoryError(f"the picture {os.fspath(path)!r} cannot be decoded") from None


def _check_kind(path: str | Path) -> None:
    """Refuse all but regular files before they are opened: opening a pipe would wait for its writer."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise BadPicture("a broken link" if os.path.islink(path) else "there is no such file", "missing") from None
    except PermissionError:
        raise
    except (OSError, ValueError) as error:  # links in a circle, a name too long, a zero byte in a name
        reason = "a link in a circle" if os.path.islink(path) else f"cannot be opened ({_in_one_line(error)})"
        raise BadPicture(reason, "missing") from None
    if stat.S_ISDIR(status.st_mode):
        open_to_us = os.access(path, os.R_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)
        if open_to_us:
            raise BadPicture("a folder, not a picture", "not a file")
        raise BadPicture("a folder that may not be read (permission denied)", "no permission")
    if not stat.S_ISREG(status.st_mode):
        raise BadPicture("not a regular file (a pipe, a socket or a device)", "not a file")
    if status.st_size == 0:
        raise BadPicture("the file is empty", "empty")
    if status.st_size > FILE_BUDGET:
        raise BadPicture(f"the file has {status.st_size:,} bytes; the limit is {FILE_BUDGET:,}", "too large")


def _identify(path: str | Path, file: IO[bytes]) -> Image.Image:
    """By content. The name only tells camera raws from TIFF files, and what to do with a file that is not read."""
    found = recognize(file.read(HEAD), os.path.splitext(os.fspath(path))[1])
    file.seek(0)
    if found is not None and not decodable(found):
        raise BadPicture(found.remedy, found.label)
    try:
        return Image.open(file, formats=(found or STANDARD).openers)
    except UnidentifiedImageError:
        if found in (AVIF, HEIC):
            raise BadPicture(f"truncated or damaged (no {found.openers[0]} picture in it)") from None
        what = f"not a picture, or a damaged one (none of {', '.join(readable())})"
        raise BadPicture(what, "damaged" if found else "not a picture") from None


def _check_size(image: Image.Image) -> None:
    """Before decoding. A TIFF is also as large as its tiles, which may be larger than the picture."""
    for width, height in (image.size, getattr(image, "_tile_size", image.size)):
        if width < 1 or height < 1:
            raise BadPicture(f"the picture has {width}x{height} pixels")
        if width * height > PIXEL_BUDGET:
            raise BadPicture(f"{width}x{height} pixels; the limit is {PIXEL_BUDGET // 10**6} million", "too large")


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1..8. Damaged EXIF data are ignored. TIFF and HEIC files are decoded
    upright already.
    """
    with contextlib.suppress(Exception):
        turn = image.getexif().get(ExifTags.Base.Orientation, 1)
        return turn if isinstance(turn, int) and 1 <= turn <= 8 else 1
    return 1


def _is_colored(pixels: npt.NDArray[np.uint8]) -> bool:
    """(H, W, 3): do the channels differ visibly in one pixel of fifty? The noise of a gray JPEG or scan does not."""
    spread = pixels.max(2).astype(int) - pixels.min(2)
    return bool((spread > 24).mean() >= 0.02)


def _in_one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text[:120] if text else type(error).__name__


def to_plain(image: Image.Image) -> Image.Image:
    """A loaded picture of any mode as L (gray) or RGB. Transparent pixels become white."""
    if image.mode in DEEP:
        return Image.fromarray(_deep_to_bytes(np.asarray(image), image.format == "PNG"))
    if image.has_transparency_data:
        colored = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, colored).convert("L" if image.mode in ("L", "LA", "La", "1") else "RGB")
    if image.mode in ("L", "RGB"):
        return image
    if image.mode == "1":
        return image.convert("L")
    if image.mode in ("P", "RGBX", *PRINTED):
        return image.convert("RGB")
    raise BadPicture(f"its pixels are of the kind {image.mode}, which is not supported", UNSUPPORTED)


def _deep_to_bytes(pixels: npt.NDArray[Any], png: bool) -> npt.NDArray[np.uint8]:
    """Gray levels 0..65535 as 0..255. The scale of 32-bit integers and floats follows from their range.

    The scale is never fitted to the single picture: two pictures of one light stay equally bright.
    """
    if not np.isfinite(pixels).all():
        raise BadPicture("it has a pixel that is not finite", UNSUPPORTED)
    low, high = float(pixels.min()), float(pixels.max())
    if low < 0 or high > 65535:
        what = f"its pixels lie in {low:g}..{high:g}; supported are 0..1 (fractions), 0..255 and 0..65535"
        raise BadPicture(what, UNSUPPORTED)
    # A PNG file has 16 bits, whichever mode Pillow opens it in.
    if pixels.dtype == np.uint16 or png or high > 255:
        scale = 1 / 257
    else:
        scale = 255.0 if np.issubdtype(pixels.dtype, np.floating) and high <= 1 else 1.0
    return np.round(pixels * scale).astype(np.uint8)
