"""What a person sees: lines without a terminal, a bar with one."""

from __future__ import annotations

import time
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from converge_to_surprise.runs.progress import CountDisplay, ProgressDisplay
from converge_to_surprise.search.record import Record

FIRST = Record(
    step=0, epoch=0, stage="explore", kind="evolution", surprise=0.1234, orderliness=1.25, agreement=0.5,
    surprising=3, active=17, views=1000, seconds=1.0,
)  # fmt: skip


def record(step: int, stage: str = "explore") -> Record:
    """Each step looks at 1,000 views in half a second."""
    return replace(FIRST, step=step, stage=stage, views=1000 * (step + 1), seconds=1 + step / 2)


def plain(records: list[Record], total: int, done: int = 0) -> list[str]:
    file = StringIO()
    with ProgressDisplay(Console(file=file, width=40), total, done) as display:
        for entry in records:
            display(entry)
    assert "\x1b" not in file.getvalue()
    return file.getvalue().splitlines()


def test_lines_without_a_terminal() -> None:
    records = [record(0), record(1), record(2, "strong"), record(3, "strong"), record(4, "strong")]
    lines = plain(records, total=5)
    # One at the start, one for each new stage, one at the end; never wrapped, whatever the width.
    assert [line.split()[0] for line in lines] == ["explore", "strong", "strong"]
    assert lines[0].startswith("explore  step 1/5  S 0.123  Ω 1.250  agree 50.0%  clusters 3/17  0 views/s  ")
    assert lines[1].startswith("strong   step 3/5  S 0.123  Ω 1.250  agree 50.0%  clusters 3/17  2,000 views/s  ")
    assert lines[2].startswith("strong   step 5/5")
    assert all(line.endswith(" s left") for line in lines)


def test_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    file = StringIO()
    display = ProgressDisplay(Console(file=file), 100, 0)
    for step in range(20):
        clock += 1
        display(record(step))
    steps = [line.split()[2] for line in file.getvalue().splitlines()]
    assert steps == ["1/100", "6/100", "11/100", "16/100"]  # every five seconds
    assert file.getvalue().splitlines()[1].endswith(" 94 s left")  # 6 steps took 6 s


def test_time_left_counts_only_this_session() -> None:
    """After a resume the steps of the earlier session took this one no time."""
    lines = plain([record(98)], total=100, done=98)
    assert lines[0].endswith("  0 s left")
    assert "step 99/100" in lines[0]


def test_a_bar_in_a_terminal() -> None:
    file = StringIO()
    console = Console(file=file, force_terminal=True, width=80, color_system=None)
    with ProgressDisplay(console, 8, 0) as display:
        for step in range(3):
            display(record(step, "strong"))
    drawn = file.getvalue()
    for part in ("strong", "3/8", "S 0.12", "Ω 1.25", "agree 50%", "K 3/17", "2,000 views/s", ":"):
        assert part in drawn, part
    assert "step 1/8" not in drawn  # no lines beside the bar


def test_a_bar_has_room_for_the_number_of_an_initialization() -> None:
    file = StringIO()
    console = Console(file=file, force_terminal=True, width=80, color_system=None)
    with ProgressDisplay(console, 7202, 3600) as display:
        for step in range(3600, 3603):
            display(record(step, "refine 2/2"))
    for part in ("refine 2/2", "3603/7202", "agree 50%", "2,000 views/s"):
        assert part in file.getvalue(), part


def test_a_bar_ends_with_an_error() -> None:
    """Otherwise the cursor would stay hidden."""
    file = StringIO()

    def fail() -> None:
        with ProgressDisplay(Console(file=file, force_terminal=True), 8, 0):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert file.getvalue().rstrip().endswith("\x1b[?25h")


def test_counted_work_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    file = StringIO()
    with CountDisplay(Console(file=file, width=20), "pictures read", 0) as display:
        for done in range(0, 20_000, 1_000):
            clock += 1
            display(done, 20_000)
    assert file.getvalue().splitlines() == [
        f"{done} of 20,000 pictures read" for done in ("4,000", "9,000", "14,000", "19,000")
    ]


def test_counted_work_in_a_terminal() -> None:
    file = StringIO()
    console = Console(file=file, force_terminal=True, width=80, color_system=None)
    with CountDisplay(console, "images", 10):
        pass
    assert file.getvalue() == ""  # nothing was done, so there is no bar
    with CountDisplay(console, "images", 10) as display:
        display(4, 10)
    assert "4/10 images" in file.getvalue()
