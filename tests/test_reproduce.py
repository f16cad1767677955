"""``cts reproduce`` from end to end, with real processes on a data set of bars that poses as USPS."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from converge_to_surprise import cli
from converge_to_surprise.data import datasets
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.reproduce import command, pool
from converge_to_surprise.runs.folder import RunFolder

TINY = """
threads = 1
schedule = ["search=relaxed:{epochs}", "merge=merge:1"]
network = {{ clusters = 6, width = 2 }}
relaxed = {{ heads = 2, batch = 30 }}
merge = {{ augmented_pairs = 60, neighbor_pairs = 60, clusters = 6 }}
starts = 1
"""


def call(*words: str | Path) -> int:
    try:
        return cli.main([str(word) for word in words])
    except SystemExit as left:
        return int(left.code or 0)


def settings(folder: Path, epochs: int = 2) -> Path:
    path = folder / f"tiny-{epochs}.toml"
    path.write_text(TINY.format(epochs=epochs))
    return path


def bars_as_usps(folder: Path) -> Path:
    images, classes = striped_images(260)
    pixels = images[:, 0].numpy()
    np.savez(
        folder / "usps.npz", x_train=pixels[:60], y_train=classes[:60], x_test=pixels[60:], y_test=classes[60:]
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bars_as_usps(tmp_path_factory.mktemp("data"))


def words(target: str, data: Path, out: Path, seeds: str, epochs: int = 2) -> list[str]:
    flags = ["--dataset", "usps", "--seeds", seeds, "--jobs", "2", "--out", str(out)]
    return ["reproduce", target, *flags, "--data-dir", str(data), "--config", str(settings(data, epochs))]


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds, done by two processes at a time."""
    out = tmp_path_factory.mktemp("finished") / "out"
    assert call(*words("table1", data, out, "2")) == 0
    return out


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("nothing should be run")

    monkeypatch.setattr(pool, "_start", refuse)


