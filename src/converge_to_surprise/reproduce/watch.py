"""What a person sees while runs go on: a bar and the runs at work in a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from .pool import Running, Task, Watcher


class Display(Watcher):
    """Shows which runs are done, at work and left."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        self._console = console
        self._total, self._done, self._failed = total, done, 0
        self._bar: Progress | None = None
        self._lines: dict[str, TaskID] = {}
        if console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=10), TextColumn("{task.fields[text]}"))
            self._bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
            self._all = self._bar.add_task("all runs", total=total, completed=done, text="")

    def __enter__(self) -> Display:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def began(self, task: Task) -> None:
        verb = "resumed" if task.words[0] == "resume" else "begun"
        if self._bar:
            self._lines[task.name] = self._bar.add_task(task.name, total=None, text=verb)
        else:
            self._say(f"{task.name}: {verb}")

    def ended(self, task: Task, seconds: float, error: str | None) -> None:
        self._done += error is None
        self._failed += error is not None
        if self._bar:
            self._bar.remove_task(self._lines.pop(task.name))
        outcome = f"done in {seconds:.0f} s" if error is None else f"failed: {error}"
        self._say(f"{task.name}: {outcome}; {self._standing()}")

    def tick(self, running: Sequence[Running]) -> None:
        if not self._bar:
            return
        self._bar.update(self._all, completed=self._done, text=self._standing())
        for one in running:
            line = one.last_line()
            step, total = progress(line)
            self._bar.update(self._lines[one.task.name], completed=step, total=total, text=line[:40])

    def stopping(self, count: int) -> None:
        self._say(f"stopping {count} run{'s' * (count > 1)}, saving what is done; a second Ctrl-C does not wait for it")

    def _standing(self) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._done} of {self._total} done{failed}"

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def progress(line: str) -> tuple[int, int | None]:
    """Step and number of steps in a line of ``cts fit``.

    >>> progress("search   step 12/601  S 0.411")
    (12, 601)
    >>> progress("")
    (0, None)
    """
    words = line.partition(" step ")[2].split()
    step, _, total = words[0].partition("/") if words else ("", "", "")
    return (int(step), int(total)) if step.isdigit() and total.isdigit() else (0, None)
