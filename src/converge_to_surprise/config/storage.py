"""Read and write files safely: atomic writes, bounded reads, locks."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from .text import parse_json

LARGEST_JSON = 64 << 20
"""Bytes. Nothing that this program writes as one JSON text comes near it."""


def read_bounded(path: Path, most: int) -> bytes:
    """The content of a regular file of at most ``most`` bytes. Reading a pipe would block, a device might never end."""
    if not path.is_file():
        raise ValueError("there is no such file" if not path.exists() else "it is not a regular file")
    if path.stat().st_size > most:
        raise ValueError(f"it has more than {most:,} bytes")
    return path.read_bytes()


def check_file_target(path: Path, option: str) -> Path:
    """A path that a file can be written to. ``option`` is the user's name for it, for example ``--out``."""
    if path.is_dir():
        raise ValueError(f"{option} is {path}, which is a folder; give a file")
    if not path.parent.is_dir():
        raise ValueError(f"{option} is {path}, but there is no folder {path.parent}")
    _check_writable(path.parent, path, option)
    return path


def check_folder_target(path: Path, option: str) -> Path:
    """A folder that can be written to, or that can be made. ``option`` is the user's name for it."""
    existing = next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))
    if existing.is_dir():
        _check_writable(existing, path, option)
    return path


def _check_writable(folder: Path, path: Path, option: str) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"{option} is {path}, but the folder {folder} is not writable; give a place in another folder")


@contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Make the message of an OSError in the block name ``path`` instead of a temporary file."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def write_atomically(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write to a temporary file in the same folder, flush it to disk, rename it, flush the folder.

    A crash, a full disk or a kill leaves the old file or the new one, never a part. What is too large to be held
    at once may come in pieces.
    """
    with errors_name(path):
        _write_atomically(path, content)


def _write_atomically(path: Path, content: bytes | Iterable[bytes]) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def flush_folder(folder: Path) -> None:
    """Make renames in a folder durable; a no-op where folders cannot be opened."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def wrong_version(found: object, expected: int) -> str:
    """The message for a file of another version of its format.

    >>> wrong_version(1, 2)
    'it was made by version 0.1 of this program, which this version cannot read: fit again'
    """
    if found == 1:
        return "it was made by version 0.1 of this program, which this version cannot read: fit again"
    return f"its format has version {found!r}; this program reads version {expected}"


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a table that this program wrote, by column; none if there is no such file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        return list(csv.DictReader(file))


def csv_bytes(rows: Iterable[Iterable[Any]]) -> bytes:
    """Rows as CSV text; names of files that are not valid Unicode keep their bytes."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "surrogateescape")


@contextmanager
def locked(lock: FileLock, folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, or raise ValueError if another process holds it. It ends with this process."""
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"another process is working on {folder}; wait for it or stop it first") from None
    except OSError as error:
        raise ValueError(f"cannot write to {folder}: {error.strerror}") from None
    try:
        yield
    finally:
        lock.release()


def write_json(path: Path, data: Any) -> None:
    write_atomically(path, (json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Parsed JSON; a ValueError that names the file if it cannot be read."""
    try:
        return parse_json(read_bounded(path, LARGEST_JSON).decode("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
