"""Several runs at once: each is a process of its own, which saves its run when it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from ..runs.interruption import Interrupted

PROGRAM = [sys.executable, "-m", "converge_to_surprise"]
SAME_SECONDS = 1.0
"""Signals within this time are one: a launcher may pass on the Ctrl-C that the terminal has sent already."""
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Task(NamedTuple):
    """The arguments of a command and the file for its output."""

    name: str
    arguments: list[str]
    log: Path


class Pool:
    """Processes, ``width`` at a time."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._stopped: tuple[int, float] | None = None
        """The signal that stopped the pool, and when."""

    def run(self, tasks: Sequence[Task], report: Callable[[Task, float, str], None]) -> dict[str, str]:
        """Run all tasks; returns the errors of those that failed, by name.

        ``report`` gets each finished task, its seconds and its error, empty if there is none. A signal is passed on
        to all processes as SIGTERM; when they have saved their runs, ``Interrupted`` is raised.
        """
        errors: dict[str, str] = {}
        in_main = threading.current_thread() is threading.main_thread()
        before = {number: signal.signal(number, self._stop) for number in SIGNALS} if in_main else {}
        try:
            with ThreadPoolExecutor(self._width) as threads:
                futures = {threads.submit(self._work, task): task for task in tasks}
                try:
                    for future in as_completed(futures):
                        task, (seconds, error) = futures[future], future.result()
                        if self._stopped is None:
                            errors |= {task.name: error} if error else {}
                            report(task, seconds, error)
                except BaseException:  # such as a closed terminal: the other runs would go on unseen
                    self._stop(signal.SIGTERM)
                    raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._stopped is not None:
            raise Interrupted(self._stopped[0], "the runs are saved: the same command continues them")
        return errors

    def _work(self, task: Task) -> tuple[float, str]:
        """Seconds and error of one process."""
        if self._stopped is not None:
            return 0.0, ""
        began = time.monotonic()
        task.log.parent.mkdir(parents=True, exist_ok=True)
        with task.log.open("wb") as log:
            # A process group of its own: Ctrl-C in a terminal reaches this program alone, which then stops the runs.
            process = subprocess.Popen(
                [*PROGRAM, *task.arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, process_group=0,
            )  # fmt: skip
        self._processes.add(process)
        if self._stopped is not None:  # by a signal that came before the process was in the set
            process.terminate()
        code = process.wait()
        self._processes.discard(process)
        return time.monotonic() - began, _error(code, task.log)

    def _stop(self, number: int, frame: FrameType | None = None) -> None:
        """Ask the processes to save their runs; a second signal kills them."""
        first = self._stopped is None
        if first and self._processes:
            os.write(2, b"stopping the runs and saving them; a second Ctrl-C does not wait\n")  # safe in a handler
        self._stopped = self._stopped or (number, time.monotonic())
        for process in list(self._processes):
            if first:
                process.terminate()
            elif time.monotonic() - self._stopped[1] > SAME_SECONDS:
                process.kill()


def _error(code: int, log: Path) -> str:
    """Why a process failed: the last line of its output. Empty if it did not."""
    if code <= 0:
        return f"ended by {signal.Signals(-code).name}" if code else ""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].strip().removeprefix("cts: ") if lines else f"exit code {code}"
