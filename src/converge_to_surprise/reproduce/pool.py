"""Several runs at once: each is a process of its own that saves itself when it is told to stop."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from ..runs.session import Interrupted

PROGRAM = [sys.executable, "-m", "converge_to_surprise"]
POLL_SECONDS = 0.1
SAME_SECONDS = 1.0
"""Two signals within this time are one."""
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
HINT = "the runs are saved: the same command continues them"


@dataclass(frozen=True)
class Task:
    """A command line to run, and where what it says goes."""

    name: str
    words: list[str]
    log: Path


@dataclass
class Running:
    """A task whose process is at work."""

    task: Task
    process: subprocess.Popen[bytes]
    began: float = field(default_factory=time.monotonic)

    def last_line(self) -> str:
        """The latest thing that the process said."""
        return _last_line(self.task.log)


class Watcher:
    """Is told of everything that happens. This one keeps silent."""

    def began(self, task: Task) -> None: ...
    def ended(self, task: Task, seconds: float, error: str | None) -> None: ...
    def tick(self, running: Sequence[Running]) -> None: ...
    def stopping(self, count: int) -> None: ...


def run_all(tasks: Sequence[Task], width: int, watcher: Watcher) -> dict[str, str]:
    """Run tasks, ``width`` at a time; the errors of those that failed, by name.

    A signal is passed on to all processes, which save their runs; then ``Interrupted`` is raised.
    """
    waiting = list(tasks)
    running: list[Running] = []
    errors: dict[str, str] = {}
    with _signals() as pending:
        try:
            while waiting or running:
                while waiting and len(running) < width:
                    running.append(_start(waiting.pop(0)))
                    watcher.began(running[-1].task)
                watcher.tick(running)
                time.sleep(POLL_SECONDS)
                for done in [one for one in running if one.process.poll() is not None]:
                    running.remove(done)
                    error = _error(done)
                    if error is not None:
                        errors[done.task.name] = error
                    watcher.ended(done.task, time.monotonic() - done.began, error)
                if (number := pending()) is not None:
                    raise Interrupted(number, HINT)
        finally:
            if running:
                watcher.stopping(len(running))
                _stop(running, pending)
    return errors


def _start(task: Task) -> Running:
    task.log.parent.mkdir(parents=True, exist_ok=True)
    with task.log.open("wb") as log:
        # A process group of its own: Ctrl-C in a terminal reaches this process alone, which then stops the others.
        process = subprocess.Popen(
            [*PROGRAM, *task.words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, process_group=0,
        )  # fmt: skip
    return Running(task, process)


def _stop(running: list[Running], pending: Callable[[], int | None]) -> None:
    """Ask the processes to save and leave, and wait for it; a second signal ends them at once."""
    for one in running:
        one.process.terminate()
    began = time.monotonic()
    while any(one.process.poll() is None for one in running):
        # Whoever started this program may pass on the same Ctrl-C once more.
        if pending() is not None and time.monotonic() - began > SAME_SECONDS:
            for one in running:
                one.process.kill()
        time.sleep(POLL_SECONDS / 2)


@contextmanager
def _signals() -> Iterator[Callable[[], int | None]]:
    """Collect signals instead of being torn down by them; the function hands over the latest one, once."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    def pending() -> int | None:
        number = received[-1] if received else None
        received.clear()
        return number

    if threading.current_thread() is not threading.main_thread():
        yield pending
        return
    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield pending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _error(done: Running) -> str | None:
    code = done.process.returncode
    if code == 0:
        return None
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return _last_line(done.task.log).removeprefix("cts: ") or f"exit code {code}"


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - 2000))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
