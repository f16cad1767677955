"""What no file may bring about: a program started, an object unpickled, a file written elsewhere, time without end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

PATIENCE = 60
"""Seconds after which an example counts as hung, on a busy machine too."""
STARTS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen", "ctypes.dlopen")
DEEDS = frozenset({*STARTS, "pickle.find_class", "code.__new__", "socket.connect", "socket.bind", "urllib.Request"})
"""What the interpreter announces and no loading of a file needs."""
WRITES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink", "os.truncate")
HARMLESS = (os.devnull, "/dev/tty")


class Misdeed(BaseException):
    """Not an Exception: nothing on the way may take it for a bad file."""


class Hang(BaseException):
    """It did not end in time."""


_watched: list[Path] = []
"""The folder that may be written, while an example is at work."""
_installed = threading.Event()


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched:
        return
    if event in DEEDS:
        raise Misdeed(f"{event}{arguments!r:.300}")
    if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
        path, mode, flags = arguments
        if set(mode or "") & set("wax+") or (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            _check_inside(event, path)
    elif event == "shutil.rmtree" or (event in WRITES and -1 in arguments):  # -1: not relative to an open folder
        _check_inside(event, arguments[0])
        if event == "os.rename":
            _check_inside(event, arguments[1])


def _check_inside(event: str, path: str | bytes | os.PathLike[str] | int) -> None:
    if isinstance(path, int):
        return
    # The folder is resolved, the last part not: a link itself may be replaced.
    folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
    inside = Path(os.path.realpath(folder), name).is_relative_to(_watched[0])
    if not inside and os.path.join(folder, name) not in HARMLESS:
        raise Misdeed(f"{event} outside of {_watched[0]}: {os.fsdecode(path)}")


def _too_long(number: int, frame: FrameType | None) -> None:
    raise Hang(f"not done after {PATIENCE} seconds")


@contextlib.contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """What happens inside starts nothing, unpickles nothing, writes to this folder only, and ends."""
    if not _installed.is_set():
        sys.addaudithook(_hook)  # for good: an audit hook cannot be taken out
        _installed.set()
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(PATIENCE)
    _watched.append(Path(os.path.realpath(folder)))
    try:
        yield
    finally:
        _watched.clear()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
