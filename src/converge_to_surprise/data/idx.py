"""IDX files, the format in which MNIST and its relatives are handed around (optionally gzip-compressed)."""

from __future__ import annotations

import gzip
import math
import re
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


def looks_like_idx(path: Path) -> bool:
    """By its name: train-images-idx3-ubyte, pictures.idx, perhaps with .gz."""
    name = path.name.lower().removesuffix(".gz")
    return name.endswith(("-ubyte", ".idx")) or re.search(r"[-.]idx[0-9]", name) is not None


def labels_beside(images: Path) -> Path | None:
    """The file of labels that belongs to a file of images: train-labels-idx1-ubyte to train-images-idx3-ubyte."""
    name = images.name.replace("images", "labels").replace("idx3", "idx1")
    plain = name.removesuffix(".gz")
    there = [images.with_name(each) for each in (name, plain, f"{plain}.gz") if images.with_name(each).is_file()]
    return there[0] if there and there[0].name != images.name else None
