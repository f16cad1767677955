"""The journal of a sort: the whole plan, on disk before the first file is touched.

Lines of JSON: a header, one line per file, a line that marks the list as complete; then a line for every skipped file,
and a last line at the end. How far a move got follows from the two paths in its line, so nothing needs to be written
between two moves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, get_args

from filelock import FileLock

from ..config.storage import flush_folder, locked
from ..config.text import parse_json
from .place_file import How, State

JOURNAL = "sort-journal.jsonl"
LOCK = ".lock"
FORMAT, VERSION = "converge-to-surprise sort journal", 1
BEGUN, DONE = '{"begun": true}\n', '{"done": true}\n'


class Entry(NamedTuple):
    """A file that is sorted."""

    origin: str | None
    """Absolute path, or None for an image of an array."""
    to: str
    """FOLDER/NAME within the folder of the sort."""
    state: State
    """State of the file when it was planned; an image of an array has only a time, its size is -1."""


@dataclass(frozen=True)
class Journal:
    """The content of a journal."""

    how: How
    entries: list[Entry]
    skipped: frozenset[int]
    """Entries that were never carried out."""
    sizes: dict[int, int]
    """Bytes of the images of an array that were written."""
    begun: bool
    done: bool


def lock(into: Path) -> AbstractContextManager[None]:
    """Hold a folder of sorted pictures for this process; the lock ends with the process."""
    return locked(FileLock(into / LOCK), into)


def check_free(into: Path) -> None:
    """Refuse a folder that holds anything but the lock of a sort that was stopped before it began."""
    if not os.path.lexists(into):
        return
    if not into.is_dir():
        raise ValueError(f"--into is {into}, which is not a folder; give a new folder")
    if (into / JOURNAL).exists():
        how = "a sort that is finished" if _ends_with(into / JOURNAL, DONE) else "a sort that was interrupted"
        raise ValueError(f"--into is {into}, which holds {how}: `cts sort --undo {into}` puts everything back")
    if any(path.name != LOCK for path in into.iterdir()):
        raise ValueError(f"--into is {into}, which exists and is not empty; give a new folder")


class Writer:
    """Appends to the journal of a sort that is carried out."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    @classmethod
    @contextmanager
    def begin(cls, into: Path, how: How, entries: Sequence[Entry]) -> Iterator[Writer]:
        """Write the whole plan and flush it to disk; after that the sort may be interrupted at any moment."""
        path = into / JOURNAL
        try:
            with path.open("x", encoding="utf-8") as file:  # closing it can fail too
                head = {"format": FORMAT, "version": VERSION, "into": os.path.realpath(into), "how": how}
                file.write(json.dumps({**head, "files": len(entries)}) + "\n")
                for entry in entries:
                    file.write(json.dumps({"from": entry.origin, "to": entry.to, "state": entry.state}) + "\n")
                file.write(BEGUN)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            path.unlink(missing_ok=True)
            raise ValueError(f"cannot write {path}: {error.strerror}; nothing was sorted") from None
        flush_folder(into)
        flush_folder(into.parent)
        with path.open("a", encoding="utf-8") as file:
            yield cls(file)

    def note(self, what: str, number: int, value: int = 0) -> None:
        """``skipped``: this entry was not carried out; ``size``: the bytes of the image that was written."""
        self._file.write(json.dumps({what: number, "value": value}) + "\n")
        self._file.flush()

    def finish(self) -> None:
        self._file.write(DONE)
        self._file.flush()
        os.fsync(self._file.fileno())


def read(into: Path) -> Journal:
    """The journal in a folder, checked: it names files in this folder only, and was written for it."""
    path = into / JOURNAL
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    if lines and not lines[-1].endswith("\n"):
        lines.pop()  # a kill interrupted its writing
    begun = lines.index(BEGUN) if BEGUN in lines else None
    if begun is None:
        if any(entry.name not in (LOCK, JOURNAL) for entry in into.iterdir()):
            raise ValueError(f"{path} is damaged: its list of files is not complete")
        return Journal("copy", [], frozenset(), {}, begun=False, done=False)
    try:
        head = parse_json(lines[0])
        entries = [_entry(parse_json(line)) for line in lines[1:begun]]
        notes = [parse_json(line) for line in lines[begun + 1 :] if line != DONE]
        _check_head(head, into, len(entries))
        skipped = frozenset(int(note["skipped"]) for note in notes if "skipped" in note)
        sizes = {int(note["size"]): int(note["value"]) for note in notes if "size" in note}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"cannot use {path}: {error}") from None
    return Journal(head["how"], entries, skipped, sizes, begun=True, done=DONE in lines)


def _check_head(head: Any, into: Path, files: int) -> None:
    if head["format"] != FORMAT or head["version"] != VERSION or head["how"] not in get_args(How):
        raise ValueError("it is not a journal of a sort that this version can undo")
    if head["files"] != files:
        raise ValueError(f"it lists {files} files in place of {head['files']}")
    if head["into"] != os.path.realpath(into):
        raise ValueError(f"it was written for {head['into']}; move the folder back there first")


DEEPEST = 65
"""Parts of the longest target that is read: the folders of a path of sub-clusters, and the file."""


def _entry(line: Any) -> Entry:
    """A line of the list; its target is a file in a folder of the sort, or in one within it, and nowhere else."""
    origin, to = line["from"], line["to"]
    parts = to.split("/")
    if not 2 <= len(parts) <= DEEPEST or any(
        part in ("", os.curdir, os.pardir) or os.path.basename(part) != part for part in parts
    ):
        raise ValueError(f"{to!r} is not FOLDER/NAME or FOLDER/FOLDER/NAME")
    if origin is not None and not (isinstance(origin, str) and origin == os.path.abspath(origin)):
        raise ValueError(f"{origin!r} is not an absolute path")
    size, mtime_ns, inode = map(int, line["state"])
    return Entry(origin, to, State(size, mtime_ns, inode))


def _ends_with(path: Path, line: str) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - len(line)))
        return file.read() == line.encode()
