"""Tasks in processes of their own: from the last one backwards, while this process works from the first one on.

Each process does one task, ``python -m MODULE FOLDER TASK``, and leaves its result as a file ``FOLDER/TASK.result``. If
it ends without one, for example because memory ran out, the task is left to this process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self


class SideBySide:
    """The processes that work on tasks; leaving the context ends them."""

    def __init__(self, module: str, folder: Path, tasks: range, processes: int) -> None:
        """``tasks``: those that other processes may do. ``processes``: how many of them there may be at a time."""
        self.module, self.folder, self.processes = module, folder, processes
        self._waiting = list(tasks)
        self._started: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._started.values():
            process.kill()
            process.wait()

    def advance(self) -> None:
        """Start the last of the waiting tasks if a process is free."""
        running = sum(process.poll() is None for process in self._started.values())
        if self._waiting and running < self.processes:
            task = self._waiting.pop()
            # In a session of its own: Ctrl-C reaches this process only.
            self._started[task] = subprocess.Popen(
                [sys.executable, "-m", self.module, str(self.folder), str(task)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def take(self, task: int) -> bytes | None:
        """The result of a task, waited for; None if this process is to do it."""
        if task in self._waiting:
            self._waiting.remove(task)
        process = self._started.get(task)
        if process is None:
            return None
        process.wait()
        file = self.folder / f"{task}.result"
        return file.read_bytes() if process.returncode == 0 and file.is_file() else None


def end_with_parent() -> None:
    """Make this process, started for a task, end when the one that started it is gone: its end of the pipe closes."""

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)  # not by sys.stdin, whose lock the interpreter needs at its end
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
