"""Predicting and exporting, on real folders of pictures, in real processes where it matters."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.pictures import HEIC_HEAD
from torch import Tensor

from converge_to_surprise import cli
from converge_to_surprise.data import formats
from converge_to_surprise.data.source import Source
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model import model_file as modelfile
from converge_to_surprise.runs import predict as predicting
from converge_to_surprise.runs.load import load_model

SCHEDULE = ["--schedule", "search=relaxed:24", "merge=merge:1", "refine=refine:6"]
NETWORK = ["--network.width", "4", "--network.n_outputs", "12", "--views.upsample", "1"]
FLAGS = [*SCHEDULE, *NETWORK, "--threads", "1", "--no-report", "--relaxed.heads", "2", "--relaxed.batch-size", "20"]
FLAGS += ["--n-init", "1"]


def call(*words: object) -> int:
    return cli.main([str(word) for word in words])


def write_pictures(images: Tensor, labels: Any, folder: Path) -> None:
    """One PNG per image in a folder per class, names in an order that is not that of the array."""
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = folder / f"class {label}" / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(path)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTS_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    write_pictures(*striped_images(60), folder)
    (folder / "class 0" / "empty.png").touch()
    (folder / "class 1" / "text.jpg").write_text("not a picture")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CTS_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        assert call("fit", pictures, "--out", out, *FLAGS) == 0
    return out


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    assert call(*words) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("cts: ")
    assert "Traceback" not in shown
    return shown.removeprefix("cts: ").strip()


def test_the_list_of_bad_files_comes_back(run: Path, tmp_path: Path) -> None:
    """A kill may come between config.json, from where on there is a run, and the list."""
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    (copy / "quarantine.csv").unlink()
    assert call("resume", copy, "--no-report") == 0
    assert (copy / "quarantine.csv").read_bytes() == (run / "quarantine.csv").read_bytes()


def test_fit_of_a_folder(run: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = table(run / "labels.csv")
    assert len(rows) == 60
    assert [row["path"] for row in rows] == sorted(row["path"] for row in rows)
    assert {entry["file"] for entry in table(run / "quarantine.csv")} == {"class 0/empty.png", "class 1/text.jpg"}
    assert json.loads((run / "result.json").read_text())["acc"] is None  # nobody asked for the folders' names
    assert json.loads((run / "config.json").read_text())["shape"] == [1, 8, 8]
    capsys.readouterr()
    assert call("evaluate", run, pictures, "--json") == 0
    assert 0 < json.loads(capsys.readouterr().out)["acc"] <= 1
    assert call("evaluate", run, pictures, "--labels", "none", "--json") == 0
    assert json.loads(capsys.readouterr().out)["acc"] is None


LINE = "read 60 of 63 files; skipped 3: 1 empty, 1 HEIC (needs pillow-heif), 1 not a picture; see "


@pytest.fixture
def more(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pictures and one that is not read, in a folder of their own."""
    monkeypatch.setattr(formats, "heif_version", lambda: None)
    folder = Path(shutil.copytree(pictures, tmp_path / "more"))
    (folder / "class 0" / "phone.heic").write_bytes(HEIC_HEAD)
    return folder


def skipped(path: Path) -> dict[str, str]:
    return {entry["file"]: entry["kind"] for entry in table(path)}


