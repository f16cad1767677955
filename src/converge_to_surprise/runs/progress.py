"""Progress in the terminal: of a run, and of other counted work."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from ..search.record import Record

PLAIN_SECONDS = 5.0
"""Time between two lines where the output is not a terminal."""


class _Display:
    """A bar in a terminal; elsewhere a line every few seconds."""

    def __init__(self, console: Console, columns: Sequence[ProgressColumn], transient: bool = False) -> None:
        self._console = console
        self._bar = Progress(*columns, console=console, transient=transient) if console.is_terminal else None
        self._printed = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def _print(self, text: Callable[[], str], now: bool = False) -> None:
        if now or time.monotonic() - self._printed >= PLAIN_SECONDS:
            self._printed = time.monotonic()
            self._console.print(text(), soft_wrap=True)


class ProgressDisplay(_Display):
    """Reads the records of a run and shows its progress."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        # Short enough for a terminal of 80 columns.
        words = ("[bold]{task.fields[stage]}[/]", "{task.completed}/{task.total}", "{task.fields[measures]}")
        stage, steps, measures = map(TextColumn, words)
        speed = TextColumn("{task.fields[speed]:,.0f} views/s", table_column=Column(no_wrap=True))
        super().__init__(console, [stage, BarColumn(bar_width=4), steps, measures, speed, TimeRemainingColumn()])
        self._total = total
        self._last: Record | None = None
        self._speed = 0.0
        self._began, self._done_before = time.monotonic(), done
        if self._bar:
            self._task = self._bar.add_task("", total=total, completed=done, stage="start", measures="", speed=0.0)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __call__(self, record: Record) -> None:
        last, self._last = self._last, record
        if last is not None and record.seconds > last.seconds and record.views > last.views:
            now = (record.views - last.views) / (record.seconds - last.seconds)
            self._speed = now if self._speed == 0 else 0.9 * self._speed + 0.1 * now
        if self._bar:
            score = f"S {record.surprise:.2f} Ω {record.orderliness:.2f} agree {record.agreement:.0%}"
            measures, done = f"{score} K {record.surprising}/{record.active}", record.step + 1
            self._bar.update(self._task, completed=done, stage=record.stage, measures=measures, speed=self._speed)
        else:
            new_stage = last is None or last.stage != record.stage
            self._print(lambda: self._line(record), now=new_stage or record.step + 1 == self._total)

    def _line(self, record: Record) -> str:
        steps = record.step + 1 - self._done_before
        left = (time.monotonic() - self._began) / steps * (self._total - record.step - 1)
        return (
            f"{record.stage:<8} step {record.step + 1}/{self._total}  S {record.surprise:.3f}  "
            f"Ω {record.orderliness:.3f}  agree {record.agreement:.1%}  clusters {record.surprising}/{record.active}  "
            f"{self._speed:,.0f} views/s  {left:.0f} s left"
        )


class CountDisplay(_Display):
    """Shows how many items are done."""

    def __init__(self, console: Console, unit: str, total: int) -> None:
        counts = TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.description}")
        super().__init__(console, [counts, BarColumn(), TimeRemainingColumn()], transient=True)
        self._unit = unit
        if self._bar:
            self._task = self._bar.add_task(unit, total=total)

    def __call__(self, done: int, total: int) -> None:
        if self._bar:
            self._bar.start()  # only now: cached work needs no bar
            self._bar.update(self._task, completed=done, total=total)
        else:
            self._print(lambda: f"{done:,} of {total:,} {self._unit}")
