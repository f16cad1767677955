"""Progress in the terminal: of a run, and of other counted work."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..search.record import Record

PLAIN_SECONDS = 5.0
"""Time between two lines where the output is not a terminal."""


def measures_text(record: Record) -> str:
    return (
        f"S {record.surprise:.3f}  Ω {record.orderliness:.3f}  agree {record.agreement:.1%}  "
        f"clusters {record.surprising}/{record.active}"
    )


def short_measures(record: Record) -> str:
    score, order = f"S {record.surprise:.2f}", f"Ω {record.orderliness:.2f}"
    return f"{score} {order} agree {record.agreement:.0%} K {record.surprising}/{record.active}"


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.fields['speed']:,.0f} views/s", no_wrap=True)


class ProgressDisplay:
    """Reads records and shows a bar in a terminal, or a line now and then elsewhere."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        self._console = console
        self._total = total
        self._last: Record | None = None
        self._printed = 0.0
        self._speed = 0.0
        self._began, self._done_before = time.monotonic(), done
        self._bar: Progress | None = None
        if console.is_terminal:
            # Short enough for a terminal of 80 columns.
            columns = (
                TextColumn("[bold]{task.fields[stage]}[/]"),
                BarColumn(bar_width=4),
                TextColumn("{task.completed}/{task.total}"),
                TextColumn("{task.fields[measures]}"),
                _Speed(),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=console)
            self._task = self._bar.add_task("", total=total, completed=done, stage="start", measures="", speed=0.0)

    def __enter__(self) -> ProgressDisplay:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, record: Record) -> None:
        last, self._last = self._last, record
        if last is not None and record.seconds > last.seconds and record.views > last.views:
            now = (record.views - last.views) / (record.seconds - last.seconds)
            self._speed = now if self._speed == 0 else 0.9 * self._speed + 0.1 * now
        if self._bar:
            self._bar.update(
                self._task, completed=record.step + 1, stage=record.stage, measures=short_measures(record),
                speed=self._speed,
            )  # fmt: skip
            return
        finished = record.step + 1 == self._total
        new_stage = last is None or last.stage != record.stage
        if finished or new_stage or time.monotonic() - self._printed >= PLAIN_SECONDS:
            self._printed = time.monotonic()
            self._console.print(self._line(record), soft_wrap=True)

    def _line(self, record: Record) -> str:
        steps = record.step + 1 - self._done_before
        left = (time.monotonic() - self._began) / steps * (self._total - record.step - 1)
        return (
            f"{record.stage:<8} step {record.step + 1}/{self._total}  {measures_text(record)}  "
            f"{self._speed:,.0f} views/s  {left:.0f} s left"
        )


class CountDisplay:
    """Shows how many items are done: a bar in a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console, unit: str, total: int) -> None:
        self._console, self._unit, self._printed = console, unit, time.monotonic()
        self._bar: Progress | None = None
        if console.is_terminal:
            columns = (TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.description}"), BarColumn())
            self._bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
            self._task = self._bar.add_task(unit, total=total)

    def __enter__(self) -> CountDisplay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        if self._bar:
            self._bar.start()  # only now: cached work needs no bar
            self._bar.update(self._task, completed=done, total=total)
        elif time.monotonic() - self._printed >= PLAIN_SECONDS:
            self._printed = time.monotonic()
            self._console.print(f"{done:,} of {total:,} {self._unit}", soft_wrap=True)
