"""The benchmark of folders of pictures: what the rivals get, and the rows and the table of its runs."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import photos
import pytest
import readme_table
import rival_process
import rows
from support.small_backbone import SIDE, make_place

from converge_to_surprise.config import Views
from converge_to_surprise.core.views import make_views, to_float
from converge_to_surprise.data import datasets
from converge_to_surprise.model.pretrained import PreprocessFlags, open_backbone

pytestmark = pytest.mark.subprocess  # an ONNX file is tried in a process of its own


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("photos-benchmark"))


def options(place: Path, folder: Path) -> Namespace:
    return Namespace(backbone=str(place / "model.onnx"), backbone_size=SIDE, threads=1, runs=folder)


def test_rivals_get_the_features_of_both_views_as_unit_vectors(place: Path) -> None:
    features, classes = photos.features_and_classes(str(place / "photos"), str(place / "model.onnx"), SIDE, 1)
    images = datasets.load(str(place / "photos"), shape=(3, SIDE, SIDE)).train.images
    backbone = open_backbone(str(place / "model.onnx"), PreprocessFlags(size=SIDE))
    wanted = sum(backbone(view) for view in make_views(to_float(images), Views(fill_masked=True))).numpy()
    np.testing.assert_allclose(features, wanted / np.linalg.norm(wanted, axis=1, keepdims=True), atol=2e-3)
    assert np.bincount(classes).tolist() == [30, 30, 30]


def test_every_method_has_a_row_with_its_time(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[rival_process.Request] = []

    class Process(rival_process.RivalProcess):
        def fit(self, request: rival_process.Request, vectors: rival_process.Vectors) -> rival_process.Found:
            asked.append(request)
            return rival_process.Found(np.arange(len(vectors)) % 2 - 1, 1.5, 1.25, "evoc 9")

    def fit(source: str, run: Path, words: list[object]) -> dict[str, Any]:
        return {"n_clusters": 4, "acc": 0.5, "nmi": 0.5, "ari": 0.5, "seconds": 9.0, "bank": "cached"}

    monkeypatch.setattr(photos, "ours", fit)
    methods = ("k-means, K given", "evoc", "ours")
    found = [photos.run_one(str(place / "photos"), name, 3, Process(1), options(place, tmp_path)) for name in methods]
    assert [(row["data"], row["method"], row["seed"]) for row in found] == [("photos", name, 3) for name in methods]
    assert asked == [rival_process.Request("evoc", 3, "cosine")]
    means, evoc, _ = found
    assert means["acc"] == 1.0
    assert means["n_clusters"] == 3
    assert (evoc["n_clusters"], evoc["noise"], evoc["seconds"], evoc["versions"]) == (1, 0.5, 1.5, "evoc 9")
    rows.append_rows(tmp_path / "photos.csv", found)
    lines = readme_table.photos(tmp_path).splitlines()[2:]
    titles = [line.split("|")[2].strip() for line in lines]
    assert titles == ["converge-to-surprise", "EVoC", "k-means, K given"]


def test_rivals_run_where_the_program_is_not_installed() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import rival_process; print(*sys.modules)"
    words = [sys.executable, "-c", code, str(Path(rival_process.__file__).parent)]
    loaded = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    assert "rival_process" in loaded
    assert not {"converge_to_surprise", "filelock", "torch"} & set(loaded)
