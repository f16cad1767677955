"""The tables of hypotheses, and the images for which H1 is true by construction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypotheses_null
import hypotheses_pictures
import hypotheses_tables
import numpy as np
import pytest
import rows
import torch

from converge_to_surprise.core.views import chessboard
from converge_to_surprise.model.hierarchy import Path as TreePath


def run(name: str, seed: int, **changes: Any) -> dict[str, Any]:
    row = {"what": "tree", "set": name, "seed": seed, "images": 7291, "classes": 10, "tried": "1 10", "splits": "1 2"}
    row |= {"leaves": "10 13", "nats": "16445 2012", "nmi": "0.5 0.75", "ari_first": 0.4, "ari_leaves": 0.6}
    return row | {"search_cpu": 80.0, "round_cpu": 20.0, "rounds_cpu": 30.0} | changes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    null = {"what": "null", "set": "digits, paired within clusters", "seed": 0, "trials": 22, "tried": 242}
    null |= {"rejected": 1, "splits": 0, "p_0.01": 0.004, "p_0.05": 0.02, "p_0.2": 0.1}
    found = [run("usps", 0, nmi="0.1 0.2"), run("usps, cut at 5", 1), run("made", 3, search_cpu=None), null]
    rows.write_rows(tmp_path / "hypotheses.csv", [*found, run("usps", 0)])
    return tmp_path


def lines(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_a_run_is_a_line_and_the_last_row_counts(folder: Path) -> None:
    found = lines(hypotheses_tables.rounds(folder))
    assert [line[0] for line in found] == ["made set", "USPS"]
    assert found[1][1:] == ["0", "7,291", "1 → 10", "1 → 2", "10 → 13", "16,445 → 2,012", "50.0 → 75.0", "40.0 → 60.0"]


def test_runs_that_were_given_too_few_clusters_have_their_own_table(folder: Path) -> None:
    assert lines(hypotheses_tables.coarse(folder)) == [
        ["USPS", "10", "5", "1", "10 → 13", "50.0 → 75.0", "40.0 → 60.0"]
    ]


def test_cost_is_that_of_measured_runs(folder: Path) -> None:
    found = lines(hypotheses_tables.cost(folder))
    assert found == [
        ["USPS", "0", "80", "20", "30", "0.25"],
        ["USPS, 5 clusters given", "1", "80", "20", "30", "0.25"],
    ]


def test_the_level_counts_tests(folder: Path) -> None:
    (found,) = lines(hypotheses_tables.level(folder))
    assert found[1:] == ["22", "242", "1", "0", "0.4 %", "2.0 %", "10.0 %"]


def test_p_values_of_other_nodes_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypotheses_null, "P_VALUES", tmp_path / "p.csv")
    hypotheses_null.save_p_values("classes", [[-1.0, 0.0], [-2.5]])
    hypotheses_null.save_p_values("clusters", [[-3.0]])
    hypotheses_null.save_p_values("clusters", [[-4.0]])
    assert hypotheses_null.read_p_values("classes") == [-1.0, 0.0, -2.5]
    assert hypotheses_null.read_p_values("clusters") == [-4.0]


def test_a_composite_has_the_black_squares_of_another_image() -> None:
    images = torch.arange(1, 31, dtype=torch.uint8)[:, None, None, None].expand(30, 1, 4, 4)
    mixed = hypotheses_null.composite(images, np.random.default_rng(0))
    white = chessboard(4, 4)
    assert torch.equal(mixed[..., white], images[..., white])
    others = mixed[..., ~white][:, 0]
    assert (others == others[:, :1]).all()
    assert (others[:, 0] != images[:, 0, 0, 0]).all()
    assert sorted(others[:, 0].tolist()) == sorted(images[:, 0, 0, 0].tolist())


def test_a_sheet_has_a_strip_for_every_leaf() -> None:
    images = np.repeat(np.array([0, 255], dtype=np.uint8), 3)[:, None, None, None] * np.ones((1, 4, 4, 3), np.uint8)
    shown: list[TreePath] = [(0, 0), (0, 1)]
    leaves = [path for path in shown for _ in range(3)]
    found = np.asarray(hypotheses_pictures.sheet(images, leaves, shown, (10, 3)))
    assert found.shape == (28, hypotheses_pictures.MARGIN + 30, 3)
    assert (found[0:8, hypotheses_pictures.MARGIN : hypotheses_pictures.MARGIN + 8] == 0).all()
    assert (found[14:22, hypotheses_pictures.MARGIN :] == 255).all()
