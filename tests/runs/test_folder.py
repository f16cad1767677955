"""The run folder: who may have it, what is in it, and what of it survives."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.description import DESCRIPTION

from converge_to_surprise.config import Views
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.search.record import Record


def record(step: int) -> Record:
    return Record(
        step=step, epoch=step, stage="explore", kind="evolution", surprise=0.1 * step, orderliness=1.0, agreement=0.5,
        surprising=1, active=2, views=10, seconds=0.5,
    )  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A folder with everything a finished run has."""
    run = RunFolder(tmp_path / "run")
    run.make()
    run.describe(DESCRIPTION)
    with run.history_file() as history:
        history.append(record(0))
    run.checkpoints.mkdir()
    (run.checkpoints / "step-000000001.json").write_text("{}")
    run.result.write_text("{}")
    run.labels.write_text("image,cluster\n")
    return run


def test_the_identity_is_that_of_images_and_settings() -> None:
    """Checkpoints and annotations refer to a run by it."""
    config = DESCRIPTION.config
    moved = replace(DESCRIPTION, source="copy", data_dir="/data", program="9.9", preset="fast", labels="from-folders")
    assert moved.identity == DESCRIPTION.identity
    others = [
        replace(DESCRIPTION, fingerprint="cd" * 32),
        replace(DESCRIPTION, config=replace(config, seed=4)),
        replace(DESCRIPTION, config=replace(config, views=Views(fill_masked=True, background="remove"))),
        replace(DESCRIPTION, config=replace(config, evolution=replace(config.evolution, chunk_size=50))),
    ]
    assert len({DESCRIPTION.identity, *(other.identity for other in others)}) == len(others) + 1


def test_a_run_of_the_first_release_is_refused(run: RunFolder) -> None:
    data = json.loads(run.config.read_text()) | {"version": 1}
    del data["labels"]  # there was none
    run.config.write_text(json.dumps(data))
    with pytest.raises(ValueError, match="was made by version") as refused:
        run.description()
    assert str(refused.value) == (
        f"cannot read the run {run.path}: "
        "it was made by version 0.1 of this program, which this version cannot read: fit again"
    )


def test_the_labels_of_a_run_must_be_known(run: RunFolder) -> None:
    data = json.loads(run.config.read_text())
    assert data.pop("labels") == "none"
    run.config.write_text(json.dumps(data))
    with pytest.raises(ValueError, match="labels is missing or unknown"):
        run.description()


def test_description_comes_back(run: RunFolder) -> None:
    assert RunFolder.open(run.path).description() == DESCRIPTION


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "does not describe a run of this program"),
        ({"version": 3}, "its format has version 3; this program reads version 2"),
        ({"shape": None}, "is damaged"),
        ({"config": 5}, "is damaged: .* must be a table"),
        ({"config": {"sead": 1}}, "is damaged: unknown setting 'sead'"),
        ({"color": 1}, "is damaged: .*color"),
    ],
)
def test_foreign_or_damaged_description(run: RunFolder, changes: dict[str, Any], message: str) -> None:
    run.config.write_text(json.dumps(json.loads(run.config.read_text()) | changes))
    with pytest.raises(ValueError, match=message) as refused:
        run.description()
    assert str(run.path) in str(refused.value)


@pytest.mark.parametrize("content", ["", "{", "[]", "3"])
def test_description_that_is_none(run: RunFolder, content: str) -> None:
    run.config.write_text(content)
    with pytest.raises(ValueError, match=r"config\.json"):
        run.description()


def test_description_with_a_part_missing(run: RunFolder) -> None:
    data = json.loads(run.config.read_text())
    del data["fingerprint"]
    run.config.write_text(json.dumps(data))
    with pytest.raises(ValueError, match="is damaged"):
        run.description()


def test_open_refuses_what_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "none", tmp_path / "file"):
        with pytest.raises(ValueError, match="is not a run folder") as refused:
            RunFolder.open(path)
        assert str(path) in str(refused.value)


