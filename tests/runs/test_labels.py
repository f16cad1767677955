"""The table of labels and the saved outputs: written in pieces or compactly, read back as they were."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from converge_to_surprise.config import Config, Network
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.model.calibration import calibrate
from converge_to_surprise.model.cluster_model import UNCALIBRATED, CalibratedNetwork, Model
from converge_to_surprise.model.inference import Outputs
from converge_to_surprise.runs import labels
from converge_to_surprise.runs.labels import KEEP, SavedOutputs
from converge_to_surprise.search.restarts import Fitted


@pytest.fixture(scope="module")
def model(bars: Tensor) -> Model:
    config = Config(max_clusters=6, network=Network(width=2))
    network = random_network(config, 1, 1)
    return Model(
        config, (1, 8, 8), CalibratedNetwork(network, calibrate(network, bars, config), (20, 30, 10, 5, 55, 0))
    )


def fitted(model: Model, images: Tensor, tree: bool) -> Fitted:
    """As after a search; with a merge tree the images also have subclusters."""
    outputs = model.run_all(images, KEEP)
    subclusters = torch.arange(len(images)) % 7
    unmerged = Outputs(*(subclusters,) * 3, *(torch.empty(len(images), 0),) * 2, outputs.novelty)
    return Fitted(model, outputs, unmerged if tree else None)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("tree", [False, True])
def test_pieces_are_as_good_as_the_whole(
    tmp_path: Path, model: Model, bars: Tensor, named: bool, tree: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = fitted(model, bars, tree)
    names = [f"ä {number},\udcff.png" for number in range(len(bars))] if named else None
    written = []
    for size in (len(bars), 50, 7, 1):
        monkeypatch.setattr(labels, "ROWS", size)
        labels.write_labels(tmp_path / "labels.csv", found, names)
        written.append((tmp_path / "labels.csv").read_bytes())
    assert len(set(written)) == 1
    with (tmp_path / "labels.csv").open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        rows = list(csv.DictReader(file))
    prediction = model.interpret(found.outputs)
    assert [int(row["cluster"]) for row in rows] == prediction.cluster.tolist()
    assert [int(row["second"]) for row in rows] == prediction.second.tolist()
    assert [float(row["confidence"]) for row in rows] == pytest.approx(prediction.confidence.tolist(), abs=1e-6)
    assert [int(row["views_agree"]) for row in rows] == prediction.views_agree.int().tolist()
    assert [row["path" if named else "image"] for row in rows] == (names or [str(n) for n in range(len(bars))])
    subclusters = [-1] * len(bars) if found.unmerged is None else found.unmerged.winner.tolist()
    assert [int(row["subcluster"]) for row in rows] == subclusters


@pytest.mark.parametrize("tree", [False, True])
def test_saved_outputs_come_back(tmp_path: Path, model: Model, bars: Tensor, tree: bool) -> None:
    found = fitted(model, bars, tree)
    saved = SavedOutputs.of(found)
    saved.save(tmp_path / "outputs")
    loaded = SavedOutputs.load(tmp_path / "outputs", len(bars), 6)
    assert loaded is not None
    for name, value, expected in zip(SavedOutputs._fields, loaded, saved, strict=True):
        assert value.dtype == expected.dtype, name
        assert torch.equal(value, expected), name
    outputs = found.outputs
    for name in ("view_i", "view_j", "winner", "features"):
        assert torch.equal(getattr(loaded, name), getattr(outputs, name)), name
    assert torch.equal(loaded.top_outputs[:, 0], outputs.probabilities.argmax(1))
    assert torch.equal(loaded.top_probabilities, outputs.probabilities.sort(1, descending=True).values[:, :2])
    expected = torch.full((len(bars),), -1) if found.unmerged is None else found.unmerged.winner
    assert torch.equal(loaded.subcluster, expected)


def test_saved_outputs_of_a_network_with_one_output(tmp_path: Path, bars: Tensor) -> None:
    zeros, few = torch.zeros(5, dtype=torch.long), bars[:5]
    config = Config(max_clusters=2, network=Network(width=1))
    network = random_network(config, 1, 1)
    outputs = Outputs(zeros, zeros, zeros, torch.ones(5, 1), torch.zeros(5, 8).half(), torch.zeros(5))
    model = Model(config, (1, 8, 8), CalibratedNetwork(network, UNCALIBRATED, (5, 0)))
    SavedOutputs.of(Fitted(model, outputs, None)).save(tmp_path / "outputs")
    loaded = SavedOutputs.load(tmp_path / "outputs", len(few), 2)
    assert loaded is not None
    assert loaded.top_outputs.shape == loaded.top_probabilities.shape == (5, 1)


@pytest.fixture
def outputs_file(tmp_path: Path, model: Model, bars: Tensor) -> Path:
    SavedOutputs.of(fitted(model, bars, tree=True)).save(tmp_path / "outputs")
    return tmp_path / "outputs"


def test_saved_outputs_of_another_number_of_images_are_not_used(outputs_file: Path, bars: Tensor) -> None:
    assert SavedOutputs.load(outputs_file, len(bars), 6) is not None
    for images in (0, len(bars) - 1, len(bars) + 1):
        assert SavedOutputs.load(outputs_file, images, 6) is None


def test_saved_outputs_that_are_missing_or_damaged_are_not_used(outputs_file: Path, bars: Tensor) -> None:
    whole = outputs_file.read_bytes()
    for content in (b"", b"no file of tensors", whole[: len(whole) // 2], whole[:-1], bytes(len(whole))):
        outputs_file.write_bytes(content)
        assert SavedOutputs.load(outputs_file, len(bars), 6) is None
    outputs_file.unlink()
    assert SavedOutputs.load(outputs_file, len(bars), 6) is None
    outputs_file.mkdir()
    assert SavedOutputs.load(outputs_file, len(bars), 6) is None


@pytest.mark.parametrize(
    "how",
    ["missing", "unknown", "one column", "short", "scalar", "flat features", "fractions", "beyond the outputs",
     "negative", "no subcluster", "no probability", "not finite", "outputs without probabilities"],
)  # fmt: skip
def test_saved_outputs_with_other_tensors_are_not_used(outputs_file: Path, bars: Tensor, how: str) -> None:
    tensors = safetensors.torch.load_file(outputs_file)
    if how == "missing":
        del tensors["winner"]
    elif how == "unknown":
        tensors["more"] = tensors["winner"].clone()
    elif how == "one column":
        tensors["top_outputs"] = tensors["top_outputs"][:, 0].clone()
    elif how == "short":
        tensors["subcluster"] = tensors["subcluster"][:-1].clone()
    elif how == "scalar":
        tensors["winner"] = torch.tensor(3)
    elif how == "flat features":
        tensors["features"] = tensors["features"][:, 0].clone()
    elif how == "fractions":
        tensors["winner"] = tensors["winner"].float()
    elif how == "beyond the outputs":
        tensors["winner"][3] = 6
    elif how == "negative":
        tensors["top_outputs"][3, 1] = -1
    elif how == "no subcluster":
        tensors["subcluster"][0] = -2
    elif how == "no probability":
        tensors["top_probabilities"][5, 0] = 1.5
    elif how == "not finite":
        tensors["features"][7, 1] = torch.nan
    else:
        tensors["top_outputs"] = tensors["top_outputs"][:, :1].clone()
    outputs_file.write_bytes(safetensors.torch.save(tensors))
    assert SavedOutputs.load(outputs_file, len(bars), 6) is None
