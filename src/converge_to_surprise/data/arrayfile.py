"""Array files that anyone may have written: nothing in them is run, and they get no more memory than there is."""

from __future__ import annotations

import zipfile
from collections.abc import Collection
from pathlib import Path

import numpy as np

from .room import check_room
from .store import Array, map_array


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
            check_room(sum(_size(content.zip, name) for name in names), path)
            return {name: _array(content[name], name) for name in names}, list(content.files)
    except Exception as error:  # the parsers raise whatever they stumble over
        raise ValueError(f"cannot read {path} as an array file: {str(error) or type(error).__name__}") from None


def _array(value: object, name: str) -> Array:
    if not isinstance(value, np.ndarray):  # any file may lie in an archive
        raise ValueError(f"{name} is not an array")
    return value


def _size(archive: zipfile.ZipFile, name: str) -> int:
    """Bytes of a member once unpacked; no more than these are ever read from it."""
    return sum(info.file_size for info in archive.infolist() if info.filename in (name, f"{name}.npy"))
