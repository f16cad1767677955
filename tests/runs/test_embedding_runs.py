"""Runs on embeddings by the command line: the same commands work on them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.picture_run import call, interrupt, refused, result_of, table
from support.vectors import FEATURES, WORDS, vectors

from converge_to_surprise.data.embeddings import to_items
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.load import load_model

INPUT = ["--input", "embeddings"]
FEW = ["--threads", 1, "--schedule", "search=relaxed:2", "merge=merge:1", "--no-report", *INPUT]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embeddings")
    values, labels = vectors()
    np.savez(folder / "one.npz", embeddings=values, labels=labels)
    np.save(folder / "three.npy", vectors(views=3)[0])
    for number in range(len(values)):
        (folder / "photos").mkdir(exist_ok=True)
        Image.new("RGB", (10, 8), (number, 0, 0)).save(folder / "photos" / f"{number:03d}.png")
    return folder


@pytest.fixture(scope="module")
def run(place: Path) -> Path:
    """A run with a hidden layer and with pictures of the embeddings."""
    words = [*INPUT, *WORDS, "--network.hidden", 6, "--images", place / "photos"]
    assert call("fit", place / "one.npz", "--out", place / "run", *words) == 0
    return place / "run"


def clusters(path: Path) -> list[str]:
    return [row["cluster"] for row in table(path)]


def test_clusters_are_found_and_named_by_their_pictures(run: Path) -> None:
    result = result_of(run)
    assert result["nmi_both"] > 0.9
    assert result["verdict"]["strength"] in ("strong", "weak")
    description = RunFolder.open(run).description()
    assert description.items == f"120 embeddings of {FEATURES} values"
    assert description.shape == (1, 1, FEATURES)
    assert description.config.network.hidden == 6
    rows = table(run / "labels.csv")
    assert [row["path"] for row in rows[:2]] == ["000.png", "001.png"]
    assert "000.png" in (run / "report.html").read_text(encoding="utf-8")


def test_predict_labels_as_the_run_did_and_takes_the_same_values_only(
    run: Path, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("predict", run, place / "one.npz", "--out", tmp_path / "a.csv") == 0
    assert clusters(tmp_path / "a.csv") == clusters(run / "labels.csv")
    assert call("predict", run, place / "three.npy", "--out", tmp_path / "b.csv") == 0, "another number of views"
    assert call("predict", run, place / "one.npz", "--out", tmp_path / "c.csv", "--n-clusters", 2) == 0
    assert len(set(clusters(tmp_path / "c.csv"))) == 2
    np.save(tmp_path / "short.npy", np.ones((4, 7)))
    message = refused(capsys, "predict", run, tmp_path / "short.npy", "--out", tmp_path / "d.csv")
    assert message.endswith(f"has embeddings of 7 values; the model was made with embeddings of {FEATURES}")
    message = refused(capsys, "predict", run, place / "photos", "--out", tmp_path / "d.csv")
    assert "is not a file of embeddings" in message


def test_other_commands_work_and_sort_tells_why_not(
    run: Path, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "few.npy", vectors()[0][:2])
    assert call("evaluate", run, place / "one.npz") == 0
    assert call("show", run) == 0
    shown = capsys.readouterr().out
    assert f"120 embeddings of {FEATURES} values" in shown
    assert "NMI" in shown
    assert call("report", run, place / "one.npz", "--out", tmp_path / "other.html") == 0
    assert call("compare", run, run, "--out", tmp_path / "compare.html") == 0
    shutil.copytree(run, tmp_path / "named")
    content = {"format": "converge-to-surprise clusters", "version": 1, "clusters": [{"cluster": 0, "name": "first"}]}
    content["run"] = RunFolder.open(run).description().identity
    (tmp_path / "clusters.json").write_text(json.dumps(content), encoding="utf-8")
    assert call("relabel", tmp_path / "named", tmp_path / "clusters.json") == 0
    assert call("predict", tmp_path / "named", place / "one.npz", "--out", tmp_path / "named.csv") == 0
    assert "first" in {row["name"] for row in table(tmp_path / "named.csv")}
    assert call("similar", run, tmp_path / "few.npy", "--out", tmp_path / "similar.csv") == 0
    assert len({row["picture"] for row in table(tmp_path / "similar.csv")}) == 2
    message = refused(capsys, "similar", run, tmp_path / "few.npy", "--page", tmp_path / "similar.html")
    assert message.endswith("clusters embeddings; give --out for a table")
    message = refused(capsys, "sort", run, place / "one.npz", "--into", tmp_path / "sorted")
    assert re.match(r".* clusters embeddings, which are no files to sort; write a table: cts predict", message)


def test_pictures_that_are_gone_do_not_stop_a_report(
    run: Path, place: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    (place / "photos").rename(place / "moved")
    try:
        assert call("report", run, "--out", tmp_path / "page.html") == 0
    finally:
        (place / "moved").rename(place / "photos")
    assert (tmp_path / "page.html").is_file()


def test_a_stopped_run_is_resumed_bit_for_bit(run: Path, place: Path, tmp_path: Path) -> None:
    words = [*INPUT, *WORDS, "--network.hidden", 6, "--images", place / "photos", "--no-report"]
    assert call("fit", place / "one.npz", "--out", tmp_path / "part", *words) == 0
    part = RunFolder.open(tmp_path / "part")
    interrupt(part, 7)
    assert call("evaluate", part.path, place / "one.npz") == 0, "also of a run that is not finished"
    assert call("resume", part.path, "--no-report") == 0
    assert part.labels.read_bytes() == RunFolder.open(run).labels.read_bytes()


@pytest.mark.slow
def test_the_exported_file_takes_embeddings(run: Path, place: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    assert call("export", run, "--onnx", tmp_path / "model.onnx") == 0
    session_ = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    values = vectors()[0]
    model = load_model(run)
    wanted = model.interpret(model.run_all(to_items(values, "X"), ("probabilities", "features")))
    for part in (slice(0, 50), slice(3, 4)):
        cluster, sure = session_.run(["cluster", "confidence"], {"embeddings": values[part]})
        assert cluster.tolist() == wanted.cluster[part].tolist()
        np.testing.assert_allclose(sure, wanted.confidence[part].numpy(), atol=1e-3)


def test_several_views_are_pairs_of_their_own(place: Path, tmp_path: Path) -> None:
    words = [*INPUT, *WORDS, "--n-init", 2, "--no-report"]
    assert call("fit", place / "three.npy", "--out", tmp_path / "run", *words) == 0
    description = RunFolder.open(tmp_path / "run").description()
    assert description.shape == (3, 1, FEATURES)
    assert description.config.relaxed.neighbor_prob == 0.5
    assert "3 views of each" in description.items
    found = clusters(tmp_path / "run" / "labels.csv")
    assert len({(cluster, number % 3) for number, cluster in enumerate(found)}) == len(set(found)), (
        "no cluster is mixed"
    )
    assert call("predict", tmp_path / "run", place / "three.npy", "--out", tmp_path / "a.csv") == 0
    assert clusters(tmp_path / "a.csv") == found
    assert call("predict", tmp_path / "run", place / "one.npz", "--out", tmp_path / "b.csv") == 0, "a single view"


def test_pictures_come_from_a_column_too(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(place / "photos" / f"{number:03d}.png") for number in range(120)]
    paths[5] = str(tmp_path / "missing.png")
    pq.write_table(pa.table({"embedding": vectors()[0].tolist(), "path": paths}), tmp_path / "a.parquet")
    assert call("fit", tmp_path / "a.parquet", "--out", tmp_path / "run", *FEW, "--images", "path") == 0
    assert RunFolder.open(tmp_path / "run").description().pictures == "path"
    assert table(tmp_path / "run" / "labels.csv")[7]["path"].endswith("007.png")
    assert call("report", tmp_path / "run") == 0
    capsys.readouterr()
    given = ["fit", tmp_path / "a.parquet", "--out", tmp_path / "b", *FEW, "--images"]
    assert "which is neither a folder nor a column of" in refused(capsys, *given, "nothing")
    few = tmp_path / "few"
    few.mkdir()
    Image.new("L", (9, 9)).save(few / "a.png")
    assert "which has 1 pictures for 120 embeddings" in refused(capsys, *given, few)


def test_evolution_runs_on_embeddings(place: Path, tmp_path: Path) -> None:
    words = ["--search", "evolution", "--schedule", "explore=evolution:3:1@2", "--evolution.population", 4]
    assert call("fit", place / "one.npz", "--out", tmp_path / "run", *INPUT, "--threads", 1, *words, "--no-report") == 0
    assert {record["kind"] for record in RunFolder.open(tmp_path / "run").records()} == {"evolution", "consolidate"}


def test_noise_is_not_called_strong(tmp_path: Path) -> None:
    np.save(tmp_path / "noise.npy", np.random.default_rng(0).normal(size=(400, 24)))
    assert call("fit", tmp_path / "noise.npy", "--out", tmp_path / "run", *INPUT, *WORDS, "--no-report") == 0
    result = result_of(tmp_path / "run")
    assert result["verdict"]["strength"] != "strong"
    assert result["surprise"] < 0.1, "halves of noise have nothing in common"


@pytest.mark.slow
@pytest.mark.subprocess
def test_two_processes_share_a_run(place: Path, tmp_path: Path) -> None:
    words = [*INPUT, *WORDS, "--processes", 2, "--no-report"]
    assert call("fit", place / "one.npz", "--out", tmp_path / "run", *words) == 0
    assert result_of(tmp_path / "run")["nmi_both"] > 0.9


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--backbone", "x.onnx", *INPUT],
            "--backbone is x.onnx, but with --input embeddings there are no images for it",
        ),
        (["--image-size", 32, *INPUT], "--image-size is 32, but with --input embeddings there are no images for it"),
        (["--labels", "from-folders", *INPUT], "holds embeddings; put labels into the file"),
        (["--images", "photos"], "--images is photos, but without --input embeddings SOURCE holds the images"),
        ([], "for feature vectors give --input embeddings"),
    ],
)
def test_words_that_do_not_go_together(
    words: list[object], message: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "a.npy", vectors()[0])
    assert message in refused(capsys, "fit", tmp_path / "a.npy", "--out", tmp_path / "run", *words)