def test_fit_tells_what_was_skipped(more: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    quick = ["--schedule", "search=relaxed:1", *FLAGS[len(SCHEDULE) :]]
    assert call("fit", more, "--out", out, *quick) == 0
    assert capsys.readouterr().out.count(f"{LINE}{out / 'quarantine.csv'}\n") == 2  # at the start and at the end
    assert skipped(out / "quarantine.csv") == {
        "class 0/empty.png": "empty",
        "class 0/phone.heic": "HEIC (needs pillow-heif)",
        "class 1/text.jpg": "not a picture",
    }
    assert "pip install 'converge-to-surprise[photos]'" in (out / "quarantine.csv").read_text()
    for name in skipped(out / "quarantine.csv"):
        (more / name).unlink()
    assert call("fit", more, "--out", out, "--force", *quick) == 0
    assert capsys.readouterr().out.count("read 60 files\n") == 1
    np.save(tmp_path / "array.npy", striped_images(60)[0].numpy())
    assert call("fit", tmp_path / "array.npy", "--out", out, "--force", *quick) == 0
    assert " files" not in capsys.readouterr().out


def test_predict_and_sort_tell_what_was_skipped(
    run: Path, more: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert call("predict", run, more, "--out", tmp_path / "out.csv") == 0
    assert f"{LINE}{tmp_path / 'out.quarantine.csv'}\n" in capsys.readouterr().out
    assert call("sort", run, more, "--into", tmp_path / "sorted") == 0
    assert f"{LINE}{tmp_path / 'sorted' / 'quarantine.csv'}\n" in capsys.readouterr().out
    assert (tmp_path / "sorted" / "quarantine.csv").read_bytes() == (tmp_path / "out.quarantine.csv").read_bytes()
    for name in skipped(tmp_path / "out.quarantine.csv"):
        (more / name).unlink()
    assert call("predict", run, more, "--out", tmp_path / "out.csv", "--force") == 0
    assert "read 60 files\n" in capsys.readouterr().out
    assert not (tmp_path / "out.quarantine.csv").exists()
    assert call("sort", run, more, "--into", tmp_path / "again") == 0
    assert "read 60 files\n" in capsys.readouterr().out
    assert not (tmp_path / "again" / "quarantine.csv").exists()


def test_a_prediction_begins_again_once_more_can_be_read(more: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source.open(str(more), (1, 8, 8), "train", None)
    before = source.identity
    assert source.identity == before
    monkeypatch.setattr(formats, "heif_version", lambda: "1.8.1")
    assert source.identity != before


def test_a_folder_gives_the_clusters_of_its_array(run: Path, pictures: Path, tmp_path: Path) -> None:
    paths = sorted(path for path in pictures.rglob("*.png") if path.stat().st_size)
    np.save(tmp_path / "array.npy", np.stack([np.asarray(Image.open(path)) for path in paths]))
    assert call("fit", tmp_path / "array.npy", "--out", tmp_path / "run", *FLAGS) == 0
    kept = ("cluster", "confidence", "second", "views_agree", "part")
    from_array, from_files = (
        [[row[name] for name in kept] for row in table(folder / "labels.csv")] for folder in (tmp_path / "run", run)
    )
    assert from_array == from_files


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predicting_the_training_set_gives_its_labels(run: Path, pictures: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"labels.{ending}"
    assert call("predict", run, pictures, "--out", out) == 0
    names = ("path", "cluster", "confidence", "second", "second_confidence", "views_agree")
    wanted = [{name: row[name] for name in names} for row in table(run / "labels.csv")]
    if ending == "csv":
        assert table(out) == wanted
    else:
        import pyarrow.parquet

        found = pyarrow.parquet.read_table(out).to_pylist()
        assert [row["path"] for row in found] == [row["path"] for row in wanted]
        assert [row["cluster"] for row in found] == [int(row["cluster"]) for row in wanted]
        assert [row["confidence"] for row in found] == [float(row["confidence"]) for row in wanted]
        assert [row["views_agree"] for row in found] == [row["views_agree"] == "1" for row in wanted]
    assert len(table(tmp_path / "labels.quarantine.csv")) == 2
    assert {path.name for path in tmp_path.iterdir()} == {out.name, "labels.quarantine.csv"}


def test_the_table_as_asked_for(run: Path, pictures: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.csv"
    assert call("predict", run, pictures, "--out", plain) == 0
    sure = np.unique([float(row["confidence"]) for row in table(plain)])
    boundary = float(sure[len(sure) // 2 - 1 : len(sure) // 2 + 1].mean())
    out = tmp_path / "out.csv"
    assert call("predict", run, pictures, "--out", out, "--embedding", "--min-confidence", boundary) == 0
    for row, before in zip(table(out), table(plain), strict=True):
        assert row["cluster"] == (before["cluster"] if float(before["confidence"]) >= boundary else "-1")
        assert np.isfinite([float(row[f"e{k}"]) for k in range(32)]).all()
        assert "e32" not in row
    assert call("predict", run, pictures, "--out", out, "--n-clusters", 1, "--force") == 0
    assert {row["cluster"] for row in table(out)} == {"0"}


def test_a_model_file_is_enough(run: Path, pictures: Path, tmp_path: Path) -> None:
    shutil.copy(run / "model.safetensors", tmp_path / "model.safetensors")
    assert call("predict", tmp_path / "model.safetensors", pictures, "--out", tmp_path / "a.csv") == 0
    assert call("predict", run, pictures, "--out", tmp_path / "b.csv") == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_a_prediction_that_was_killed_goes_on(run: Path, pictures: Path, tmp_path: Path) -> None:
    assert call("predict", run, pictures, "--out", tmp_path / "whole.csv") == 0
    program = """
import os, signal, sys
from converge_to_surprise import cli
from converge_to_surprise.data import pictures
from converge_to_surprise.runs import predict
predict.SAVE_SECONDS = 0
pictures.CHUNK = pictures.BLOCK = 8
save = predict.write_json
def last(path, state):
    save(path, state)
    if state["done"] >= 24:
        with open(str(path).removesuffix(".json"), "a") as file:
            file.write("half a ro")
        os.kill(os.getpid(), signal.SIGKILL)
predict.write_json = last
cli.main(sys.argv[1:])
"""
    words = ["predict", str(run), str(pictures), "--out", str(tmp_path / "out.csv")]
    killed = subprocess.run([sys.executable, "-c", program, *words], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "out.csv").exists()
    assert json.loads((tmp_path / "out.csv.part.json").read_text())["done"] == 24
    model, source = load_model(run), Source.open(str(pictures), (1, 8, 8), "train", None)
    seen: list[int] = []
    chunks = Source.chunks

    def watched(self: Source, rows: range, threads: int = 0) -> Any:
        seen.append(rows.start)
        return chunks(self, rows, threads)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Source, "chunks", watched)
        assert call(*words) == 0
        assert seen == [24]
        assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
        assert not list(tmp_path.glob("*.part*"))
        # Another job does not go on where this one was.
        for path in ("out.csv.part", "out.csv.part.quarantine"):
            (tmp_path / path).write_bytes(b"x" * 10_000)
        state = {"job": "other", "done": 24, "images": 24, "quarantined": 0, "table": 10, "aside": 10}
        (tmp_path / "out.csv.part.json").write_text(json.dumps(state))
        predicting.predict(model, source, tmp_path / "out.csv", predicting.Wishes(), "x", lambda done, total: None)
        assert seen == [24, 0]
        assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_large_arrays_are_brought_to_the_size_of_the_run(run: Path, pictures: Path, tmp_path: Path) -> None:
    """As the same pictures in files are; and sorted as they came."""
    (tmp_path / "in").mkdir()
    paths = sorted(path for path in pictures.rglob("*.png") if path.stat().st_size)[:20]
    large = np.stack([np.asarray(Image.open(path).resize((100, 100))) for path in paths])
    for number, image in enumerate(large):
        Image.fromarray(image).save(tmp_path / "in" / f"{number:02d}.png")
    np.save(tmp_path / "array.npy", large)
    for source, out in (("in", "files.csv"), ("array.npy", "array.csv")):
        assert call("predict", run, tmp_path / source, "--out", tmp_path / out) == 0
    rows = [[list(row.values())[1:] for row in table(tmp_path / out)] for out in ("files.csv", "array.csv")]
    assert rows[0] == rows[1]
    assert call("sort", run, tmp_path / "array.npy", "--into", tmp_path / "sorted") == 0
    found = {int(path.stem): np.asarray(Image.open(path)) for path in (tmp_path / "sorted").rglob("*.png")}
    assert all((found[number] == image).all() for number, image in enumerate(large))


def test_a_run_of_a_large_array_is_that_of_its_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large = striped_images(40, side=60)[0]
    np.save(tmp_path / "array.npy", large.numpy())
    write_pictures(large, ["x"] * 40, tmp_path / "in")
    for source in ("in", "array.npy"):
        words = ["--image-size", 16, *FLAGS, "--schedule", "search=relaxed:3", "merge=merge:1", "refine=refine:1"]
        assert call("fit", tmp_path / source, "--out", tmp_path / f"run {source}", *words) == 0
    about = [json.loads((tmp_path / f"run {source}" / "config.json").read_text()) for source in ("in", "array.npy")]
    assert about[0]["shape"] == about[1]["shape"] == [1, 16, 16]
    assert about[0]["fingerprint"] == about[1]["fingerprint"]
    own = tmp_path / "run array.npy"
    for words in (["resume", own], ["evaluate", own, tmp_path / "array.npy"], ["report", own]):
        assert call(*words) == 0


@pytest.mark.parametrize("value", [0, -1, 2, 5000])
def test_sizes_that_make_no_sense(value: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for source in ("digits", tmp_path):
        text = refused(capsys, "fit", source, "--out", tmp_path / "run", "--image-size", value)
        assert text == f"--image-size is {value}; it must be a whole number from 8 to 1024"


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
        assert (found["views_agree"] == wanted.agreed.numpy())[clear].all()
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["clusters"]) == [str(k) for k in range(model.clusters)]
    assert json.loads(about["shape"]) == [1, 8, 8]


def test_a_backbone_is_exported_with_its_heads(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from test_estimator import Pooled, quick

    images, _ = striped_images(120)
    torch.manual_seed(0)
    estimator = quick(backbone=Pooled()).fit(images)
    assert estimator.n_clusters_ > 1
    estimator.export_onnx(tmp_path / "own.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "own.onnx")
    cluster, confidence = session.run(["cluster", "confidence"], {"images": images.numpy()})
    clear = np.abs(np.diff(np.sort(estimator.predict_proba(images))[:, -2:]))[:, 0] > 1e-4
    assert clear.mean() > 0.8
    assert (cluster == estimator.labels_)[clear].all()
    np.testing.assert_allclose(confidence, estimator.probabilities_, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 3])
def test_enlarged_views_and_color_are_exported_too(channels: int, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    images = striped_images(40)[0].repeat(1, channels, 1, 1)
    np.save(tmp_path / "images.npy", images.numpy())
    assert call("fit", tmp_path / "images.npy", "--out", tmp_path / "run", *FLAGS, "--views.upsample", 2) == 0
    assert call("export", tmp_path / "run", "--onnx", tmp_path / "model.onnx") == 0
    assert load_model(tmp_path / "run").config.views.background == ("kept" if channels == 3 else "removed")
    found = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(["cluster"], {"images": images.numpy()})[0]
    assert found.tolist() == [int(row["cluster"]) for row in table(tmp_path / "run" / "labels.csv")]


def test_names_given_by_a_person_are_used(run: Path, pictures: Path, tmp_path: Path) -> None:
    own = tmp_path / "run"
    shutil.copytree(run, own)
    count = load_model(run).clusters
    assert count >= 2
    identity = json.loads(next((own / "checkpoints").glob("*.json")).read_text())["run"]
    clusters = [{"cluster": 0, "name": "stripes / up", "into": None, "noise": False}]
    clusters += [{"cluster": k, "name": str(k), "into": 0 if k > 1 else None, "noise": k == 1} for k in range(1, count)]
    about = {"format": "converge-to-surprise clusters", "version": 1, "run": identity, "clusters": clusters}
    (own / "clusters.json").write_text(json.dumps(about))
    assert call("predict", own, pictures, "--out", tmp_path / "out.csv") == 0
    before = {row["path"]: int(row["cluster"]) for row in table(run / "labels.csv")}
    for row in table(tmp_path / "out.csv"):
        noise = before[row["path"]] == 1
        assert row["cluster"] == ("-1" if noise else "0")
        assert row["name"] == ("noise" if noise else "stripes / up")
    assert call("sort", own, pictures, "--into", tmp_path / "sorted") == 0
    assert {path.name for path in (tmp_path / "sorted").iterdir() if path.is_dir()} == {"noise", "0 stripes _ up"}


def test_mistakes(run: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.csv"
    out.write_text("mine")
    assert "exists; give another name, or --force" in refused(capsys, "predict", run, pictures, "--out", out)
    assert out.read_text() == "mine"
    text = refused(capsys, "predict", run, pictures, "--out", tmp_path / "out.txt")
    assert "must end in .csv or .parquet" in text
    assert "there is no folder" in refused(capsys, "predict", run, pictures, "--out", tmp_path / "no" / "out.csv")
    text = refused(capsys, "predict", run, pictures, "--out", out, "--force", "--min-confidence", 2)
    assert text == "--min-confidence is 2.0; it must lie in 0..1"
    text = refused(capsys, "predict", run, pictures, "--out", out, "--force", "--n-clusters", 99)
    assert "the merge tree has from 1 to" in text
    np.save(tmp_path / "wide.npy", np.zeros((5, 9, 16), np.uint8))
    for command in (
        ("predict", run, tmp_path / "wide.npy", "--out", out, "--force"),
        ("evaluate", run, tmp_path / "wide.npy"),
    ):
        text = refused(capsys, *command)
        assert "are 1x9x16 (channels, height, width) and the model was made with 1x8x8, another aspect" in text
    np.save(tmp_path / "good.npy", np.zeros((5, 8, 8), np.uint8))
    text = refused(capsys, "sort", run, tmp_path / "good.npy", "--into", tmp_path / "x", "--how", "move")
    assert "can only be copied" in text
    text = refused(capsys, "sort", run, pictures, "--into", tmp_path)
    assert "exists and is not empty" in text
    (tmp_path / "broken.safetensors").write_bytes(b"abc")
    text = refused(capsys, "predict", tmp_path / "broken.safetensors", pictures, "--out", out, "--force")
    assert "cannot read the model" in text
    unfinished = tmp_path / "unfinished"
    shutil.copytree(run, unfinished)
    (unfinished / "result.json").unlink()
    text = refused(capsys, "predict", unfinished, pictures, "--out", out, "--force")
    assert f"is not finished: continue it with `cts resume {unfinished}`" in text


def test_a_model_file_survives_the_trip(run: Path, tmp_path: Path) -> None:
    model, _, _ = modelfile.load(run / "model.safetensors")
    modelfile.save(tmp_path / "second.safetensors", model)
    again, _, _ = modelfile.load(tmp_path / "second.safetensors")
    assert (again.config, again.merged, again.order) == (model.config, model.merged, model.order)
    modelfile.save(tmp_path / "third.safetensors", again)
    assert (tmp_path / "second.safetensors").read_bytes() == (tmp_path / "third.safetensors").read_bytes()
