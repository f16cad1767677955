"""IDX files, the format in which MNIST and its relatives are handed around (optionally gzip-compressed)."""

from __future__ import annotations

import gzip
import io
import math
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..config.memory import check_memory

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
DEFLATE_RATIO = 1100
"""No gzip file unpacks to more than some 1032 times its size."""


def read_idx(path: Path) -> npt.NDArray[Any]:
    """The array in an IDX file."""
    try:
        packed = path.stat().st_size
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            dtype, shape = _read_header(file, path)
            size = math.prod(shape) * dtype.itemsize
            # A lie about the size is noticed before the memory is taken.
            if size > packed * (DEFLATE_RATIO if path.suffix == ".gz" else 1):
                raise ValueError(f"{path} is truncated or damaged: {packed} bytes cannot hold the {size} of its header")
            check_memory(size, path)
            content = file.read(size + 1)
    except (OSError, EOFError, MemoryError, zlib.error) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    if len(content) != size:
        held = len(content) if len(content) < size else f"more than {size}"
        raise ValueError(f"{path} is truncated or damaged: {held} bytes of content, but its header says {size}")
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _read_header(file: gzip.GzipFile | io.BufferedReader, path: Path) -> tuple[np.dtype[Any], tuple[int, ...]]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES:
        raise ValueError(f"{path} is not an IDX file")
    sides = file.read(4 * magic[3])
    if len(sides) < 4 * magic[3]:
        raise ValueError(f"{path} is truncated: its header is incomplete")
    if magic[3] > 4:
        raise ValueError(f"{path} has {magic[3]} dimensions; images have 3 or 4, labels 1")
    return np.dtype(TYPES[magic[2]]), struct.unpack(f">{magic[3]}I", sides)


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
