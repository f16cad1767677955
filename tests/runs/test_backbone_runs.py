"""Runs on the features of a pre-trained backbone, by the command line: the same commands work on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support import onnx_models
from support.picture_run import call, interrupt, refused, result_of, table
from support.small_backbone import COPIES, FLAGS, SIDE, fit_on_backbone, make_place

from converge_to_surprise.data import datasets
from converge_to_surprise.model.feature_recipe import FeatureRecipe
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.load import load_model

pytestmark = pytest.mark.subprocess  # an ONNX file is tried in a process of its own


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("backbone"))


@pytest.fixture(scope="module")
def run(place: Path) -> Path:
    return fit_on_backbone(place, place / "run", "--labels", "from-folders")


def test_colors_are_found_and_the_run_says_how(run: Path) -> None:
    result = result_of(run)
    assert result["nmi_both"] > 0.9
    assert result["verdict"]["strength"] in ("strong", "weak")
    assert any(level[0] == result["merge"]["n_clusters"] for level in result["merge"]["levels"])
    description = RunFolder.open(run).description()
    assert isinstance(description.recipe, FeatureRecipe)
    assert description.recipe.identity.features == 8
    assert description.recipe.copies == COPIES
    assert description.config.network.inputs == 8
    assert description.shape == (3, SIDE, SIDE)
    assert (run / "report.html").is_file()


def test_the_same_command_gives_the_same_labels_and_computes_no_feature(
    run: Path, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit_on_backbone(place, tmp_path / "again", "--no-report")
    assert "features of pictures" not in capsys.readouterr().out
    assert (tmp_path / "again" / "labels.csv").read_bytes() == (run / "labels.csv").read_bytes()


def test_predict_and_sort_label_pictures_as_the_run_did(run: Path, place: Path, tmp_path: Path) -> None:
    assert call("predict", run, place / "photos", "--out", tmp_path / "found.csv") == 0
    trained = {row["path"]: row["cluster"] for row in table(run / "labels.csv")}
    found = {row["path"]: row["cluster"] for row in table(tmp_path / "found.csv")}
    assert found == trained
    assert call("sort", run, place / "photos", "--into", tmp_path / "sorted", "--how", "copy") == 0
    assert sum(path.suffix == ".png" for path in (tmp_path / "sorted").rglob("*")) == 90


def test_evaluate_show_and_relabel_work(run: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("evaluate", run, place / "photos", "--labels", "from-folders") == 0
    assert call("show", run) == 0
    shown = capsys.readouterr().out
    assert "verdict" in shown
    assert call("report", run) == 0


def test_a_stopped_run_is_resumed_bit_for_bit(run: Path, place: Path, tmp_path: Path) -> None:
    part = RunFolder.open(fit_on_backbone(place, tmp_path / "part", "--labels", "from-folders", "--no-report"))
    interrupt(part, 30)
    assert call("resume", part.path, "--no-report") == 0
    assert part.labels.read_bytes() == RunFolder.open(run).labels.read_bytes()


def test_another_or_a_missing_backbone_is_one_clear_line(
    run: Path, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = place / "model.onnx"
    content = model.read_bytes()
    try:
        model.unlink()
        assert "model.onnx" in refused(capsys, "predict", run, place / "photos", "--out", tmp_path / "a.csv")
        onnx_models.save(onnx_models.vectors(seed=5), model)
        assert "sha256" in refused(capsys, "predict", run, place / "photos", "--out", tmp_path / "b.csv")
        assert call("show", run) == 0, "what needs no backbone works without it"
    finally:
        model.write_bytes(content)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--image-size", 32], "--image-size is 32; with --backbone give --backbone-size instead"),
        (["--copies", 0], "--copies is 0; it must be from 1 to 1000"),
    ],
)
def test_words_that_do_not_go_with_a_backbone(
    words: list[object], message: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["fit", place / "photos", "--out", tmp_path / "run", "--backbone", place / "model.onnx", *words]
    assert refused(capsys, *flags) == message


def test_sizes_and_copies_without_a_backbone_are_refused(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["fit", place / "photos", "--out", tmp_path / "run", "--copies", 3]
    assert refused(capsys, *given) == "--copies is 3, but there is no --backbone"


def test_color_pictures_without_a_backbone_get_advice(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = ["--schedule", "search=relaxed:1", "--threads", 1, "--no-report", "--relaxed.batch-size", 30]
    assert call("fit", place / "photos", "--out", tmp_path / "run", *quick) == 0
    shown = capsys.readouterr().out
    assert "--backbone" in shown
    assert shown.index("--backbone") < shown.index("step 1/")


def test_evolution_and_its_consolidation_run_on_stored_features(place: Path, tmp_path: Path) -> None:
    words = ["--search", "evolution", "--schedule", "explore=evolution:4:1@2", "--evolution.population", 4]
    fit_on_backbone(place, tmp_path / "run", *words, "--evolution.batch-size", 45, "--no-report")
    kinds = {record["kind"] for record in RunFolder.open(tmp_path / "run").records()}
    assert kinds == {"evolution", "consolidate"}


def test_a_hidden_layer_is_trained_and_saved(place: Path, tmp_path: Path) -> None:
    quick = ["--schedule", "search=relaxed:3", "merge=merge:1", "refine=refine:1", "--no-report"]
    fit_on_backbone(place, tmp_path / "run", *quick, "--network.hidden", 6)
    assert call("predict", tmp_path / "run", place / "photos", "--out", tmp_path / "found.csv") == 0
    assert len(table(tmp_path / "found.csv")) == 90


def test_arrays_of_gray_images_are_brought_to_the_backbone(place: Path, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 10, 12), dtype=np.uint8)
    np.save(tmp_path / "gray.npy", pixels)
    words = ["--schedule", "search=relaxed:2", "merge=merge:1", "--no-report", "--backbone", place / "model.onnx"]
    assert call("fit", tmp_path / "gray.npy", "--out", tmp_path / "run", *FLAGS, *words) == 0
    assert RunFolder.open(tmp_path / "run").description().shape == (1, 10, 12)
    assert call("predict", tmp_path / "run", tmp_path / "gray.npy", "--out", tmp_path / "found.csv") == 0
    assert torch.tensor([int(row["cluster"]) for row in table(tmp_path / "found.csv")]).shape == (60,)


@pytest.mark.slow
def test_the_exported_file_holds_the_backbone_and_labels_raw_pictures(run: Path, place: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    assert call("export", run, "--onnx", tmp_path / "whole.onnx") == 0
    model = load_model(run)
    session = onnxruntime.InferenceSession(tmp_path / "whole.onnx")
    assert [one.name for one in session.get_inputs()] == ["images"]
    names = [output.name for output in session.get_outputs()]
    images = datasets.load(str(place / "photos"), shape=model.shape).train.images
    for part in (slice(0, 30), slice(3, 4), slice(50, 90)):
        found = dict(zip(names, session.run(None, {"images": images[part].numpy()}), strict=True))
        wanted = model.interpret(model.run_all(images[part], ("probabilities", "features")))
        clear = (wanted.confidence - wanted.second_confidence).numpy() > 1e-2
        assert clear.mean() > 0.8
        assert (found["cluster"] == wanted.cluster.numpy())[clear].all()
        np.testing.assert_allclose(found["confidence"], wanted.confidence.numpy(), atol=2e-2)
        np.testing.assert_allclose(found["novelty"], wanted.novelty.numpy(), atol=5e-2)


def test_a_backbone_with_a_fixed_batch_is_not_exported(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fixed = onnx_models.save(onnx_models.vectors(shape=(4, 3, SIDE, SIDE)), tmp_path / "fixed.onnx")
    words = ["--schedule", "search=relaxed:1", "merge=merge:1", "--no-report", "--threads", 1, "--copies", 1]
    assert call("fit", place / "photos", "--out", tmp_path / "run", "--backbone", fixed, *words) == 0
    message = refused(capsys, "export", tmp_path / "run", "--onnx", tmp_path / "whole.onnx")
    assert "takes exactly 4 images at a time" in message