def evaluated(out: Path, data: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert call("evaluate", out / "runs" / f"usps-full-{seed}", "usps", "--data-dir", data, "--json") == 0
    scores: dict[str, Any] = json.loads(capsys.readouterr().out)
    return scores


def test_runs_are_ordinary_run_folders(finished: Path) -> None:
    for seed in (0, 1):
        run = RunFolder.open(finished / "runs" / f"usps-full-{seed}")
        description = run.description()
        assert (description.config.seed, description.config.threads) == (seed, 1)
        assert description.config.views.fill  # the preset's, under the file's settings
        assert description.config.relaxed.heads == 2
        assert run.result.is_file()
    assert sorted(path.name for path in (finished / "runs").iterdir()) == ["usps-full-0", "usps-full-1"]


def test_table_is_what_evaluate_says(finished: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = [evaluated(finished, data, seed, capsys) for seed in (0, 1)]
    table = json.loads((finished / "table1.json").read_text())
    assert [run["metrics"] for run in table["runs"]] == scores
    first = table["runs"][0]
    assert (first["dataset"], first["variant"], first["seed"], first["split"]) == ("usps", "full", 0, "test")
    assert first["seconds"] > 0
    assert set(first["versions"]) == {"converge-to-surprise", "torch", "numpy", "python"}
    text = (finished / "table1.md").read_text()
    ours = [cell.strip() for line in text.splitlines() if line.startswith("| converge") for cell in line.split("|")]
    for column, key in ((2, "acc"), (3, "nmi"), (4, "ari"), (8, "acc_both"), (10, "ari_both")):
        values = [100 * score[key] for score in scores]
        assert ours[column] == f"{statistics.fmean(values):.1f} ± {statistics.pstdev(values):.1f}"
    assert ours[6] == "2 (0, 1)"
    assert '- Not the preset alone: in these runs {"schedule": ["search=relaxed:2", "merge=merge:1"], "network"' in text
    assert "| the paper " in text
    assert "94.9 ± 1.8 | 90.2 ± 1.3 | 90.3 ± 2.8 | 10.4 ± 0.5" in re.sub(" +", " ", text)


def test_the_command_in_the_table_makes_the_run(finished: Path, data: Path, tmp_path: Path) -> None:
    said = json.loads((finished / "table1.json").read_text())["runs"][1]["command"]
    flags = said.removeprefix("cts ").replace("--out RUN", f"--out {tmp_path / 'run'}").split()
    assert call(*flags, "--data-dir", data) == 0
    again = (tmp_path / "run" / "labels.csv").read_bytes()
    assert again == (finished / "runs" / "usps-full-1" / "labels.csv").read_bytes()


@pytest.mark.usefixtures("no_process")
def test_finished_runs_are_used(finished: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {
        path: path.stat().st_mtime_ns
        for folder in ("runs", "evaluations")
        for path in (finished / folder).rglob("*")
        if path.name != ".lock"
    }
    assert call(*words("table2", data, finished, "2")) == 0
    out = capsys.readouterr().out
    assert "2 runs: 2 finished, 0 interrupted, 0 to begin" in out
    counts = [run["metrics"]["n_clusters"] for run in json.loads((finished / "table2.json").read_text())["runs"]]
    assert f"{statistics.fmean(counts):.1f} ± {statistics.pstdev(counts):.1f}" in out
    assert "| moVB" in out
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.usefixtures("no_process")
def test_a_row_says_what_leads_to_its_run_now(finished: Path, data: Path, tmp_path: Path) -> None:
    """The same settings by other words: presets change, and what was once the preset's may have to be said."""
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    more = tmp_path / "more.toml"
    more.write_text(settings(data, 2).read_text() + "views = { fill = true }\n")
    assert call(*words("table1", data, out, "2")[:-1], more) == 0
    rows = json.loads((out / "table1.json").read_text())["runs"]
    assert [row["overlay"].get("views") for row in rows] == [{"fill": True}] * 2


@pytest.mark.usefixtures("no_process")
def test_curves(finished: Path, data: Path) -> None:
    assert call(*words("curves", data, finished, "2")) == 0
    root = ElementTree.parse(finished / "curves-usps.svg").getroot()
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2
    history = RunFolder(finished / "runs" / "usps-full-0").records()
    assert len(lines[0].attrib["points"].split()) == len(history)
    runs = json.loads((finished / "curves.json").read_text())["runs"]
    assert [point["surprising"] for point in runs[0]["points"]] == [record["surprising"] for record in history]
    assert "curves-usps.svg" in (finished / "curves.md").read_text()


def test_panels_and_purity(finished: Path) -> None:
    with Image.open(finished / "panels-usps.png") as image:
        image.verify()
        assert min(image.size) > 50
    run = json.loads((finished / "table1.json").read_text())["runs"][0]
    (listed,) = json.loads((finished / "purity.json").read_text())
    assert listed["seed"] == 0
    assert sum(cluster["size"] for cluster in listed["clusters"]) == run["metrics"]["images"] == 200
    weighted = sum(cluster["size"] * cluster["purity"] for cluster in listed["clusters"]) / 200
    assert weighted == pytest.approx(run["metrics"]["purity"])
    assert f"n= {listed['clusters'][0]['size']} |" in (finished / "purity.md").read_text()


@pytest.mark.usefixtures("no_process")
def test_other_settings_are_not_mixed_in(finished: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = (finished / "table1.md").read_bytes()
    assert call(*words("table1", data, finished, "2", epochs=3)) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"cts: {finished / 'runs' / 'usps-full-0'} (and 1 more) was made with other settings")
    assert "schedule is search=relaxed:2 merge=merge:1, wanted search=relaxed:3 merge=merge:1" in said
    assert "--force" in said
    assert call(*words("table1", data, finished, "2", epochs=3), "--no-run") == 0
    said = capsys.readouterr().out
    assert "left out: usps-full-0" in said
    assert "there is nothing to show" in said
    assert (finished / "table1.md").read_bytes() == tables


def test_force_runs_them_again(
    finished: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that fail to run again are not taken for what was asked for."""
    out = Path(shutil.copytree(finished, tmp_path / "out"))
    tables = (out / "table1.json").read_bytes()
    asked: list[list[str]] = []

    def note(tasks: Sequence[pool.Task], *_: Any) -> dict[str, str]:
        asked.extend(task.words for task in tasks)
        return {task.name: "no memory" for task in tasks}

    monkeypatch.setattr(command, "run_all", note)
    assert call(*words("table1", data, out, "2", epochs=3), "--force", "--no-force") == 2
    assert asked == []
    capsys.readouterr()
    assert call(*words("table1", data, out, "2", epochs=3), "--force") == 1
    assert [(one[0], one[-1]) for one in asked] == [("fit", "--force")] * 2
    shown = capsys.readouterr()
    assert "left out: usps-full-1, which was made with other settings (schedule is search=relaxed:2" in shown.out
    assert "cts: usps-full-0 failed: no memory" in shown.err
    assert (out / "table1.json").read_bytes() == tables


def test_other_images_are_not_mixed_in(
    finished: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    images, classes = striped_images(60, seed=5)
    np.savez(tmp_path / "data" / "usps.npz", images=images.numpy(), labels=classes)
    assert call(*words("table1", data, finished, "2"), "--data-dir", tmp_path / "data") == 2
    assert "it has other images than usps has now" in capsys.readouterr().err


def test_a_table_grows(finished: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was evaluated on other data sets in an earlier call stays in the table."""
    out = Path(shutil.copytree(finished, tmp_path / "out"))
    (out / "table1.json").unlink()
    monkeypatch.setattr(command, "run_all", lambda *_: {})
    more = tmp_path / "more.toml"
    more.write_text(settings(data, 2).read_text() + "views = { fill = true }\n")
    flags = words("table1", data, out, "2")
    flags[flags.index("usps")] = "digits"
    assert call(*flags[:-1], more) == 0
    rows = json.loads((out / "table1.json").read_text())["runs"]
    assert [(row["dataset"], row["overlay"].get("views")) for row in rows] == [("usps", {"fill": True})] * 2


@pytest.mark.parametrize("damage", ["nothing", "no JSON", "another result"])
def test_what_is_known_of_a_run_is_of_this_run(
    finished: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damage: str,
) -> None:
    """An evaluation that is damaged, or of a run that once had this place, is made again when its data are at hand."""
    out = Path(shutil.copytree(finished, tmp_path / "out"))
    file, result = out / "evaluations" / "usps-full-0.json", out / "runs" / "usps-full-0" / "result.json"
    expected = json.loads((out / "table1.json").read_text())["runs"]
    if damage == "no JSON":
        file.write_text("{")
    if damage == "another result":
        changed = json.loads(result.read_text()) | {"seconds": 12345.0}
        result.write_text(json.dumps(changed))
        expected[0]["seconds"] = 12345.0
    monkeypatch.setattr(command, "run_all", lambda *_: {})
    flags = words("table1", data, out, "2")
    elsewhere = list(flags)
    elsewhere[flags.index("usps")] = "digits"
    assert call(*elsewhere) == 0
    assert (
        "left out: usps-full-0, which is to be evaluated again: give --dataset usps" in capsys.readouterr().out
    ) == (damage != "nothing")
    assert len(json.loads((out / "table1.json").read_text())["runs"]) == (2 if damage == "nothing" else 1)
    assert call(*flags) == 0
    assert json.loads((out / "table1.json").read_text())["runs"] == expected


@pytest.mark.usefixtures("no_process")
def test_other_images_to_evaluate_on_are_seen(finished: Path, data: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "out"))
    (tmp_path / "data").mkdir()
    with np.load(data / "usps.npz") as stored:
        arrays = dict(stored)
    arrays["y_test"][:] = 0
    np.savez(tmp_path / "data" / "usps.npz", **arrays)
    assert call(*words("table1", data, out, "2"), "--data-dir", tmp_path / "data") == 0
    rows = json.loads((out / "table1.json").read_text())["runs"]
    assert [row["metrics"]["purity"] for row in rows] == [1.0, 1.0]


def test_one_failure_does_not_lose_the_others(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    (out / "runs" / "usps-full-0").mkdir(parents=True)
    (out / "runs" / "usps-full-0" / "thesis.tex").write_text("years of work")
    assert call(*words("table1", data, out, "2")) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("cts: usps-full-0 failed: ")
    assert "is not empty and holds no run" in shown.err
    assert shown.err.count("\n") == 1
    assert [run["seed"] for run in json.loads((out / "table1.json").read_text())["runs"]] == [1]
    assert "1 (1)" in shown.out  # the table says of how many seeds, and which


def wait_for(condition: Any, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_stop_and_go_on(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    flags = words("table1", data, out, "1", epochs=80)
    run = RunFolder(out / "runs" / "usps-full-0")
    line = [sys.executable, "-m", "converge_to_surprise", *flags]
    program = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: run.history.is_file() and run.history.stat().st_size > 0)
    os.kill(program.pid, signal.SIGINT)  # to this process alone: it must stop its child
    said, errors = program.communicate(timeout=60)
    assert program.returncode == 130
    assert "stopping 1 run" in said
    assert errors == "cts: stopped by SIGINT; the runs are saved: the same command continues them\n"
    assert 0 < len(run.records()) < 161
    assert any(run.checkpoints.glob("*.safetensors"))
    assert not run.result.exists()
    with run.locked():  # nobody is at work there any more
        pass
    assert call(*flags) == 0
    shown = capsys.readouterr().out
    assert "1 run: 0 finished, 1 interrupted, 0 to begin" in shown
    assert "usps-full-0: resumed" in shown
    assert [record["step"] for record in run.records()] == list(range(161))
    assert run.result.is_file()


# Mistakes: one line, exit code 2, nothing left behind.


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--dataset mnits", "--dataset is 'mnits'; known data sets: mnist, fashion-mnist, usps, digits"),
        ("--dataset digits --seeds many", "--seeds is 'many'; give a number of seeds (5), a range (5-9) or a list"),
        ("--dataset digits --seeds 0", "--seeds is '0'"),
        ("--dataset digits --seeds 9-5", "--seeds is '9-5'"),
        ("--dataset digits --jobs -1", "--jobs is -1; it must be at least 1"),
        ("--dataset digits --seeds 0,3 --panel-seed 9", "--panel-seed is 9; it must be one of --seeds, 0, 3"),
        ("--dataset digits --config none.toml", "cannot read the configuration none.toml"),
        ("--dataset digits --data-dir . --out file", "cannot write to --out file: "),
    ],
)
def test_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, flags: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    assert call("reproduce", "table1", *flags.split()) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"cts: {message}")
    assert shown.err.count("\n") == 1
    assert os.listdir(tmp_path) == ["file"]


def test_unknown_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("reproduce", "table9") == 2
    shown = capsys.readouterr()
    assert "table9" in shown.err
    assert "Traceback" not in shown.err


def test_missing_data(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(datasets, "fetch_openml", fail)
    assert call("reproduce", "table1", "--out", tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert "mnist is not in the local folder and could not be downloaded" in said
    assert "choose data sets with --dataset" in said
    assert not (tmp_path / "out").exists()
