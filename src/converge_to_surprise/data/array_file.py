"""Read untrusted array files: .npy, .npz, and IDX, the format of MNIST and its relatives (perhaps with .gz).

No code in them is executed, and a file that needs more memory than is free is refused.
"""

from __future__ import annotations

import gzip
import io
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..config.memory import check_memory
from .arrays import Array
from .store import map_array

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
SPLIT_KEYS = ("x_train", "y_train", "x_test", "y_test")
LABEL_KEYS = ("labels", "y", "target")
"""Names of arrays in an .npz file."""
DEFLATE_RATIO = 1100
"""No gzip file unpacks to more than some 1032 times its size."""


def read_arrays(path: Path, wanted: Collection[str]) -> tuple[dict[str, Array], list[str]]:
    """The wanted arrays of an .npz file, and the names of all its arrays; an .npy file holds one, called "images".

    Raises ValueError, and nothing else.
    """
    try:
        content = map_array(path)
        if isinstance(content, np.ndarray):
            return {"images": content}, ["images"]
        with content:
            names = [name for name in content.files if name in wanted]
            check_memory(sum(_size(content.zip, name) for name in names), path)
            for name in names:
                _check_claim(content.zip, name)
            return {name: _array(content[name], name) for name in names}, list(content.files)
    except MemoryError as error:
        raise ValueError(f"there is not enough memory to read {path}: {error}") from None
    except Exception as error:  # the parsers raise many kinds of errors
        raise ValueError(f"cannot read {path} as an array file: {str(error) or type(error).__name__}") from None


class Part(NamedTuple):
    """A split of a file, or all of it."""

    values: Array
    """Images, or embeddings (N, D) or (N, V, D)."""
    labels: Array | None
    """(N,)"""
    name: str
    """What messages call it."""
    paths: list[str] | None = None
    """(N,) Pictures of embeddings, if a column of a table was asked for; relative paths start at its folder."""


def read_parts(path: Path, keys: Sequence[str], name: object) -> tuple[list[Part], list[str]]:
    """``x_train``/``y_train`` and ``x_test``/``y_test``, or the first of the arrays ``keys`` with its labels.

    And the names of all arrays of the file, none of which may be one of these. ``name``: the file in messages.
    """
    arrays, names = read_arrays(path, (*SPLIT_KEYS, *keys, *LABEL_KEYS))
    if "x_train" in arrays:
        splits = [split for split in ("train", "test") if f"x_{split}" in arrays]
        return [Part(arrays[f"x_{s}"], arrays.get(f"y_{s}"), f"x_{s} of {name}") for s in splits], names
    labels = next((arrays[key] for key in LABEL_KEYS if key in arrays), None)
    return [Part(arrays[key], labels, str(name)) for key in keys if key in arrays][:1], names


def _check_claim(archive: zipfile.ZipFile, name: str) -> None:
    """Refuse an array whose header claims more than the member holds: numpy would allocate it first."""
    with archive.open(name if name in archive.namelist() else f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(file)
    claimed, held = math.prod(shape) * dtype.itemsize, _size(archive, name)
    if claimed > held:
        raise ValueError(f"{name} claims {claimed:,} bytes but has {held:,}")


def _array(value: object, name: str) -> Array:
    if not isinstance(value, np.ndarray):  # an archive can hold any file
        raise ValueError(f"{name} is not an array")
    return value


def _size(archive: zipfile.ZipFile, name: str) -> int:
    """Bytes of a member once unpacked; no more than these are ever read from it."""
    return sum(info.file_size for info in archive.infolist() if info.filename in (name, f"{name}.npy"))


def read_idx(path: Path) -> npt.NDArray[Any]:
    """The array in an IDX file."""
    try:
        packed = path.stat().st_size
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            dtype, shape = _read_header(file, path)
            size = math.prod(shape) * dtype.itemsize
            # A wrong size is detected before memory is allocated.
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
