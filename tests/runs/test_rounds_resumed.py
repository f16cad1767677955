"""Interrupted rounds of hypotheses continue bit for bit: after every search, on pixels and on a feature bank."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.picture_run import FLAGS, call, make_pictures
from support.small_backbone import FLAGS as BACKBONE_FLAGS
from support.small_backbone import make_place

from converge_to_surprise.model import model_file
from converge_to_surprise.model.hierarchy import Hierarchy
from converge_to_surprise.runs import deepening
from converge_to_surprise.search import hypotheses, node_heads
from converge_to_surprise.search.hypotheses import RoundRequest, Searched, deepen

EVOLUTION = ["--schedule", "explore=evolution:4:1@2", "--evolution.population", 4, "--evolution.batch-size", 20]
QUICK = ["--schedule", "search=relaxed:6", "merge=merge:1", "refine=refine:2"]
PIXELS = [word for word in FLAGS if word not in FLAGS[: FLAGS.index("--network.width")]]
"""As for other small runs, without their schedule."""
SEARCHES: dict[str, tuple[str, list[object]]] = {
    "relaxed on pixels": ("photos", [*PIXELS, *QUICK]),
    "evolution on pixels": ("photos", [*PIXELS, "--search", "evolution", *EVOLUTION]),
    "relaxed on a bank": ("bank", [*QUICK]),
    "evolution on a bank": ("bank", ["--search", "evolution", *EVOLUTION]),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_place(tmp_path_factory.mktemp("resumed"))
    make_pictures(folder / "striped")
    return folder


@pytest.fixture
def every_split(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Small rounds that accept every split, so that there are several; they can be interrupted after some of them."""
    for name, value in (("LEVEL", 1.0), ("MIN_BOUNDARY", -1.0), ("STORED_BOUNDARY", -1.0), ("HOLDS", -1.0)):
        monkeypatch.setattr(hypotheses, name, value)
    monkeypatch.setattr(hypotheses, "MIN_SEARCHED", 8)
    monkeypatch.setattr(hypotheses, "MIN_HELD_OUT", 1)
    monkeypatch.setattr(node_heads, "IMITATING", 5)
    monkeypatch.setattr(node_heads, "SEARCHING", 10)

    def stop_after(rounds: int) -> None:
        def some(searched: Searched, request: RoundRequest) -> Iterator[Hierarchy]:
            for number, tree in enumerate(deepen(searched, request)):
                if number == rounds:
                    raise KeyboardInterrupt
                yield tree

        monkeypatch.setattr(deepening, "deepen", some)

    return stop_after


def resume(run: Path) -> int:
    return call("resume", run, "--no-report")


def tree_of(run: Path) -> Hierarchy:
    return model_file.load(run / "model.safetensors")[0].hierarchy or Hierarchy()


def table_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "result.json").read_text(encoding="utf-8"))["hypotheses"]
    return found


@pytest.mark.parametrize("search", SEARCHES)
def test_any_round_is_resumed_bit_for_bit(
    search: str, place: Path, tmp_path: Path, every_split: Callable[[int], None]
) -> None:
    kind, words = SEARCHES[search]
    source: list[object] = [place / "striped"]
    if kind == "bank":
        source = [place / "photos", "--backbone", place / "model.onnx", *BACKBONE_FLAGS, "--no-report"]
    begun, whole = tmp_path / "begun", tmp_path / "whole"
    every_split(0)
    with pytest.raises(KeyboardInterrupt):
        call("fit", *source, "--out", begun, "--rounds", "auto", *words)
    shutil.copytree(begun, whole)
    every_split(100)
    assert resume(whole) == 0
    wanted = tree_of(whole)
    assert wanted.rounds >= 2
    assert wanted.splits
    assert wanted.finished
    for rounds in range(1, wanted.rounds):
        part = tmp_path / f"part {rounds}"
        shutil.copytree(begun, part)
        every_split(rounds)
        with pytest.raises(KeyboardInterrupt):
            resume(part)
        assert tree_of(part).rounds == rounds
        every_split(100)
        assert resume(part) == 0
        found = tree_of(part)
        assert found.nodes == wanted.nodes
        for one, other in zip(found.splits, wanted.splits, strict=True):
            assert torch.equal(one.weight, other.weight)
            assert torch.equal(one.bias, other.bias)
        assert table_of(part) == table_of(whole)
        assert (part / "labels.csv").read_bytes() == (whole / "labels.csv").read_bytes()