def test_claim_touches_nothing(tmp_path: Path, run: RunFolder) -> None:
    RunFolder.claim(tmp_path / "new", force=False)
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()
    RunFolder.claim(tmp_path / "empty", force=False)
    before = contents(run.path)
    with pytest.raises(ValueError, match=r"already holds a run; continue it with `cts resume .*` or give --force"):
        RunFolder.claim(run.path, force=False)
    RunFolder.claim(run.path, force=True)
    assert contents(run.path) == before


@pytest.mark.parametrize("force", [False, True])
def test_claim_never_takes_a_folder_of_other_things(tmp_path: Path, force: bool) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="is not empty and holds no run"):
        RunFolder.claim(tmp_path, force)
    with pytest.raises(ValueError, match="which is a file; give a folder"):
        RunFolder.claim(tmp_path / "thesis.tex", force)
    assert contents(tmp_path) == {"thesis.tex": b"years of work"}


def test_a_lock_alone_is_an_empty_folder(tmp_path: Path) -> None:
    """What is left of a run that could not write its first file must not bar the second attempt."""
    run = RunFolder(tmp_path / "run")
    run.make()
    with run.locked():
        pass
    RunFolder.claim(run.path, force=False)


def test_clear_removes_the_run_and_nothing_else(run: RunFolder) -> None:
    (run.path / "notes.txt").write_text("mine")
    (run.path / "figures").mkdir()
    (run.path / "figures" / "a.png").write_text("mine too")
    run.clear()
    assert contents(run.path) == {"notes.txt": b"mine", "figures/a.png": b"mine too"}
    run.clear()  # nothing left to remove is no error


def test_sweep_removes_what_a_kill_left_and_nothing_else(run: RunFolder) -> None:
    before = contents(run.path)
    (run.path / ".history.jsonl.abcd1234").touch()
    (run.path / ".result.json.abcd1234").touch()
    (run.checkpoints / ".step-000000002.safetensors.abcd1234").touch()
    (run.path / ".notes.txt.swp").write_text("mine")
    run.sweep()
    assert contents(run.path) == before | {".notes.txt.swp": b"mine"}


def test_make_says_why_not(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"cannot make the run folder .*file/run: Not a directory"):
        RunFolder(tmp_path / "file" / "run").make()
    RunFolder(tmp_path / "deep" / "down").make()
    assert (tmp_path / "deep" / "down").is_dir()


HOLDER = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1], timeout=0):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.subprocess
def test_a_second_process_is_refused(run: RunFolder) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run.path / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ValueError, match="another process is working on") as refused, run.locked():
            pytest.fail("two processes hold the same run")
        assert str(run.path) in str(refused.value)
        holder.kill()  # the lock goes with the process, however it ends
        holder.wait()
        with run.locked():
            pass


def test_a_second_holder_in_the_same_process_is_refused(run: RunFolder) -> None:
    with run.locked(), pytest.raises(ValueError, match="another process is working on"), RunFolder(run.path).locked():
        pytest.fail("the run is held twice")
    with run.locked():
        pass


def test_history(run: RunFolder) -> None:
    with run.history_file() as history:
        for step in (1, 2):
            history.append(record(step))
        history.flush()
        assert [entry["step"] for entry in run.records()] == [0, 1, 2]  # readable while it grows
    assert run.records()[1] == record(1).__dict__


def test_half_a_line_ends_the_history(run: RunFolder) -> None:
    with run.history_file() as history:
        history.append(record(1))
        history.append(record(2))
    for cut in range(1, 40, 3):
        content = run.history.read_bytes()
        run.history.write_bytes(content[:-cut])
        # Without its line break alone the record is still whole.
        assert [entry["step"] for entry in run.records()] == [0, 1, 2][: 3 if cut == 1 else 2]
        run.history.write_bytes(content)


def test_what_follows_a_checkpoint_is_forgotten(run: RunFolder) -> None:
    with run.history_file() as history:
        for step in (1, 2, 3):
            history.append(record(step))
    run.history.write_bytes(run.history.read_bytes()[:-10])
    run.truncate_history(2)
    assert [entry["step"] for entry in run.records()] == [0, 1]
    with run.history_file() as history:
        history.append(record(2))
    assert [entry["step"] for entry in run.records()] == [0, 1, 2]
    run.truncate_history(0)
    assert run.records() == []
    assert run.history.read_bytes() == b""


def test_no_history_yet(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).records() == []
