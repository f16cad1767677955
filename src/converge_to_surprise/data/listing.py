"""List picture files: those under a folder, or named by a CSV or Parquet file, in a fixed order."""

from __future__ import annotations

import csv
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .arrays import HINT
from .formats import HEAD, NO_PICTURES, READ, UNREAD, decodable, recognize

JUNK = frozenset({"__macosx", "@eadir", "$recycle.bin", "system volume information"})
"""Folders of operating systems that hold copies of pictures."""
SUFFIXES = (".csv", ".tsv", ".parquet")
PATH_COLUMNS = ("path", "file", "filename", "file_name", "image")
LABEL_COLUMNS = ("label", "class", "target")


@dataclass(frozen=True)
class Listing:
    """Picture files, good or bad, before any of them is opened."""

    source: str
    """The source's name in messages."""
    paths: Sequence[str]
    """Where each file is."""
    names: Sequence[str]
    """What the user sees: the path within the source with /. Always valid Unicode, so that any file can hold it."""
    classes: Sequence[str] | None = None
    """The class of each file, for evaluation only."""

    def __len__(self) -> int:
        return len(self.paths)


def list_folder(folder: str | Path) -> Listing:
    """All files under a folder that look like pictures, sorted by name: also those that will not be read.

    A known ending is enough. Files with no ending or an unknown one are opened, and their first bytes decide. Links are
    followed, but every real folder is visited once, so that links in a circle end. Hidden files and folders are left
    out. Files that cannot be opened are listed too; the decoder reports the reason.
    """
    root = os.path.abspath(folder)
    if not os.path.isdir(root):
        raise ValueError(f"{folder} is not a folder")
    found = sorted((_shown(os.path.relpath(path, root)), path) for path in _walk(root))
    return Listing(str(folder), [path for _, path in found], [name for name, _ in found])


def list_paths(paths: Sequence[str | Path], source: str = "the list of paths") -> Listing:
    """The files named, in the order given."""
    return Listing(source, [os.path.abspath(path) for path in paths], [_shown(os.fspath(path)) for path in paths])


def looks_like_classes(listing: Listing) -> int:
    """How many classes the folders directly below seem to be: 2 or more, of 2 or more pictures, none outside; or 0."""
    sizes = _folder_sizes(listing)
    return len(sizes) if "" not in sizes and len(sizes) >= 2 and min(sizes.values()) >= 2 else 0


def with_folder_classes(listing: Listing) -> Listing:
    """The listing with the folder directly below as the class of every picture."""
    if not looks_like_classes(listing):
        sizes = _folder_sizes(listing)
        loose = sizes.pop("", 0)
        small = [name for name, size in sizes.items() if size < 2]
        what = f"{loose} pictures outside of its folders" if loose else f"{len(sizes)} folders with pictures"
        what += f", and a single picture in {small[0]!r}" if small and not loose else ""
        raise ValueError(
            f"labels is 'from-folders', but {listing.source} has {what}; "
            "it takes at least 2 folders with at least 2 pictures each and no picture outside"
        )
    return replace(listing, classes=[name.split("/", 1)[0] for name in listing.names])


def _folder_sizes(listing: Listing) -> Counter[str]:
    """Pictures per folder directly below; loose ones count under the empty name."""
    return Counter(
        name.split("/", 1)[0] if "/" in name else ""
        for name, path in zip(listing.names, listing.paths, strict=True)
        if _is_read(path)
    )


def _walk(root: str) -> Iterator[str]:
    """Visit real folders first and linked ones after them, so that a folder below the root is found by its own name."""
    visited: set[tuple[int, int]] = set()
    waiting, linked = [root], list[str]()
    while waiting or linked:
        folder = waiting.pop() if waiting else linked.pop(0)
        try:
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError:
            yield folder
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.name.lower() in JUNK:
                continue
            kind = _kind(entry)
            if kind == "folder":
                (linked if entry.is_symlink() else waiting).append(entry.path)
            elif looks_like_picture(entry.path, kind):
                yield entry.path


