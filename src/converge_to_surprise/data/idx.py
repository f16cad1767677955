"""IDX files, the format in which MNIST and its relatives are handed around (optionally gzip-compressed)."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path) -> npt.NDArray[Any]:
    """The array in an IDX file."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in TYPES:
        raise ValueError(f"{path} is not an IDX file")
    dtype, dimensions = np.dtype(TYPES[content[2]]), content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise ValueError(f"{path} is truncated: its header is incomplete")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        raise ValueError(f"{path} is truncated or damaged: {len(content)} bytes, but its header says {expected}")
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def find_idx(folder: Path, split: str, content: str) -> Path | None:
    """The usual names of the files: train-images-idx3-ubyte, t10k-labels.idx1-ubyte and so on, perhaps with .gz."""
    start = "train" if split == "train" else "t10k"
    dimensions = 3 if content == "images" else 1
    for dot in "-.":
        for ending in ("", ".gz"):
            path = folder / f"{start}-{content}{dot}idx{dimensions}-ubyte{ending}"
            if path.is_file():
                return path
    return None
