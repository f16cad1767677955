"""Stop on SIGINT and SIGTERM, but never while a file is being written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):  # noqa: N818 - not an error
    """A signal asked the program to stop; everything done so far is saved."""

    def __init__(self, signal_number: int, hint: str = "the run is saved: continue it with `cts resume`") -> None:
        super().__init__(signal.Signals(signal_number).name)
        self.signal_number = signal_number
        self.hint = hint


class Interruption:
    """A signal handler that raises ``Interrupted`` within ``allowed`` blocks and remembers the signal elsewhere."""

    def __init__(self) -> None:
        self._computing = False
        self._pending: int | None = None

    def __call__(self, signal_number: int, frame: FrameType | None) -> None:
        self._pending = signal_number
        if self._computing:
            self._computing = False
            raise Interrupted(signal_number)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        self._computing = True
        try:
            if self._pending is not None:
                raise Interrupted(self._pending)
            yield
        finally:
            self._computing = False


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Handle SIGINT and SIGTERM within the block."""
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption  # signals reach the main thread only, whose code handles them
        return
    before = {number: signal.signal(number, interruption) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stoppable(hint: str) -> Iterator[None]:
    """Turn Ctrl-C into ``Interrupted`` with a hint at what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(signal.SIGINT, hint) from None
