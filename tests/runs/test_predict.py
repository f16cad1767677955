"""Predicting, on real folders of pictures, in real processes where it matters."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.picture_run import FLAGS, SCHEDULE, call, refused, table, write_pictures
from support.pictures import HEIC_HEAD

from converge_to_surprise.data import formats
from converge_to_surprise.data.source import Source
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model import model_file
from converge_to_surprise.runs import predict as predicting
from converge_to_surprise.runs.load import load_model


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


def n_folders(path: Path) -> int:
    return sum(entry.is_dir() for entry in path.iterdir())


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
    first, *reasons, last = capsys.readouterr().out.splitlines()
    assert (
        first == f"63 seen, 60 sorted into {n_folders(tmp_path / 'sorted')} folders of {tmp_path / 'sorted'}, 3 skipped"
    )
    assert sorted(reasons) == [
        f"  skipped: {row['file']}: {row['reason']}" for row in table(tmp_path / "out.quarantine.csv")
    ]
    assert last == f"see {tmp_path / 'sorted' / 'quarantine.csv'}"
    assert (tmp_path / "sorted" / "quarantine.csv").read_bytes() == (tmp_path / "out.quarantine.csv").read_bytes()
    for name in skipped(tmp_path / "out.quarantine.csv"):
        (more / name).unlink()
    assert call("predict", run, more, "--out", tmp_path / "out.csv", "--force") == 0
    assert "read 60 files\n" in capsys.readouterr().out
    assert not (tmp_path / "out.quarantine.csv").exists()
    assert call("sort", run, more, "--into", tmp_path / "again") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line == f"60 seen, 60 sorted into {n_folders(tmp_path / 'again')} folders of {tmp_path / 'again'}, 0 skipped"
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
    kept = ("cluster", "confidence", "novelty", "second", "views_agree", "subcluster")
    from_array, from_files = (
        [[row[name] for name in kept] for row in table(folder / "labels.csv")] for folder in (tmp_path / "run", run)
    )
    assert from_array == from_files


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predicting_the_training_set_gives_its_labels(run: Path, pictures: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"labels.{ending}"
    assert call("predict", run, pictures, "--out", out) == 0
    names = ("path", "cluster", "confidence", "novelty", "second", "second_confidence", "views_agree")
    wanted = [{name: row[name] for name in names} for row in table(run / "labels.csv")]
    if ending == "csv":
        assert table(out) == wanted
    else:
        import pyarrow.parquet

        found = pyarrow.parquet.read_table(out).to_pylist()
        assert [row["path"] for row in found] == [row["path"] for row in wanted]
        assert [row["cluster"] for row in found] == [int(row["cluster"]) for row in wanted]
        assert [row["confidence"] for row in found] == [float(row["confidence"]) for row in wanted]
        assert [row["novelty"] for row in found] == [float(row["novelty"]) for row in wanted]
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
    novel = np.unique([float(row["novelty"]) for row in table(plain)])
    usual = float(novel[len(novel) // 2 - 1 : len(novel) // 2 + 1].mean())
    assert call("predict", run, pictures, "--out", out, "--max-novelty", usual, "--force") == 0
    for row, before in zip(table(out), table(plain), strict=True):
        assert row["cluster"] == ("-1" if float(before["novelty"]) > usual else before["cluster"])
    assert call("predict", run, pictures, "--out", out, "--n-clusters", 1, "--force") == 0
    assert {row["cluster"] for row in table(out)} == {"0"}


def test_a_model_file_is_enough(run: Path, pictures: Path, tmp_path: Path) -> None:
    shutil.copy(run / "model.safetensors", tmp_path / "model.safetensors")
    assert call("predict", tmp_path / "model.safetensors", pictures, "--out", tmp_path / "a.csv") == 0
    assert call("predict", run, pictures, "--out", tmp_path / "b.csv") == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


@pytest.mark.slow
@pytest.mark.subprocess
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
        state = {"job": "other", "done": 24, "images": 24, "quarantined": 0, "table": 10, "skipped": 10}
        (tmp_path / "out.csv.part.json").write_text(json.dumps(state))
        predicting.predict(
            model, source, tmp_path / "out.csv", predicting.TableOptions(), "x", lambda done, total: None
        )
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


@pytest.mark.slow
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
        assert text == f"--image-size is {value}; it must be an integer from 8 to 1024"


def test_names_given_by_a_person_are_used(run: Path, pictures: Path, tmp_path: Path) -> None:
    own = tmp_path / "run"
    shutil.copytree(run, own)
    count = load_model(run).n_clusters
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
    assert text == "--min-confidence is 2.0; it must be from 0 to 1"
    text = refused(capsys, "predict", run, pictures, "--out", out, "--force", "--max-novelty", -1)
    assert text == "--max-novelty is -1.0; it must be from 0 to 1"
    text = refused(capsys, "predict", run, pictures, "--out", out, "--force", "--n-clusters", 99)
    assert "the merge tree has 1 to" in text
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
    model, _, _ = model_file.load(run / "model.safetensors")
    model_file.save(tmp_path / "second.safetensors", model)
    again, _, _ = model_file.load(tmp_path / "second.safetensors")
    assert (again.config, again.merge_result, again.order) == (model.config, model.merge_result, model.order)
    model_file.save(tmp_path / "third.safetensors", again)
    assert (tmp_path / "second.safetensors").read_bytes() == (tmp_path / "third.safetensors").read_bytes()


def test_a_model_file_of_the_first_release_is_refused(
    run: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Path(shutil.copytree(run, tmp_path / "run"))
    content = (own / "model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size].replace(rb"{\"version\": 2", rb"{\"version\": 1")
    assert header != content[8 : 8 + size]
    (own / "model.safetensors").write_bytes(content[:8] + header + content[8 + size :])
    text = "it was made by version 0.1 of this program, which this version cannot read: fit again"
    out = tmp_path / "out.csv"
    for path in (own, own / "model.safetensors"):
        shown = refused(capsys, "predict", path, pictures, "--out", out)
        assert shown == f"cannot read the model {own / 'model.safetensors'}: {text}"
    about = json.loads((own / "config.json").read_text()) | {"version": 1}
    (own / "config.json").write_text(json.dumps(about))
    assert refused(capsys, "predict", own, pictures, "--out", out) == f"cannot read the run {own}: {text}"
    for command in ("show", "resume", "report"):
        assert refused(capsys, command, own) == f"cannot read the run {own}: {text}"
