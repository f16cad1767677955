"""A disk that is full while a command writes: one sentence, nothing lost, and the same command works afterwards."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.picture_run import FLAGS, call, refused, table, write_pictures

from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.runs import deepening, predict
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.load import load_model

if sys.platform == "win32":
    pytest.skip("there are no limits of file sizes", allow_module_level=True)

from support.limits import largest_file

IMAGES = 200
Capture = pytest.CaptureFixture[str]

COMMANDS = (
    "predict RUN PICTURES --out HERE/t.csv",
    "predict RUN PICTURES --out HERE/t.csv --embedding",
    "predict RUN PICTURES --out HERE/t.parquet",
    "predict RUN PICTURES --out HERE/mine.csv --force",
    "sort RUN PICTURES --into HERE/sorted",
    "sort RUN HERE/own --into HERE/sorted --how move",
    "report RUN",
    "report RUN --out HERE/r.html",
    "export RUN --onnx HERE/m.onnx",
    "relabel RUN HERE/names.json",
    "deepen RUN --rounds 1",
    "split RUN 0",
    "similar RUN PICTURE --out HERE/s.csv",
    "similar RUN PICTURE --page HERE/s.html",
    "compare RUN RUN --out HERE/c.html",
)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough of them that a cluster can be split, and two files that are no pictures."""
    folder = tmp_path_factory.mktemp("pictures")
    write_pictures(*striped_images(IMAGES), folder)
    (folder / "class 0" / "empty.png").touch()
    (folder / "class 1" / "text.jpg").write_text("not a picture")
    return folder


@pytest.fixture(scope="module")
def finished(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    assert call("fit", pictures, "--out", run, *FLAGS, "--relaxed.batch-size", IMAGES) == 0
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def here(run: Path, pictures: Path, tmp_path: Path) -> Path:
    """A folder of the user with a table, pictures and names for the clusters."""
    folder = tmp_path / "here"
    shutil.copytree(pictures / "class 0", folder / "own")
    (folder / "mine.csv").write_text("mine")
    identity = RunFolder.open(run).description().identity
    names: dict[str, Any] = {"format": "converge-to-surprise clusters", "version": 1, "run": identity}
    (folder / "names.json").write_text(json.dumps(names | {"clusters": [{"cluster": 0, "name": "first"}]}))
    return folder


def contents(*folders: Path) -> dict[str, bytes]:
    """Every file by its path, but locks and what a prediction continues from."""
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files if not re.search(r"/\.lock$|\.part(\.|$)", str(path))}


def _placed(word: str, places: dict[str, Path]) -> Path | str:
    """A word of a command with the folder or file that it stands for."""
    first, _, rest = word.partition("/")
    return places[first] / rest if first in places else word


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_sentence_and_changes_nothing(
    command: str, run: Path, here: Path, pictures: Path, capsys: Capture
) -> None:
    picture = min((pictures / "class 0").glob("0*.png"))
    places = {"RUN": run, "HERE": here, "PICTURES": pictures, "PICTURE": picture}
    parts = [_placed(word, places) for word in command.split()]
    before = contents(run, here, pictures)
    with largest_file(0):
        message = refused(capsys, *parts)
    assert message.endswith(("File too large", "File too large; nothing was sorted")), message
    assert not re.search(r"\.part|Errno|/\.\w|\n", message), message
    assert contents(run, here, pictures) == before
    assert not (here / "sorted").exists()
    assert call(*parts) == 0
    left = [path.name for path in (*run.iterdir(), *here.iterdir()) if ".part" in path.name or path.name[0] == "."]
    assert set(left) <= {".lock"}


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device", "something.part")


