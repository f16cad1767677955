"""Array files that anyone may have written: nothing in them is run, and they get no more memory than there is."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection
from pathlib import Path

import numpy as np

from ..config.memory import check_memory
from .arrays import Array
from .store import map_array


def read_arrays(path: Path, wanted: Collection[str]) -> tuple[dict[str, Array], list[str]]:
    """Those of the wanted arrays that an .npz file holds, and the names of all; of an .npy file the one, as "images".

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
    except Exception as error:  # the parsers raise whatever they stumble over
        raise ValueError(f"cannot read {path} as an array file: {str(error) or type(error).__name__}") from None


def _check_claim(archive: zipfile.ZipFile, name: str) -> None:
    """Refuse an array whose header claims more than the member holds: numpy would take the memory first."""
    with archive.open(name if name in archive.namelist() else f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(file)
    claimed, held = math.prod(shape) * dtype.itemsize, _size(archive, name)
    if claimed > held:
        raise ValueError(f"{name} claims {claimed:,} bytes but has {held:,}")


def _array(value: object, name: str) -> Array:
    if not isinstance(value, np.ndarray):  # any file may lie in an archive
        raise ValueError(f"{name} is not an array")
    return value


def _size(archive: zipfile.ZipFile, name: str) -> int:
    """Bytes of a member once unpacked; no more than these are ever read from it."""
    return sum(info.file_size for info in archive.infolist() if info.filename in (name, f"{name}.npy"))
