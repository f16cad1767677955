"""What a person sees in the terminal: progress while a run goes on, tables when it is done."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ..config.text import one_line
from ..runs.result import Assessment
from ..search.record import Record

PLAIN_SECONDS = 5.0
"""Time between two lines where there is no terminal to draw a bar in."""


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
    """A reader of records: a bar in a terminal, a line now and then elsewhere."""

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


@contextmanager
def shown_warnings(console: Console) -> Iterator[None]:
    """Inside, warnings are told in a line, without the place in the program where they arise."""

    def show(message: Warning | str, *_: object) -> None:
        console.print(one_line(f"warning: {message}"), markup=False, highlight=False, soft_wrap=True)

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def warn_of_damage(problems: Sequence[str]) -> None:
    """Say on the error stream what is damaged and what was done about it."""
    for problem in problems:
        text = one_line(f"warning: {problem}")
        Console(stderr=True).print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)


class CountDisplay:
    """How many of how many are done: a bar in a terminal, a line now and then elsewhere."""

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
            self._bar.start()  # only now: what is there already needs no bar
            self._bar.update(self._task, completed=done, total=total)
        elif time.monotonic() - self._printed >= PLAIN_SECONDS:
            self._printed = time.monotonic()
            self._console.print(f"{done:,} of {total:,} {self._unit}", soft_wrap=True)


def cluster_table(assessment: Assessment) -> Table:
    """The clusters of an assessment, the largest first; class and purity where classes are known."""
    known = assessment.classes is not None
    table = Table(title=f"{len(assessment.clusters)} clusters in {len(assessment.labels):,} images")
    for name in ("cluster", "size", "surprise", "−log p", "agreement", *(("class", "purity") if known else ())):
        table.add_column(name, justify="right")
    for row in sorted(assessment.clusters, key=lambda row: -row.size):
        cells = [str(row.cluster), f"{row.size:,}", f"{row.surprise:.4f}", f"{row.nats:,.0f}", f"{row.agreement:.1%}"]
        if row.dominant is not None and row.purity is not None:
            cells += [str(row.dominant), f"{row.purity:.1%}"]
        table.add_row(*cells, style="" if row.surprising else "dim")
    return table


def verdict(assessment: Assessment) -> str:
    """One line of figures; the part about classes only where they are known."""
    scores = assessment.scores()
    text = (
        f"S {scores['surprise']:.3f}  Ω {scores['orderliness']:.3f}  agreement {scores['agreement']:.1%}  "
        f"clusters {scores['n_clusters']}, surprising {scores['n_surprising']}"
    )
    if scores["acc"] is None:
        return text
    classes = "  ".join(f"{name.upper()} {scores[name]:.1%}" for name in ("nmi", "ari", "acc", "purity"))
    both = "  ".join(f"{name.upper()} {scores[f'{name}_both']:.1%}" for name in ("nmi", "ari", "acc"))
    return f"{text}\n{classes}\nby both views: {both}, clusters {scores['n_clusters_both']}"
