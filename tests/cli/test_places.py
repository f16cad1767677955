"""Places that cannot be written, pictures that have moved, and single pictures."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.picture_run import FLAGS, call, refused, table
from support.restricted import call_restricted

from converge_to_surprise.config.storage import write_atomically
from converge_to_surprise.runs.folder import RunFolder


@pytest.fixture
def closed(run: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder that may not be written, with a run, a table and an empty folder in it."""
    folder = tmp_path / "closed"
    shutil.copytree(run, folder / "run")
    (folder / "empty").mkdir()
    (folder / "old.csv").write_text("mine")
    places = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for place in places:
        place.chmod(0o500)
    yield folder
    for place in places:
        place.chmod(0o700)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.subprocess
@pytest.mark.skipif(sys.platform != "linux", reason="drops capabilities of Linux")
def test_a_place_that_cannot_be_written_is_named_in_one_sentence(
    closed: Path, run: Path, pictures: Path, tmp_path: Path
) -> None:
    identity = RunFolder.open(run).description().identity
    names = tmp_path / "names.json"
    saved = {"format": "converge-to-surprise clusters", "version": 1, "run": identity, "clusters": []}
    names.write_text(json.dumps(saved))
    not_writable = "is not writable; give a place in another folder"
    cases = [
        (["fit", pictures, "--out", closed / "new", *FLAGS], f"--out is {closed / 'new'}, but", not_writable),
        (["fit", pictures, "--out", closed / "a" / "b", *FLAGS], f"the folder {closed}", not_writable),
        (["fit", pictures, "--out", closed / "empty", *FLAGS], f"the folder {closed / 'empty'}", not_writable),
        (["fit", pictures, "--out", closed / "run", "--force", *FLAGS], f"{closed / 'run'}", not_writable),
        (["resume", closed / "run"], f"cannot write to {closed / 'run'}: ", "the folder is not writable"),
        (["predict", run, pictures, "--out", closed / "t.csv"], f"--out is {closed / 't.csv'}", not_writable),
        (["predict", run, pictures, "--out", closed / "t.parquet"], f"--out is {closed}", not_writable),
        (["predict", run, pictures, "--out", closed / "old.csv", "--force"], f"--out is {closed}", not_writable),
        (["sort", run, pictures, "--into", closed / "sorted"], f"--into is {closed / 'sorted'}", not_writable),
        (["sort", run, pictures, "--into", closed / "empty"], f"--into is {closed / 'empty'}", not_writable),
        (["export", run, "--onnx", closed / "m.onnx"], f"--onnx is {closed / 'm.onnx'}", not_writable),
        (["report", closed / "run"], f"{closed / 'run' / 'report.html'}", not_writable),
        (["report", run, "--out", closed / "r.html"], f"--out is {closed / 'r.html'}", not_writable),
        (["compare", run, closed / "run", "--out", closed / "c.html"], f"--out is {closed}", not_writable),
        (["relabel", closed / "run", names], f"cannot write to {closed / 'run'}: ", "the folder is not writable"),
        (["relabel", closed / "run", "--undo"], f"cannot write to {closed / 'run'}: ", "the folder is not writable"),
        (["reproduce", "table1", "--dataset", "digits", "--out", closed / "r"], f"folder {closed / 'r'}: ", "denied"),
        (["show", closed / "run"], "", ""),
        (["evaluate", closed / "run", pictures], "", ""),
        (["predict", closed / "run", pictures, "--out", tmp_path / "t.csv"], "", ""),
    ]
    before = contents(closed)
    for (words, place, reason), answer in zip(cases, call_restricted([words for words, _, _ in cases]), strict=True):
        assert answer.code == (2 if reason else 0), (words, answer.message)
        assert place in answer.message, words
        assert reason in answer.message, words
        assert answer.message.count("\n") == (1 if reason else 0), answer.message
        assert not re.search(r"\.part|Errno|/\.\w", answer.message), answer.message
    assert contents(closed) == before