def _kind(entry: os.DirEntry[str]) -> str:
    """folder, file, other (such as a pipe), or broken: a link without a target, which may have been a folder."""
    try:
        mode = entry.stat().st_mode
    except OSError:
        return "broken"
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def looks_like_picture(path: str, kind: str = "file") -> bool:
    """Whether a path of a kind (see ``_kind``) looks like a picture, by its name or else by its first bytes."""
    ending = _ending(path)
    if ending in READ or ending in UNREAD:
        return True
    if kind == "broken":
        return not ending
    return kind == "file" and ending not in NO_PICTURES and recognize(_head(path)) is not None


def _is_read(path: str) -> bool:
    """Whether it is a picture that is read, unless it is damaged."""
    if (ending := _ending(path)) in READ:
        return True
    found = recognize(_head(path), ending) if os.path.isfile(path) else None
    return found is not None and decodable(found)


def _ending(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _head(path: str) -> bytes:
    """The first bytes of a file; none if it cannot be opened."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(HEAD)
    except OSError:
        return b""


def _shown(path: str) -> str:
    """Bytes of a name that are not Unicode are shown as \\xff, so that the name can be written to any file."""
    return os.fsencode(path).decode("utf-8", "backslashreplace").replace(os.sep, "/")


def list_table(path: str | Path) -> Listing:
    """The pictures that a table names, in its order; relative paths start at the table's folder."""
    path = Path(path)
    places, labels = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    if labels is not None and "" in labels:
        row = labels.index("") + 1
        raise ValueError(f"row {row} of {path} has no label; give every row one or leave the column out")
    paths = list_paths([os.path.join(path.parent, place) for place in places]).paths
    names = list_paths([place or f"row {row}" for row, place in enumerate(places, 1)]).names
    return Listing(str(path), paths, names, labels)


def _read_csv(path: Path) -> tuple[list[str], list[str] | None]:
    try:
        # Excel writes a byte order mark; names that are not valid Unicode must still lead to their files.
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            header = file.readline()
            file.seek(0)
            separator = max(",;\t", key=header.count)
            rows = csv.reader(file, delimiter=separator, skipinitialspace=True)
            columns = next(rows, [])
            where, label = _columns(columns, path)
            content = [row for row in rows if row]
    except (OSError, csv.Error) as error:
        raise ValueError(f"cannot read {path} as a table: {error}") from None

    def column(number: int) -> list[str]:
        return [row[number] if number < len(row) else "" for row in content]

    return column(where), None if label is None else column(label)


def _read_parquet(path: Path) -> tuple[list[str], list[str] | None]:
    with parquet(path) as pq:
        names = pq.read_schema(path).names
        where, label = _columns(names, path)
        wanted = [names[number] for number in (where, label) if number is not None]
        table = pq.read_table(path, columns=wanted, partitioning=None)
    places = table.column(wanted[0]).to_pylist()
    if not all(place is None or isinstance(place, str) for place in places):
        raise ValueError(f"the column {wanted[0]!r} of {path} holds {table.schema.field(wanted[0]).type}, not paths")
    labels = None if label is None else [_text(value) for value in table.column(wanted[1]).to_pylist()]
    return [_text(place) for place in places], labels


def _text(value: Any) -> str:
    return "" if value is None else str(value)


@contextmanager
def parquet(path: Path) -> Iterator[Any]:
    """The module ``pyarrow.parquet`` to read a file with; its errors become a ValueError of one line."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ValueError(
            f"{path} is a Parquet file, and reading it needs pyarrow: pip install 'converge-to-surprise[tables]'"
        ) from None
    try:
        yield pq
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"cannot read {path} as a table: {error}") from None


def _columns(names: Sequence[str], path: Path) -> tuple[int, int | None]:
    """Which column holds the paths, and which the labels."""
    plain = [name.strip().lower() for name in names]
    where = next((plain.index(name) for name in PATH_COLUMNS if name in plain), None)
    if where is None:
        hint = f" ({HINT})" if path.suffix.lower() == ".parquet" else ""
        known = ", ".join(PATH_COLUMNS)
        raise ValueError(f"{path} has the columns {list(names)}; one of them must be called {known}{hint}")
    return where, next((plain.index(name) for name in LABEL_COLUMNS if name in plain), None)
