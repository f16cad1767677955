"""Picture files for tests: valid ones of every format, and ones that are damaged in a known way."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from converge_to_surprise.data.formats import avif_version, heif_version

Pixels = npt.NDArray[np.uint8]

SAVING: dict[str, dict[str, Any]] = {
    "bmp": {"format": "BMP"},
    "gif": {"format": "GIF"},
    "jpg": {"format": "JPEG", "quality": 95, "subsampling": 0},
    "png": {"format": "PNG"},
    "tiff": {"format": "TIFF"},
    "webp": {"format": "WEBP", "lossless": True},
}
if avif_version() is not None:
    SAVING["avif"] = {"format": "AVIF", "quality": 100, "subsampling": "4:4:4"}
if heif_version() is not None:
    SAVING["heic"] = {"format": "HEIF", "quality": -1, "chroma": 444}

NEEDS_AVIF = pytest.mark.skipif("avif" not in SAVING, reason="this Pillow cannot read AVIF")
NEEDS_HEIC = pytest.mark.skipif("heic" not in SAVING, reason="pillow-heif is not installed")

HEIC_HEAD = b"\0\0\0\x1cftypheic\0\0\0\0mif1heicmiaf"
"""How a picture of a phone begins; nothing follows."""


def photo(height: int, width: int, seed: int = 0, channels: int = 3) -> Pixels:
    """A smooth picture with structure, which survives lossy compression: (H, W, C) or (H, W)."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (4, 4, channels), dtype=np.uint8)
    image = Image.fromarray(coarse if channels == 3 else coarse[..., 0])
    return np.asarray(image.resize((width, height), Image.Resampling.BICUBIC))


def encoded(pixels: Pixels, kind: str, **options: Any) -> bytes:
    """The bytes of a picture file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, **SAVING[kind], **options)
    return buffer.getvalue()


def write(path: Path, pixels: Pixels, **options: Any) -> Path:
    """Write a picture file in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(pixels, path.suffix[1:], **options))
    return path


def bomb(width: int, height: int) -> bytes:
    """A PNG file of a few bytes whose header claims this many gray pixels."""

    def part(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = part(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + data + part(b"IEND", b"")
