"""One model, used by the estimator and by the command line: runs are loaded, saved estimators predict."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from support.digit_run import IMAGES, N_CLUSTERS, make_run, write_source
from support.picture_run import call, fit_pictures, make_pictures, refused, table

from converge_to_surprise import SurpriseClustering
from converge_to_surprise.model.precision import cpu_has_bfloat16
from converge_to_surprise.runs.folder import RunFolder


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_source(tmp_path_factory.mktemp("source"), classes=False)


@pytest.fixture(scope="module")
def run(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "digits", source).path


@pytest.fixture
def harmed(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


def annotate(run: Path, *clusters: dict[str, object]) -> None:
    identity = RunFolder.open(run).description().identity
    saved = {"format": "converge-to-surprise clusters", "version": 1, "run": identity, "clusters": list(clusters)}
    (run / "clusters.json").write_text(json.dumps(saved))


def column(path: Path, name: str = "cluster") -> list[str]:
    return [row[name] for row in table(path)]


@pytest.mark.parametrize("what", ["folder", "model file"])
def test_a_run_of_the_command_line_is_an_estimator(run: Path, source: Path, what: str) -> None:
    images = np.load(source)["images"]
    model = SurpriseClustering.load(run if what == "folder" else run / "model.safetensors")
    assert model.labels_.tolist() == [int(number) for number in column(run / "labels.csv")]
    assert np.allclose(model.probabilities_, [float(value) for value in column(run / "labels.csv", "confidence")], 1e-4)
    assert (model.predict(images) == model.labels_).all()
    assert (model.predict(images / 255) == model.labels_).all()  # floats in 0..1, as in files
    result = json.loads((run / "result.json").read_text())
    assert model.n_clusters_ == len(result["clusters"]) == len(model.cluster_info_) > 2
    assert [row["size"] for row in model.cluster_info_] == [row["size"] for row in result["clusters"]]
    assert len(model.history_) == len((run / "history.jsonl").read_text().splitlines())
    with pytest.raises(ValueError, match="X has pixels from -1 to 255"):
        model.predict(np.where(images == 0, -1, images.astype(int)))


@pytest.mark.parametrize("clusters", [2, N_CLUSTERS, N_CLUSTERS + 2])
def test_a_loaded_run_can_be_cut(run: Path, source: Path, tmp_path: Path, clusters: int) -> None:
    out = tmp_path / "labels.csv"
    assert call("predict", run, source, "--out", out, "--n-clusters", clusters) == 0
    cut = SurpriseClustering.load(run).cut(clusters)
    assert cut.labels_.tolist() == [int(number) for number in column(out)]
    assert np.allclose(cut.probabilities_, [float(value) for value in column(out, "confidence")], atol=2e-3)


def test_a_loaded_run_can_be_fitted_again(run: Path, source: Path) -> None:
    model = SurpriseClustering.load(run)
    assert (clone(model).fit(np.load(source)["images"]).labels_ == model.labels_).all()


def test_a_saved_estimator_predicts_on_the_command_line(run: Path, source: Path, tmp_path: Path) -> None:
    saved, out = tmp_path / "saved", tmp_path / "labels.csv"
    model = SurpriseClustering.load(run)
    model.save(saved)
    assert call("predict", saved, source, "--out", out) == 0
    assert out.read_bytes() == b"".join(_without_subclusters(run / "labels.csv"))
    model.cut(3).save(saved)
    assert call("predict", saved, source, "--out", out, "--force") == 0
    assert column(out) == [str(number) for number in model.cut(3).labels_]
    again = SurpriseClustering.load(saved)
    assert (again.labels_ == model.cut(3).labels_).all()
    assert again.predict(np.load(source)["images"] / 255).tolist() == again.labels_.tolist()


def _without_subclusters(path: Path) -> list[bytes]:
    return [line.rpartition(b",")[0] + b"\n" for line in path.read_bytes().splitlines()]


def test_a_model_file_alone_predicts(run: Path, source: Path, tmp_path: Path) -> None:
    alone = Path(shutil.copy(run / "model.safetensors", tmp_path / "alone"))
    model, images = SurpriseClustering.load(alone), np.load(source)["images"]
    assert (model.predict(images) == SurpriseClustering.load(run).labels_).all()
    assert model.labels_.shape == model.probabilities_.shape == (0,)
    assert model.cluster_info_ == []
    model.cut(2).save(alone)
    assert SurpriseClustering.load(alone).n_clusters_ == SurpriseClustering.load(run).cut(2).n_clusters_


def test_names_merges_and_noise_of_a_run_are_kept(harmed: Path, source: Path, tmp_path: Path) -> None:
    annotate(harmed, {"cluster": 0, "name": "zeros"}, {"cluster": 1, "into": 0}, {"cluster": 2, "noise": True})
    out, saved = tmp_path / "labels.csv", tmp_path / "saved"
    assert call("predict", harmed, source, "--out", out) == 0
    model = SurpriseClustering.load(harmed)
    assert model.cluster_names_ == ["zeros", *map(str, range(1, model.n_clusters_))]
    assert model.labels_.tolist() == [int(number) for number in column(out)]
    assert set(model.labels_) == {-1, 0, *range(3, model.n_clusters_)}
    model.save(saved)
    assert SurpriseClustering.load(saved).cluster_names_ == model.cluster_names_
    assert call("predict", saved, source, "--out", tmp_path / "again.csv") == 0
    assert (tmp_path / "again.csv").read_bytes() == out.read_bytes()


def test_a_run_of_pictures(tmp_path: Path) -> None:
    pictures = make_pictures(tmp_path / "pictures")
    run = fit_pictures(pictures, tmp_path / "run")
    model = SurpriseClustering.load(run)
    rows = table(run / "labels.csv")
    assert model.predict([pictures / row["path"] for row in rows]).tolist() == model.labels_.tolist()
    assert {entry[0] for entry in model.quarantine_} == {"class 0/empty.png", "class 1/text.jpg"}
    assert model.predict(np.asarray(Image.open(pictures / rows[0]["path"]))[None]) == model.labels_[:1]


def test_runs_that_cannot_be_loaded(harmed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"is not a run folder: it has no config\.json"):
        SurpriseClustering.load(tmp_path)
    tensors = load_file(harmed / "training.safetensors")
    for name, value in tensors.items():
        wrong = value.float() * 0 + 70 if value.dtype != torch.int16 else value * 0 + 70
        for damage in ({name: wrong}, {name: value[: IMAGES - 1]}):
            save_file({**tensors, **damage}, harmed / "training.safetensors")
            with pytest.raises(ValueError, match=r"training\.safetensors is missing or damaged; `cts resume"):
                SurpriseClustering.load(harmed)
    assert call("resume", harmed, "--no-report") == 0
    assert SurpriseClustering.load(harmed).labels_.shape == (IMAGES,)
    (harmed / "result.json").unlink()
    with pytest.raises(ValueError, match="is not finished: continue it with `cts resume"):
        SurpriseClustering.load(harmed)
    assert "is not finished" in refused(capsys, "predict", harmed, "digits", "--out", tmp_path / "x.csv")


def test_the_number_of_threads_is_kept_and_told(
    run: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same seed gives other clusters with another number of threads, so that it belongs to every result."""
    assert SurpriseClustering.load(run).n_threads_ == 1
    flags = ["--schedule", "search=relaxed:1", "merge=merge:1", "--network.width", "4", "--n-init", "1", "--no-report"]
    assert call("fit", source, "--out", tmp_path / "two", "--threads", "2", "--seed", "7", *flags) == 0
    shown = capsys.readouterr().out
    precision = "bfloat16" if cpu_has_bfloat16() else "float32"
    assert f"(seed 7 with 2 threads in {precision}; another number of threads or another precision" in shown
    assert json.loads((tmp_path / "two" / "config.json").read_text())["config"]["precision"] == precision
    assert json.loads((tmp_path / "two" / "result.json").read_text())["threads"] == 2
    model = SurpriseClustering.load(tmp_path / "two")
    assert model.n_threads_ == model.n_threads == 2
    assert call("fit", "--help") == 0
    helped = " ".join(capsys.readouterr().out.split())  # the help is wrapped
    assert "The same seed gives other clusters with another number of threads." in helped
    assert "gives other clusters with another number of threads" in (SurpriseClustering.__doc__ or "")
