"""Copy, link, move or put back one file. Nothing is overwritten, and the file is in at least one place at any time."""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
import stat
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image

from ..config.storage import flush_folder

How = Literal["copy", "link", "hardlink", "move"]
PART = ".cts-sort.part"
"""A copy that is being written."""
CHANGED = "it was changed while pictures were sorted"
GONE = "it vanished while pictures were sorted"
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Errors that would occur for every other file too."""


class Skip(Exception):  # noqa: N818 - not an error: the next file follows
    """A file stays where it is; the text is the reason."""


class State(NamedTuple):
    """Differs for another file and for the same file after a change."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: str | Path, follow: bool) -> State:
        status = os.stat(path, follow_symlinks=follow)
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


def place(origin: str, target: Path, how: How, planned: State, part: Path) -> None:
    """Copy, link or move a file that is still as it was planned; raises Skip if it cannot be."""
    try:
        if State.of(origin, follow=how != "move") != planned:
            raise Skip(CHANGED)
        if os.path.lexists(target):
            raise Skip(f"{target} exists")
        if how == "copy":
            _copy(origin, part, planned)
            os.rename(part, target)
        elif how == "link":
            os.symlink(origin, target)
        elif how == "hardlink":
            os.link(os.path.realpath(origin), target)
        else:
            _move(origin, target, planned, part)
    except FileNotFoundError:
        raise Skip(GONE) from None
    except OSError as error:
        if error.errno in FULL:
            raise
        other = " (use --how copy or link)" if error.errno == errno.EXDEV else ""
        raise Skip(f"cannot {how} it: {error.strerror or error}{other}") from None


def write_png(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], target: Path, part: Path, mtime_ns: int) -> int:
    """uint8 (C, H, W) as a PNG file with a given time; returns its size in bytes."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    image.save(part, format="PNG")
    os.utime(part, ns=(mtime_ns, mtime_ns))
    size = part.stat().st_size
    os.rename(part, target)
    return size


def put_back(target: Path, origin: str, part: Path) -> None:
    """Move a file to a place that must be free; raises Skip if it is not."""
    os.makedirs(os.path.dirname(origin), exist_ok=True)
    try:
        _rename_new(target, origin)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(str(target), part, State.of(target, follow=False))
        _flush(part)
        _rename_new(part, origin)
        flush_folder(part.parent)
        target.unlink()


def same_file(first: str | Path, second: str | Path) -> bool:
    """Two names of one file, or a file and a copy of it with its time."""
    one, other = os.lstat(first), os.lstat(second)
    if os.path.samestat(one, other):
        return True
    alike = stat.S_ISREG(one.st_mode) and stat.S_ISREG(other.st_mode) and one.st_size == other.st_size
    return alike and same_time(one.st_mtime_ns, other.st_mtime_ns) and filecmp.cmp(first, second, shallow=False)


def same_time(first: int, second: int) -> bool:
    """Equal times in nanoseconds, or times of which a file system keeps only 100 ns, seconds or every other second."""
    coarse = first % 10**9 == 0 or second % 10**9 == 0
    return abs(first - second) < (2 * 10**9 if coarse else 1000)


def _move(origin: str, target: Path, planned: State, part: Path) -> None:
    try:
        # Moves the file that has the name at this moment, so that a file that replaced it is not deleted.
        os.rename(origin, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(origin, part, planned)
        _flush(part)
        os.rename(part, target)
        flush_folder(target.parent)
        _remove_copied(origin, target, planned)


def _remove_copied(origin: str, target: Path, planned: State) -> None:
    """Remove a file whose copy is complete and flushed.

    If it is missing, another process removed it; the copy stays, because it may be the only one left. A kill between
    the statements leaves both files, never none.
    """
    try:
        if State.of(origin, follow=False) != planned:
            target.unlink()
            raise Skip(CHANGED)
        os.unlink(origin)
    except FileNotFoundError:
        return
    except OSError:
        if State.of(origin, follow=False) == planned:
            target.unlink()
        raise


def _copy(origin: str, part: Path, planned: State) -> None:
    """A copy of a file with its time; raises Skip if the file changed while it was read."""
    part.unlink(missing_ok=True)
    try:
        shutil.copy2(origin, part)
        if part.stat().st_size != planned.size or State.of(origin, follow=True) != planned:
            raise Skip(CHANGED)
    except (OSError, Skip):
        part.unlink(missing_ok=True)
        raise


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename_new(old: Path, new: str) -> None:
    """Rename a file; raises Skip if the new name is taken. A kill in between leaves both names."""
    try:
        os.link(old, new, follow_symlinks=False)
    except FileExistsError:
        raise Skip(f"{new} exists") from None
    except (OSError, NotImplementedError):  # another file system, or one without hard links
        if os.path.lexists(new):
            raise Skip(f"{new} exists") from None
        os.rename(old, new)
        return
    old.unlink()
