"""The estimator with a pre-trained backbone that is named by a string: as the command line, and with its runs."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from support import onnx_models
from support.picture_run import table
from support.small_backbone import COPIES, SIDE, fit_on_backbone, make_place
from torch import nn

from converge_to_surprise import SurpriseClustering

QUICK: dict[str, Any] = {
    "max_clusters": 12,
    "backbone_size": SIDE,
    "copies": COPIES,
    "n_threads": 1,
    "random_state": 0,
    "settings": {
        "schedule": ["search=relaxed:20", "merge=merge:1", "refine=refine:3"],
        "relaxed": {"heads": 3},
        "network": {"hidden": 6},
    },
}
SCHEDULE = ["--schedule", "search=relaxed:20", "merge=merge:1", "refine=refine:3", "--network.hidden", 6]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("named"))


@pytest.fixture(scope="module")
def run(place: Path) -> Path:
    return fit_on_backbone(place, place / "run", *SCHEDULE, "--no-report")


def fitted(place: Path, **params: Any) -> SurpriseClustering:
    return SurpriseClustering(**QUICK | {"backbone": str(place / "model.onnx")} | params).fit(place / "photos")


@pytest.fixture(scope="module")
def model(place: Path) -> SurpriseClustering:
    return fitted(place)


def test_the_result_is_that_of_the_command_line(model: SurpriseClustering, run: Path) -> None:
    assert model.labels_.tolist() == [int(row["cluster"]) for row in table(run / "labels.csv")]
    assert model.n_clusters_ > 1
    assert model.model_.encoder is not None
    assert model.model_.final.network.head.in_features == 6, "the hidden layer"


def test_everything_works_on_named_backbones(model: SurpriseClustering, place: Path, tmp_path: Path) -> None:
    photos = place / "photos"
    assert (model.predict(photos) == model.labels_).all()
    np.testing.assert_allclose(model.confidence(photos), model.probabilities_, atol=1e-5)
    assert model.transform(photos).shape == (90, 6)
    assert model.score(photos) > 1
    assert model.cut(2).n_clusters_ == 2
    model.save(tmp_path / "model.safetensors")
    for other in (SurpriseClustering.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))):
        assert other.backbone == model.backbone
        assert (other.predict(photos) == model.labels_).all()


def test_a_run_is_loaded_and_its_parameters_make_it_again(run: Path, place: Path) -> None:
    loaded = SurpriseClustering.load(run)
    assert loaded.backbone == str(place / "model.onnx")
    assert (loaded.backbone_size, loaded.copies) == (SIDE, COPIES)
    assert (loaded.predict(place / "photos") == loaded.labels_).all()
    assert (clone(loaded).fit(place / "photos").labels_ == loaded.labels_).all()


def test_a_backbone_that_moved_is_given_to_load(model: SurpriseClustering, place: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "model.safetensors")
    file = place / "model.onnx"
    content = file.read_bytes()
    (tmp_path / "moved.onnx").write_bytes(content)
    onnx_models.save(onnx_models.vectors(seed=5), tmp_path / "other.onnx")
    try:
        file.unlink()
        with pytest.raises(ValueError, match=r"model\.onnx"):
            SurpriseClustering.load(tmp_path / "model.safetensors").predict(place / "photos")
        moved = SurpriseClustering.load(tmp_path / "model.safetensors", backbone=str(tmp_path / "moved.onnx"))
        assert (moved.predict(place / "photos") == model.labels_).all()
        with pytest.raises(ValueError, match="sha256"):
            SurpriseClustering.load(tmp_path / "model.safetensors", backbone=str(tmp_path / "other.onnx"))
        with pytest.raises(ValueError, match="it takes no module"):
            SurpriseClustering.load(tmp_path / "model.safetensors", backbone=nn.Identity())
    finally:
        file.write_bytes(content)


@pytest.mark.slow
def test_the_exported_file_takes_raw_pictures(model: SurpriseClustering, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model.export_onnx(tmp_path / "whole.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "whole.onnx")
    images = np.random.default_rng(0).integers(0, 256, (5, 3, SIDE, SIDE), dtype=np.uint8)
    assert session.run(["cluster"], {"images": images})[0].tolist() == model.predict(images).tolist()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"backbone": "nothing"}, "there is no backbone 'nothing'; give one of"),
        ({"backbone": "missing.onnx"}, "missing.onnx"),
        ({"backbone": 3}, "backbone is 3; it must be a torch.nn.Module, an ONNX file"),
        ({"image_size": 32}, "image_size is 32; with a backbone that is named give backbone_size instead"),
        ({"copies": 0}, "copies is 0; it must be from 1 to 1000"),
        ({"backbone_size": 4}, "backbone_size is 4; it must be an integer from 8 to 1024"),
        ({"backbone": None}, "backbone_size is 16, but there is no backbone that is named by a string"),
    ],
)
def test_wrong_parameters_are_one_line(params: dict[str, Any], message: str, place: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        fitted(place, **params)
    assert "\n" not in str(error.value)
