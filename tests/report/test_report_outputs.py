"""The page of a finished run is made from its saved outputs: no network runs, and nothing on the page differs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from support.digit_run import IMAGES, make_run, write_source

from converge_to_surprise import cli
from converge_to_surprise.data import datasets
from converge_to_surprise.model import inference
from converge_to_surprise.model.cluster_model import Model
from converge_to_surprise.report.content import gather, open_pictures
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.load import load_model


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("outputs")
    return make_run(folder / "run", write_source(folder))


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("the network runs")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((inference, "run"), (inference, "map_views"), (Model, "run"), (Model, "run_all")):
        monkeypatch.setattr(owner, name, refuse)


def page_data(path: Path) -> dict[str, Any]:
    """The content of a page as its program reads it."""
    text = re.search(r'<script id="content" type="application/json">(.*?)</script>', path.read_text("utf-8"), re.S)
    assert text is not None
    found: dict[str, Any] = json.loads(text[1])
    return found


def report(run: RunFolder, out: Path) -> dict[str, Any]:
    assert cli.main(["report", str(run.path), "--out", str(out)]) == 0
    return page_data(out)


@pytest.fixture(scope="module")
def labeled_again(run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The page of the run without its saved outputs."""
    aside = run.outputs.rename(run.path.with_name("aside"))
    try:
        return report(run, tmp_path_factory.mktemp("page") / "report.html")
    finally:
        aside.rename(run.outputs)


@pytest.mark.usefixtures("no_network")
def test_no_network_runs_and_the_page_is_the_same(
    run: RunFolder, labeled_again: dict[str, Any], tmp_path: Path
) -> None:
    found = report(run, tmp_path / "report.html")
    assert found["clustering"]["images"]["total"] == IMAGES
    assert found["clustering"]["map"] == labeled_again["clustering"]["map"]
    for name, value in labeled_again["clustering"]["images"].items():
        assert found["clustering"]["images"][name] == value, name
    assert found == labeled_again


@pytest.mark.usefixtures("no_network")
def test_without_saved_outputs_the_network_must_run(run: RunFolder) -> None:
    """Otherwise the test above would prove nothing."""
    aside = run.outputs.rename(run.path.with_name("aside"))
    try:
        with pytest.raises(AssertionError, match="the network runs"):
            gather(run, open_pictures(run))
    finally:
        aside.rename(run.outputs)


def test_damaged_outputs_are_computed_again(run: RunFolder, labeled_again: dict[str, Any], tmp_path: Path) -> None:
    whole = run.outputs.read_bytes()
    try:
        for content in (whole[:-100], b"", b"no file of tensors"):
            run.outputs.write_bytes(content)
            assert report(run, tmp_path / "report.html") == labeled_again
    finally:
        run.outputs.write_bytes(whole)


def test_of_other_images_the_saved_outputs_are_not_used(run: RunFolder, tmp_path: Path) -> None:
    pixels = datasets.load(run.description().source).train.images.flip(0)
    np.savez(tmp_path / "other.npz", images=pixels.numpy())
    shown = gather(run, open_pictures(run, str(tmp_path / "other.npz")))["clustering"]
    expected = torch.cat([found.cluster for found in load_model(run.path).predict(pixels)])
    sizes = expected.bincount().tolist()
    assert [sum(cell[3] for cell in shown["cells"] if cell[0] == number) for number in range(len(sizes))] == sizes
    aside = run.outputs.rename(run.path.with_name("aside"))
    try:
        assert gather(run, open_pictures(run, str(tmp_path / "other.npz")))["clustering"] == shown
    finally:
        aside.rename(run.outputs)