@pytest.mark.subprocess
@pytest.mark.skipif(sys.platform != "linux", reason="drops capabilities of Linux")
def test_a_cache_that_cannot_be_written_is_named(closed: Path, pictures: Path, tmp_path: Path) -> None:
    for cache in (closed, closed / "below"):
        (answer,) = call_restricted([["fit", pictures, "--out", tmp_path / "new", *FLAGS]], CTS_CACHE=cache)
        reason = f"cannot be kept in the cache folder {cache}: Permission denied; set CTS_CACHE to a folder of yours"
        assert answer == (2, f"cts: decoded pictures {reason}\n")


def test_an_error_while_writing_names_the_file_and_not_a_temporary_one(
    tmp_path: Path, run: Path, pictures: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "something.part")

    with pytest.raises(FileNotFoundError) as missing:
        write_atomically(tmp_path / "no" / "file", b"")
    assert missing.value.filename == str(tmp_path / "no" / "file")
    monkeypatch.setattr("converge_to_surprise.runs.predict.os.replace", full)
    line = refused(capsys, "predict", run, pictures, "--out", tmp_path / "t.csv")
    assert line.startswith(f"cannot use {tmp_path / 't.csv'}: No space left on device")


def test_a_run_is_resumed_after_its_pictures_moved(
    run: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, copy = tmp_path / "old", tmp_path / "new", tmp_path / "run"
    shutil.copytree(pictures, old)
    assert call("fit", old, "--out", copy, *FLAGS) == 0
    for name in ("result.json", "model.safetensors", "labels.csv"):  # as if stopped before its end
        (copy / name).unlink()
    old.rename(new)
    line = refused(capsys, "resume", copy, "--no-report")
    assert f"there is no data set or file '{old}'" in line
    assert line.endswith(f"if they have moved: cts resume {copy} --source PLACE")
    other = tmp_path / "other"
    shutil.copytree(new, other)
    (other / "class 0" / next((new / "class 0").glob("0*.png")).name).unlink()
    line = refused(capsys, "resume", copy, "--source", other, "--no-report")
    assert line == f"{other} does not hold the images that {copy} was begun with"
    assert RunFolder.open(copy).description().source == str(old)  # a wrong place is not remembered
    assert call("resume", copy, "--source", new, "--no-report") == 0
    assert (copy / "labels.csv").read_bytes() == (run / "labels.csv").read_bytes()
    assert RunFolder.open(copy).description().source == str(new)
    assert call("resume", copy, "--no-report") == 0  # from now on it is known


def test_a_single_picture(run: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = table(run / "labels.csv")[7]
    picture = pictures / row["path"]
    capsys.readouterr()
    assert call("predict", run, picture) == 0
    sure = f"{float(row['confidence']):.3f}"
    novel = f"{float(row['novelty']):.3f}"
    wanted = f"{picture}: cluster {row['cluster']}, confidence {sure}, novelty {novel}; next best: "
    assert capsys.readouterr().out.startswith(wanted)
    assert call("predict", run, picture, "--min-confidence", 1) == 0
    assert "cluster -1 (noise)" in capsys.readouterr().out
    assert call("predict", run, picture, "--out", tmp_path / "one.csv") == 0
    assert [(one["path"], one["cluster"]) for one in table(tmp_path / "one.csv")] == [(str(picture), row["cluster"])]
    nameless = tmp_path / "picture"  # without an ending
    shutil.copy(picture, nameless)
    assert call("predict", run, nameless) == 0
    assert "cluster" in capsys.readouterr().out


def test_single_files_that_are_no_pictures(
    run: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = pictures / "class 0" / "empty.png"
    assert refused(capsys, "predict", run, empty) == f"{empty} cannot be read: the file is empty"
    line = refused(capsys, "predict", run, pictures)
    assert line == f"{pictures} is not a single picture: give the table to write, for example --out labels.csv"
    (tmp_path / "notes.txt").write_text("nothing")
    assert "is not a source of images" in refused(capsys, "predict", run, tmp_path / "notes.txt")
    picture = pictures / table(run / "labels.csv")[0]["path"]
    assert "clustering needs at least 2" in refused(capsys, "fit", picture, "--out", tmp_path / "new", *FLAGS)