@pytest.mark.parametrize(
    ("words", "hint"),
    [(["resume"], "`cts resume` then continues the run"), (["report"], "then run the same command again")],
)
def test_the_hint_is_one_for_the_command(
    words: list[str], hint: str, run: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("converge_to_surprise.config.storage.os.replace", full)
    message = refused(capsys, *words, run)
    assert message.endswith(f": No space left on device; free some space: {hint}")


def test_a_sort_whose_journal_has_no_space_says_that_nothing_was_sorted(
    run: Path, here: Path, pictures: Path, capsys: Capture
) -> None:
    before = contents(here, pictures)
    with largest_file(6000):  # some of the journal fits
        message = refused(capsys, "sort", run, pictures, "--into", here / "sorted", "--how", "move")
    assert message == f"cannot write {here / 'sorted' / 'sort-journal.jsonl'}: File too large; nothing was sorted"
    assert contents(here, pictures) == before
    assert not (here / "sorted").exists()


@pytest.mark.parametrize("how", ["copy", "move"])
def test_a_sort_on_a_disk_that_fills_up_names_the_file_and_is_undone(
    how: str, run: Path, here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(here)
    into, copied = here / "sorted", list[str]()

    def fills_up(origin: str, part: Path) -> None:
        copied.append(origin)
        if len(copied) > 3:
            raise OSError(28, "No space left on device", origin, None, str(part))
        shutil.copy(origin, part)
        shutil.copystat(origin, part)

    def other_disk(origin: str, target: Path) -> None:
        if str(origin).startswith(str(here / "own")):
            raise OSError(18, "Invalid cross-device link")
        Path(origin).replace(target)

    monkeypatch.setattr("converge_to_surprise.runs.place_file.shutil.copy2", fills_up)
    monkeypatch.setattr("converge_to_surprise.runs.place_file.os.rename", other_disk)
    message = refused(capsys, "sort", run, here / "own", "--into", into, "--how", how)
    monkeypatch.undo()
    assert re.search(rf"No space left on device \({into}/\d.*/{Path(copied[-1]).name}\)", message), message
    assert message.endswith(f"`cts sort --undo {into}` puts everything back")
    assert call("sort", "--undo", into) == 0
    assert contents(here) == before


def test_a_prediction_whose_list_of_skipped_files_has_no_space_can_be_repeated(
    run: Path, here: Path, pictures: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("predict", run, pictures, "--out", here / "t.csv")
    monkeypatch.setattr(predict, "write_atomically", full)
    assert str(here / "t.csv") in refused(capsys, *words)
    monkeypatch.undo()
    assert call(*words) == 0
    assert len(table(here / "t.csv")) == IMAGES
    assert len(table(here / "t.quarantine.csv")) == 2


@pytest.mark.parametrize("writer", ["write_labels", "write_json", "MARK"])
def test_a_split_by_hand_and_its_undoing_can_be_repeated(
    writer: str, run: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels, result and the mark of the split follow each other; the disk is full at one of them."""

    def fails(command: Callable[[], str], mark: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(deepening, mark if writer == "MARK" else writer, full)
            assert "No space left on device" in command()

    whole = (run / "labels.csv").read_bytes()
    split = ("split", run, "0", "--no-report")
    fails(lambda: refused(capsys, *split), "add_split")
    assert call(*split) == 0
    assert any("/" in row["leaf"] for row in table(run / "labels.csv"))
    fails(lambda: refused(capsys, *split, "--undo"), "undo_split")
    assert call(*split, "--undo") == 0
    assert not any(len(path) > 1 for path in load_model(run).paths)
    rows = table(run / "labels.csv")
    assert all("/" not in row["leaf"] for row in rows)
    assert len(rows) == whole.count(b"\n") - 1


def test_an_undoing_whose_pictures_have_moved_changes_nothing(
    run: Path, pictures: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert call("split", run, "0", "--no-report") == 0
    before = contents(run)
    line = refused(capsys, "split", run, "0", "--undo", "--no-report", "--source", tmp_path / "nowhere")
    assert "nowhere" in line
    assert contents(run) == before
    assert call("split", run, "0", "--undo", "--no-report") == 0
