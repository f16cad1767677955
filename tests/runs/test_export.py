"""Exported models label images as the run does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.estimators import Pooled
from support.outline_photos import SIDE, write_outlines
from support.picture_run import FLAGS, call, result_of, table

from converge_to_surprise import SurpriseClustering
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.runs.load import load_model


@pytest.mark.slow
def test_the_exported_file_says_the_same_on_real_pictures(run: Path, pictures: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    assert call("export", run, "--onnx", tmp_path / "model.onnx") == 0
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    paths = sorted(path for path in pictures.rglob("*.png") if path.stat().st_size)
    images = np.stack([np.asarray(Image.open(path)) for path in paths])[:, None]
    model = load_model(run)
    for part in (slice(0, 60), slice(5, 6), slice(10, 27)):
        names = [output.name for output in session.get_outputs()]
        found = dict(zip(names, session.run(None, {"images": images[part]}), strict=True))
        (wanted,) = model.predict(torch.from_numpy(images[part]))
        # Where two clusters are equally likely the last bit decides, and runtimes round it differently.
        clear = (wanted.confidence - wanted.second_confidence).abs().numpy() > 1e-4
        assert clear.mean() > 0.8
        assert (found["cluster"] == wanted.cluster.numpy())[clear].all()
        np.testing.assert_allclose(found["confidence"], wanted.confidence.numpy(), atol=1e-4)
        np.testing.assert_allclose(found["embedding"], wanted.embedding.numpy(), atol=1e-4)
        np.testing.assert_allclose(found["novelty"], wanted.novelty.numpy(), atol=2e-3)
        assert (found["views_agree"] == wanted.views_agree.numpy())[clear].all()
    blank = np.zeros((1, 1, 8, 8), dtype=np.uint8)
    assert session.run(["novelty"], {"images": blank})[0] > 0.95
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["clusters"]) == [str(k) for k in range(model.n_clusters)]
    assert json.loads(about["shape"]) == [1, 8, 8]


@pytest.mark.slow
def test_a_backbone_is_exported_with_its_heads(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    images, _ = striped_images(120)
    torch.manual_seed(0)
    settings = {
        "views": {"upsample": 1},
        "schedule": ["search=relaxed:12", "merge=merge:1", "refine=refine:3"],
        "relaxed": {"heads": 2, "batch_size": 20},
        "n_init": 1,
    }
    estimator = SurpriseClustering(
        backbone=Pooled(), settings=settings, random_state=0, n_threads=1, max_clusters=12, n_clusters=4
    ).fit(images)
    assert estimator.n_clusters_ > 1
    estimator.export_onnx(tmp_path / "own.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "own.onnx")
    cluster, confidence = session.run(["cluster", "confidence"], {"images": images.numpy()})
    clear = np.abs(np.diff(np.sort(estimator.predict_proba(images))[:, -2:]))[:, 0] > 1e-4
    assert clear.mean() > 0.8
    assert (cluster == estimator.labels_)[clear].all()
    np.testing.assert_allclose(confidence, estimator.probabilities_, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3])
def test_enlarged_views_and_color_are_exported_too(channels: int, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    images = striped_images(40)[0].repeat(1, channels, 1, 1)
    np.save(tmp_path / "images.npy", images.numpy())
    flags = [*FLAGS, "--views.upsample", 2, "--kind", "gray" if channels == 3 else "glyph"]
    assert call("fit", tmp_path / "images.npy", "--out", tmp_path / "run", *flags) == 0
    assert call("export", tmp_path / "run", "--onnx", tmp_path / "model.onnx") == 0
    assert load_model(tmp_path / "run").config.views.background == ("keep" if channels == 3 else "remove")
    found = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(["cluster"], {"images": images.numpy()})[0]
    assert found.tolist() == [int(row["cluster"]) for row in table(tmp_path / "run" / "labels.csv")]


@pytest.mark.slow
def test_a_run_on_edges_predicts_and_exports(tmp_path: Path) -> None:
    """Photographs of things in any color and light: all steps work on their outlines, also in the exported file."""
    onnxruntime = pytest.importorskip("onnxruntime")
    photos = write_outlines(tmp_path / "photos")
    run = tmp_path / "run"
    assert call("fit", photos, "--out", run, *FLAGS, "--kind", "object", "--labels", "from-folders") == 0
    model = load_model(run)
    assert model.config.views.edges
    assert model.shape == (3, SIDE, SIDE)
    assert result_of(run)["nmi_both"] > 0.9
    trained = {row["path"]: row["cluster"] for row in table(run / "labels.csv")}
    assert call("predict", run, photos, "--out", tmp_path / "found.csv") == 0
    assert {row["path"]: row["cluster"] for row in table(tmp_path / "found.csv")} == trained
    assert call("export", run, "--onnx", tmp_path / "edges.onnx") == 0
    images = np.stack([np.asarray(Image.open(photos / path)).transpose(2, 0, 1) for path in trained])
    session = onnxruntime.InferenceSession(tmp_path / "edges.onnx")
    (wanted,) = model.predict(torch.from_numpy(images))
    for part in (slice(0, 60), slice(7, 8)):
        cluster, confidence = session.run(["cluster", "confidence"], {"images": images[part]})
        assert cluster.tolist() == [int(trained[path]) for path in list(trained)[part]]
        np.testing.assert_allclose(confidence, wanted.confidence[part].numpy(), atol=1e-4)
    inverted = session.run(["cluster"], {"images": 255 - images})[0]
    assert (inverted == wanted.cluster.numpy()).mean() > 0.9, "edges do not tell light from dark"
