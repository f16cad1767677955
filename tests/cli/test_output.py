"""Tables and messages in the terminal."""

from __future__ import annotations

import warnings
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from converge_to_surprise.cli.output import cluster_table, say, score_lines, shown_warnings, warn
from converge_to_surprise.core.measures import Measures
from converge_to_surprise.model.assessment import Assessment, Cluster


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


def test_score_lines() -> None:
    line = "S 0.250  Ω 1.500  agreement 75.0%  clusters 2, surprising 1"
    assert score_lines(assessment(known=False)) == line
    first, second, third = score_lines(assessment(known=True)).splitlines()
    assert first == line
    # Three of four images are where their class is.
    assert second.endswith("ACC 75.0%  PURITY 75.0%")
    assert second.startswith("NMI ")
    assert third == "by both views: NMI 100.0%  ARI 100.0%  ACC 100.0%, clusters 2"


def test_a_line_is_printed_as_it_is() -> None:
    file = StringIO()
    text = "[bold]x[/bold] " + "word " * 20 + "/tmp/run:3"
    say(Console(file=file, width=40), text)
    assert file.getvalue() == text + "\n"


def test_warnings_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    warn(["first\nsecond", "\x1b[2J[red]" + "long " * 50])
    printed = capsys.readouterr()
    assert printed.out == ""
    first, second = printed.err.splitlines()
    assert first == "warning: first\\nsecond"
    assert second.startswith("warning: \\x1b[2J[red]long long")


def test_warnings_of_the_program_are_shown_without_their_place() -> None:
    file = StringIO()
    before = warnings.showwarning
    with shown_warnings(Console(file=file, width=40)):
        warnings.simplefilter("always")
        warnings.warn("a worker was lost;\nits work is repeated from step 3", stacklevel=1)
    assert file.getvalue() == "warning: a worker was lost;\\nits work is repeated from step 3\n"
    assert warnings.showwarning is before
