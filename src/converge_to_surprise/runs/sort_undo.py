"""``cts sort --undo``: put back what a sort moved and remove what it made, nothing else."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ..config.storage import flush_folder
from ..data.cache import Progress
from ..data.skipped import SkippedFile
from . import sort_journal as journal
from .labels import write_quarantine
from .place_file import PART, How, Skip, put_back, same_file, same_time
from .sort import KEPT, SKIPPED, TABLE
from .sort_journal import Entry, Journal


class Undone(NamedTuple):
    """The result of an undo."""

    files: int
    """Files that are back where they were, or copies and links that are gone."""
    how: How
    kept: list[SkippedFile]
    """Files that were left in the folder, and why. As long as there are any the journal stays."""


def undo(into: Path, progress: Progress) -> Undone:
    """Undo a sort, finished or interrupted, or continue an interrupted undo. May be repeated at any time."""
    if not into.is_dir():
        raise ValueError(f"--undo is {into}, but there is no such folder")
    if not (into / journal.JOURNAL).exists() and any(path.name != journal.LOCK for path in into.iterdir()):
        raise ValueError(f"--undo is {into}, which holds no {journal.JOURNAL}: no sort was made there")
    with journal.lock(into):
        found = journal.read(into) if (into / journal.JOURNAL).exists() else None
        if found is None or not found.begun:  # stopped before it touched a file
            _remove_rest(into, [])
            return Undone(0, "copy", [])
        kept = _take_back_all(found, into, progress)
        if kept:
            write_quarantine(into / KEPT, kept)
        else:
            _clean_origins(found.entries, into)
            _remove_rest(into, _folders(found.entries))
        return Undone(len(found.entries) - len(found.skipped) - len(kept), found.how, kept)


def _take_back_all(found: Journal, into: Path, progress: Progress) -> list[SkippedFile]:
    kept: list[SkippedFile] = []
    part = _part_name(into)
    for number, entry in enumerate(found.entries):
        if number not in found.skipped:
            size = found.sizes.get(number, entry.state.size)
            expected = entry._replace(state=entry.state._replace(size=size))
            try:
                _take_back(expected, into, found.how, part)
            except Skip as reason:
                kept.append(SkippedFile(entry.to, str(reason), "kept"))
            except OSError as error:
                kept.append(SkippedFile(entry.to, f"cannot take it back: {error.strerror or error}", "kept"))
        progress(number + 1, len(found.entries))
    return kept


def _take_back(entry: Entry, into: Path, how: How, part: str) -> None:
    """Bring one file to where it was, or remove what was made; raises Skip if that could lose anything."""
    target = into / entry.to
    for folder in target.relative_to(into).parents:
        if folder.name and (into / folder).is_symlink():
            raise Skip(f"{into / folder} has become a link")
    if not os.path.lexists(target):
        if how == "move" and entry.origin is not None and not os.path.lexists(entry.origin):
            raise Skip(f"it is no longer here, and not at {entry.origin} either")
        return
    if how == "move" and entry.origin is not None:
        _move_back(target, entry.origin, part)
        return
    if how == "link":
        if not target.is_symlink() or os.readlink(target) != entry.origin:
            raise Skip("it is no longer the link that was made")
    elif how == "hardlink":
        _check_hardlink(entry, target)
    else:
        _check_copy(entry, target)
    target.unlink()


def _move_back(target: Path, origin: str, part: str) -> None:
    if not stat.S_ISREG(os.lstat(target).st_mode):
        raise Skip("it is no longer a file")
    if not os.path.lexists(origin):
        put_back(target, origin, Path(origin).with_name(part))
    elif same_file(target, origin):  # a kill came between the copy and the removal
        target.unlink()
    else:
        raise Skip(f"{origin} exists; both files stay")


def _check_hardlink(entry: Entry, target: Path) -> None:
    status = os.lstat(target)
    if status.st_ino != entry.state.inode:
        raise Skip("it is no longer the file that was linked")
    if entry.origin is None or not os.path.exists(entry.origin) or not os.path.samefile(entry.origin, target):
        raise Skip(f"{entry.origin} is gone or another file; this one may be the last")


def _check_copy(entry: Entry, target: Path) -> None:
    status = os.lstat(target)
    changed = not stat.S_ISREG(status.st_mode) or entry.state.size not in (-1, status.st_size)
    if changed or not same_time(status.st_mtime_ns, entry.state.mtime_ns):
        raise Skip("it was changed after it was sorted")
    if entry.origin is not None and not os.path.exists(entry.origin):
        raise Skip(f"{entry.origin} is gone; this copy may be the last")


def _part_name(into: Path) -> str:
    """Name of a copy on its way back: no other sort uses it."""
    return f"{PART}-{hashlib.sha256(os.fsencode(os.path.realpath(into))).hexdigest()[:12]}"


def _clean_origins(entries: Iterable[Entry], into: Path) -> None:
    """Remove incomplete copies of a killed undo, and flush the folders to which files were moved back."""
    for folder in {os.path.dirname(entry.origin) for entry in entries if entry.origin is not None}:
        (Path(folder) / _part_name(into)).unlink(missing_ok=True)
        flush_folder(Path(folder))


def _folders(entries: Iterable[Entry]) -> list[str]:
    """The folders that a sort made, inner ones first."""
    found = {parent.as_posix() for entry in entries for parent in PurePosixPath(entry.to).parents if parent.name}
    return sorted(found, key=lambda folder: -folder.count("/"))


def _remove_rest(into: Path, folders: Iterable[str]) -> None:
    """Remove what a sort made besides files: empty folders and tables, and the journal when they are gone."""
    (into / PART).unlink(missing_ok=True)
    for folder in folders:
        with contextlib.suppress(OSError):  # it holds files of the user
            (into / folder).rmdir()
    for name in (TABLE, SKIPPED, KEPT):
        for unfinished in into.glob(f".{name}.*"):
            unfinished.unlink()
        (into / name).unlink(missing_ok=True)
    (into / journal.JOURNAL).unlink(missing_ok=True)
    (into / journal.LOCK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        into.rmdir()
