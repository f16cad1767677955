"""What a person sees: lines without a terminal, a bar with one, tables at the end."""

from __future__ import annotations

import time
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from converge_to_surprise.cli.screen import ProgressDisplay, cluster_table, verdict
from rich.console import Console

from converge_to_surprise.model.assessment import Assessment, Cluster
from converge_to_surprise.search.record import Measures, Record

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


def test_a_bar_has_room_for_the_number_of_a_start() -> None:
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


def assessment(known: bool) -> Assessment:
    rows = [
        Cluster(0, 5, 2, 0.25, 12.5, 0.5, True, 7 if known else None, 1.0 if known else None),
        Cluster(1, 3, 1500, 0.0, 0.0, 1.0, False, 4 if known else None, 0.125 if known else None),
    ]
    labels = np.array([0, 0, 1, 1], dtype=np.int64)
    classes = np.array([7, 7, 4, 7], dtype=np.int64) if known else None
    measures = Measures(surprise=0.25, orderliness=1.5, agreement=0.75, surprising=1, active=2)
    return Assessment(labels, np.array([0, 0, 1, 0], dtype=np.int64), [5, 3], measures, rows, classes)


def shown(known: bool) -> str:
    file = StringIO()
    Console(file=file, width=120).print(cluster_table(assessment(known)))
    return file.getvalue()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")]


def test_table_with_classes() -> None:
    lines = [line for line in shown(known=True).splitlines() if line.startswith(("│", "┃"))]
    assert [cells(line) for line in lines] == [
        ["cluster", "size", "surprise", "−log p", "agreement", "class", "purity"],
        ["1", "1,500", "0.0000", "0", "100.0%", "4", "12.5%"],
        ["0", "2", "0.2500", "12", "50.0%", "7", "100.0%"],
    ]
    assert "2 clusters in 4 images" in shown(known=True)


def test_table_without_classes() -> None:
    lines = [line for line in shown(known=False).splitlines() if line.startswith(("│", "┃"))]
    assert [cells(line) for line in lines] == [
        ["cluster", "size", "surprise", "−log p", "agreement"],
        ["1", "1,500", "0.0000", "0", "100.0%"],
        ["0", "2", "0.2500", "12", "50.0%"],
    ]


def test_verdict() -> None:
    line = "S 0.250  Ω 1.500  agreement 75.0%  clusters 2, surprising 1"
    assert verdict(assessment(known=False)) == line
    first, second, third = verdict(assessment(known=True)).splitlines()
    assert first == line
    # Three of four images are where their class is.
    assert second.endswith("ACC 75.0%  PURITY 75.0%")
    assert second.startswith("NMI ")
    assert third == "by both views: NMI 100.0%  ARI 100.0%  ACC 100.0%, clusters 2"
