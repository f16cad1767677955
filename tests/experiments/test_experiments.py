"""``cts reproduce``: real runs in real processes on images of bars that pose as USPS, their tables and figures."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from converge_to_surprise import cli
from converge_to_surprise.cli.fit import effective_config, parse_words
from converge_to_surprise.config import Config, Relaxed, Stage, presets
from converge_to_surprise.core.augment import augment
from converge_to_surprise.core.metrics import Panel, choose_panels
from converge_to_surprise.data import datasets
from converge_to_surprise.data.datasets import Dataset
from converge_to_surprise.data.store import ImageStore
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.experiments import figures, plan, pool
from converge_to_surprise.experiments import result_tables as tables
from converge_to_surprise.experiments.plan import VARIANTS, differences
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.interruption import Interrupted
from converge_to_surprise.search.trainer import Trainer

TINY = """
threads = 1
schedule = ["search=relaxed:{epochs}", "merge=merge:1"]
max_clusters = 6
n_clusters = 6
n_init = 1
network = {{ width = 2 }}
relaxed = {{ heads = 2, batch_size = 30 }}
"""


def call(*words: str | Path) -> int:
    try:
        return cli.main([str(word) for word in words])
    except SystemExit as left:
        return int(left.code or 0)


def arguments(target: str, data: Path, out: Path, seeds: str, epochs: int = 2) -> list[str]:
    settings = data / f"tiny-{epochs}.toml"
    settings.write_text(TINY.format(epochs=epochs))
    flags = ["--dataset", "usps", "--seeds", seeds, "--jobs", "2", "--out", str(out)]
    return ["reproduce", target, *flags, "--data-dir", str(data), "--config", str(settings)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    images, classes = striped_images(260)
    pixels = images[:, 0].numpy()
    splits = {"x_train": pixels[:60], "y_train": classes[:60], "x_test": pixels[60:], "y_test": classes[60:]}
    np.savez(folder / "usps.npz", **splits)  # type: ignore[arg-type]
    return folder


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds, run by two processes at a time."""
    out = tmp_path_factory.mktemp("finished") / "out"
    assert call(*arguments("table1", data, out, "2")) == 0
    return out


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing should be run")

    monkeypatch.setattr(subprocess, "Popen", refuse)


@pytest.mark.subprocess
def test_runs_are_ordinary_run_folders(finished: Path) -> None:
    assert sorted(path.name for path in (finished / "runs").iterdir()) == ["usps-full-0", "usps-full-1"]
    for seed in (0, 1):
        run = RunFolder.open(finished / "runs" / f"usps-full-{seed}")
        config = run.description().config
        assert (config.seed, config.threads, config.relaxed.heads) == (seed, 1, 2)
        assert config.views.fill_masked  # the preset's, under the file's settings
        assert run.result.is_file()
        assert "run in" in (finished / "logs" / f"usps-full-{seed}.log").read_text()


@pytest.mark.subprocess
def test_table_shows_what_evaluate_computes(finished: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = []
    for seed in (0, 1):
        capsys.readouterr()
        run = finished / "runs" / f"usps-full-{seed}"
        assert call("evaluate", run, "usps", "--data-dir", data, "--json") == 0
        scores.append(json.loads(capsys.readouterr().out))
    rows = tables.read(finished / "table1.csv").to_dict("records")
    for row, expected in zip(rows, scores, strict=True):
        assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert list(rows[0]) == list(tables.COLUMNS)
    assert (rows[1]["dataset"], rows[1]["variant"], rows[1]["seed"], rows[1]["split"]) == ("usps", "full", 1, "test")
    assert rows[0]["images"] == 200
    assert rows[0]["seconds"] > 0
    assert [part.split()[0] for part in rows[0]["versions"].split(", ")] == [
        "converge-to-surprise", "torch", "numpy", "python",
    ]  # fmt: skip
    text = (finished / "table1.md").read_text()
    ours = [cell.strip() for line in text.splitlines() if line.startswith("| converge") for cell in line.split("|")]
    for column, key in ((2, "acc"), (3, "nmi"), (4, "ari"), (8, "acc_both"), (10, "ari_both")):
        values = [100 * score[key] for score in scores]
        assert ours[column] == f"{statistics.fmean(values):.1f} ± {statistics.pstdev(values):.1f}"
    assert ours[6] == "2 (0, 1)"
    assert (
        '- Not the preset alone: in these runs {"schedule": ["search=relaxed:2", "merge=merge:1"], "max_clusters"'
        in text
    )
    assert "94.9 ± 1.8 | 90.2 ± 1.3 | 90.3 ± 2.8 | 10.4 ± 0.5" in re.sub(" +", " ", text)


@pytest.mark.subprocess
def test_the_command_in_the_table_repeats_the_run(finished: Path, data: Path, tmp_path: Path) -> None:
    command = tables.read(finished / "table1.csv")["command"][1]
    flags = command.removeprefix("cts ").replace("--out RUN", f"--out {tmp_path / 'run'}").split()
    assert call(*flags, "--data-dir", data) == 0
    again = (tmp_path / "run" / "labels.csv").read_bytes()
    assert again == (finished / "runs" / "usps-full-1" / "labels.csv").read_bytes()


@pytest.mark.subprocess
@pytest.mark.usefixtures("no_process")
def test_finished_runs_are_used(finished: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*arguments("table2", data, finished, "2")) == 0
    shown = capsys.readouterr().out
    assert "2 runs: 2 finished, 0 interrupted, 0 missing" in shown
    counts = tables.read(finished / "table2.csv")["n_clusters"].tolist()
    assert f"{statistics.fmean(counts):.1f} ± {statistics.pstdev(counts):.1f}" in shown
    assert "| moVB" in shown


@pytest.mark.subprocess
@pytest.mark.usefixtures("no_process")
def test_curves(finished: Path, data: Path) -> None:
    assert call(*arguments("curves", data, finished, "2")) == 0
    with Image.open(finished / "curves-usps.png") as image:
        image.verify()
    root = ElementTree.parse(finished / "curves-usps.svg").getroot()
    texts = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"USPS", "seed 0", "seed 1", "2 classes", "active", "search", "merge"} <= texts
    assert "curves-usps.svg" in (finished / "curves.md").read_text()
    assert len(tables.read(finished / "curves.csv")) == 2


@pytest.mark.subprocess
def test_panels_and_purity(finished: Path, data: Path) -> None:
    with Image.open(finished / "panels-usps.png") as image:
        assert len(image.convert("L").getcolors() or []) > 10  # pictures and captions, not a blank page
    clusters = pd.read_csv(finished / "purity-usps.csv")
    row = tables.read(finished / "table1.csv").iloc[0]
    assert clusters["images"].sum() == 200
    assert (clusters["images"] * clusters["purity"]).sum() / 200 == pytest.approx(row["purity"])
    assert set(clusters["class"]) <= {"digit 0", "digit 1"}
    assert "USPS, seed 0" in (finished / "purity-usps.md").read_text()
    assert call(*arguments("table1", data, finished, "2"), "--no-run", "--panel-seed", "1") == 0
    assert "USPS, seed 1" in (finished / "purity-usps.md").read_text()


@pytest.mark.subprocess
@pytest.mark.usefixtures("no_process")
def test_runs_with_other_settings_are_refused(
    finished: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (finished / "table1.md").read_bytes()
    assert call(*arguments("table1", data, finished, "2", epochs=3)) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"cts: {finished / 'runs' / 'usps-full-0'} (and 1 more) was made with other settings")
    assert "schedule is search=relaxed:2 merge=merge:1, not search=relaxed:3 merge=merge:1. " in error
    assert call(*arguments("table1", data, finished, "2", epochs=3), "--no-run") == 0
    shown = capsys.readouterr().out
    assert "left out: usps-full-0" in shown
    assert "there is nothing to show" in shown
    images, classes = striped_images(60, seed=5)
    np.savez(tmp_path / "usps.npz", images=images.numpy(), labels=classes)
    assert call(*arguments("table1", data, finished, "2"), "--data-dir", tmp_path) == 2
    assert "its images are not those of usps" in capsys.readouterr().err
    assert (finished / "table1.md").read_bytes() == before


@pytest.mark.slow
@pytest.mark.subprocess
def test_force_and_failure(finished: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run with other settings is run again with --force; a run that fails does not stop the others."""
    out = Path(shutil.copytree(finished, tmp_path / "out"))
    shutil.rmtree(out / "runs" / "usps-full-0")
    (out / "runs" / "usps-full-0").mkdir()
    (out / "runs" / "usps-full-0" / "thesis.tex").write_text("years of work")
    assert call(*arguments("table1", data, out, "2", epochs=3), "--force") == 1
    shown = capsys.readouterr()
    assert "2 runs: 1 finished, 0 interrupted, 1 missing; 1 to run again" in shown.out
    assert shown.err.startswith("cts: usps-full-0 failed: ")
    assert "is not empty and holds no run" in shown.err
    assert shown.err.count("\n") == 1
    assert "1 (1)" in shown.out  # the table names its only seed
    rows = tables.read(out / "table1.csv")
    assert rows["seed"].tolist() == [1]
    assert "search=relaxed:3" in rows["settings"][0]
    assert (out / "runs" / "usps-full-0" / "thesis.tex").read_text() == "years of work"


@pytest.mark.subprocess
@pytest.mark.usefixtures("no_process")
def test_a_table_grows(finished: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows on data sets that are not asked for now stay, if they were made with the same settings."""
    out = Path(shutil.copytree(finished, tmp_path / "out"))
    rows = tables.read(out / "table1.csv")
    rows.loc[0, "preset"] = "paper"
    rows.to_csv(out / "table1.csv", index=False)
    same, other = (arguments("table1", data, out, "2", epochs=epochs) for epochs in (2, 3))
    for flags, seeds in ((other, [0, 1]), (same, [1])):  # without any row nothing is written
        flags[flags.index("usps")] = "digits"
        assert call(*flags, "--no-run") == 0
        assert tables.read(out / "table1.csv")["seed"].tolist() == seeds
        assert "rows of" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.subprocess
def test_interrupted_runs_continue(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    flags = arguments("table1", data, out, "1", epochs=80)
    run = RunFolder(out / "runs" / "usps-full-0")
    line = [sys.executable, "-m", "converge_to_surprise", *flags]
    program = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: run.history.is_file() and run.history.stat().st_size > 0)
    os.kill(program.pid, signal.SIGINT)  # to this process alone: it must stop its child
    _, errors = program.communicate(timeout=120)
    assert program.returncode == 130
    assert errors.startswith("stopping the runs")
    assert errors.endswith("cts: stopped by SIGINT; the runs are saved: the same command continues them\n")
    assert 0 < len(run.records()) < 161
    assert any(run.checkpoints.glob("*.safetensors"))
    assert not run.result.exists()
    with run.locked():  # no process is at work there any more
        pass
    assert call(*flags) == 0
    shown = capsys.readouterr().out
    assert "1 run: 0 finished, 1 interrupted, 0 missing" in shown
    assert "usps-full-0: resume done in" in shown
    assert [record["step"] for record in run.records()] == list(range(161))
    assert run.result.is_file()


def wait_for(condition: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


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
        ("--dataset digits --data-dir . --out file", "cannot make the run folder file: "),
        ("--dataset usps", "usps is not in the local folder and could not be downloaded"),
    ],
)
def test_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, flags: str, message: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(datasets, "fetch_openml", fail)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    assert call("reproduce", "table1", *flags.split()) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"cts: {message}")
    assert shown.err.count("\n") == 1
    assert os.listdir(tmp_path) == ["file"]


def test_missing_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert call("reproduce", "table1", "--dataset", "digits") == 2
    expected = "cts: cts reproduce needs pandas: pip install 'converge-to-surprise[experiments]'\n"
    assert capsys.readouterr().err == expected


@pytest.mark.subprocess
def test_the_command_imports_nothing_heavy() -> None:
    heavy = ("torch", "sklearn", "scipy", "pandas", "matplotlib")
    code = f"import sys, converge_to_surprise.cli.reproduce; print([n for n in {heavy} if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# Processes. They are small programs here, not runs.

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("asked to stop", flush=True))
print("ready", flush=True)
while True:
    time.sleep(1)
"""


def run_programs(folder: Path, width: int, *programs: str) -> dict[str, str]:
    listed = [pool.Task(f"task-{n}", [text], folder / "logs" / f"{n}.log") for n, text in enumerate(programs)]
    return pool.Pool(width).run(listed, lambda *_: None)


@pytest.fixture
def small_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "PROGRAM", [sys.executable, "-S", "-c"])


@pytest.mark.subprocess
@pytest.mark.usefixtures("small_programs")
def test_errors_by_name(tmp_path: Path) -> None:
    programs = [
        "print('fine')",
        "import sys; print('cts: no such thing'); sys.exit(2)",
        "import os; os.kill(os.getpid(), 9)",
        "raise SystemExit(3)",
    ]
    errors = run_programs(tmp_path, 2, *programs)
    assert errors == {"task-1": "no such thing", "task-2": "ended by SIGKILL", "task-3": "exit code 3"}


@pytest.mark.subprocess
@pytest.mark.usefixtures("small_programs")
def test_a_second_signal_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SAME_SECONDS", 0.0)
    before, log = signal.getsignal(signal.SIGINT), tmp_path / "logs" / "0.log"

    def interrupt_twice() -> None:
        for line in ("ready", "asked to stop"):
            wait_for(lambda line=line: log.exists() and line in log.read_text())  # type: ignore[misc]
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_twice).start()
    with pytest.raises(Interrupted) as stop:
        run_programs(tmp_path, 1, STUBBORN, "print('never')")
    assert stop.value.signal_number == signal.SIGINT
    assert log.read_text() == "ready\nasked to stop\n"
    assert not (tmp_path / "logs" / "1.log").exists()
    assert signal.getsignal(signal.SIGINT) is before


# Variants.

SIZES = {"mnist": (60_000, 28), "fashion-mnist": (60_000, 28), "usps": (7291, 16), "digits": (1797, 8)}


def blank(name: str) -> Dataset:
    """As many images as the data set has; they take no memory."""
    count, side = SIZES[name]
    return Dataset(name, ImageStore(torch.zeros(1, 1, 1, 1, dtype=torch.uint8).expand(count, 1, side, side)))


@pytest.mark.parametrize("preset", ["fast", "paper"])
@pytest.mark.parametrize("name", SIZES)
def test_arguments_give_the_configuration(preset: presets.PresetName, name: str) -> None:
    recipe = plan.Recipe(preset, {"checkpoint_seconds": 7, "relaxed": {"heads": 6}})
    runs = plan.plan(Path("out"), recipe, {name: blank(name)}, [3], ablation=True)
    assert len(runs) >= 3
    for run in runs:
        images = blank(name).train
        parsed = effective_config(parse_words([*run.arguments, "--out", "x"]), (len(images), *images.shape))
        assert differences(parsed, run.config).keys() <= {"threads"}, run.name
        assert (parsed.seed, parsed.n_init, parsed.relaxed.heads) == (3, 1, 1 if run.variant == "one-head" else 6)


def test_names_of_runs() -> None:
    def names(preset: presets.PresetName, ablation: bool) -> list[str]:
        runs = plan.plan(Path("out"), plan.Recipe(preset, {}), {"usps": blank("usps")}, [0, 4], ablation)
        return [run.name for run in runs]

    assert names("fast", False) == ["usps-full-0", "usps-full-4"]
    assert names("fast", True)[:2] == ["usps-full-0", "usps-without-augmentation-0"]
    # The paper's search has one initialization and one head, fills nothing and merges nothing.
    assert [name for name in names("paper", True) if name.endswith("-4")] == [
        "usps-full-4", "usps-without-augmentation-4", "usps-without-consolidation-4", "usps-without-zoom-out-4",
    ]  # fmt: skip


def test_what_a_variant_changes(bars: Tensor) -> None:
    base = presets.resolve("fast", None, "usps", 7291, (1, 16, 16))
    changed = {name: set(differences(base, variant.change(base))) for name, variant in VARIANTS.items()}
    assert changed["full"] == set()
    assert changed["without-zoom-out"] == {"augmentation.zoom_out", "augmentation.zoom_out_prob"}
    assert changed["without-filling"] == {"views.fill_masked"}
    assert changed["without-neighbors"] == {"relaxed.neighbor_prob"}
    assert changed["one-head"] == {"relaxed.heads"}
    assert changed["without-consolidation"] == {"schedule"}
    assert changed["without-merging"] == {"n_clusters", "merge.min_cluster_fraction"}
    plain = VARIANTS["without-augmentation"].change(base)
    image = torch.rand(4, 1, 32, 32)
    assert torch.equal(augment(image, plain.augmentation, torch.Generator().manual_seed(0), signed=False), image)
    assert (plain.merge.rotation, plain.merge.crop) == (0, 0)
    config = Config(threads=1, schedule=(Stage("search", "relaxed", 1),), relaxed=Relaxed(heads=2, batch_size=60))
    uncalibrated = VARIANTS["without-calibration"].change(config)
    weight = random_network(config, 1, 2).head.weight
    assert torch.equal(Trainer(bars, uncalibrated).network.head.weight, weight)
    assert not torch.equal(Trainer(bars, config).network.head.weight, weight)


# Tables.


def frame(*rows: tuple[str, str, int, float]) -> pd.DataFrame:
    """Rows of data set, variant, seed and ACC."""
    common = {"preset": "fast", "command": "cts fit usps --threads 1", "versions": "torch 2", "split": "test"}
    scores = {"nmi": 0.5, "ari": 0.25, "acc_both": None, "settings": "{}"}
    return pd.DataFrame(
        [
            common
            | scores
            | {"dataset": d, "variant": v, "seed": s, "acc": a, "seconds": 60.0 + s, "n_clusters": 10 + s}
            for d, v, s, a in rows
        ],
        columns=list(tables.COLUMNS),
    )


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9))
def test_mean_and_population_deviation(values: list[float]) -> None:
    expected = (statistics.fmean(values) * 100, statistics.pstdev(values) * 100)
    shown = [float(word) for word in tables.percent(pd.Series(values)).split(" ± ")]
    assert shown == pytest.approx(expected, abs=0.051)


def test_summary_by_hand() -> None:
    rows = frame(("usps", "full", 2, 0.90), ("usps", "full", 0, 0.96), ("usps", "full", 1, 0.84))
    found = list(tables.summarize(rows, "dataset").loc["usps"])
    assert found[:6] == ["90.0 ± 4.9", "50.0 ± 0.0", "25.0 ± 0.0", "11.0 ± 0.8", "3 (0-2)", "61 ± 1 s"]
    assert found[6] == "–"
    single = tables.table1(frame(("usps", "full", 4, 0.9)))
    (ours,) = [line for line in single.splitlines() if line.startswith("| converge")]
    assert [cell.strip() for cell in ours.split("|")][2:7] == ["90.0", "50.0", "25.0", "14.0", "1 (4)"]
    assert "Not the preset alone" not in single


def test_ablation_table() -> None:
    rows = frame(
        ("usps", "full", 0, 0.9), ("usps", "full", 1, 0.9), ("usps", "without-zoom-out", 0, 0.5),
        ("digits", "full", 0, 0.7),
    )  # fmt: skip
    usps, digits = tables.ablation(rows).split("## digits")
    (full,) = [line for line in usps.splitlines() if line.startswith("| full")]
    (zoom,) = [line for line in usps.splitlines() if "zoom-out" in line]
    assert "| 2 (0, 1) " in full
    assert full.endswith("| 94.9 ± 1.8 | 90.2 ± 1.3 | 90.3 ± 2.8 |")
    assert "| 1 (0) " in zoom
    assert zoom.endswith("| 83.4 ± 3.3 | 80.4 ± 2.8 | 73.0 ± 4.8 |")
    assert "zoom-out" not in digits


def test_published_numbers() -> None:
    """Spot checks against the papers' tables, one per kind of row."""
    found = tables.published().set_index(["method", "variant", "dataset"])
    assert found.loc[("the paper", "full", "mnist"), "acc"] == "98.3 ± 0.5"
    assert found.loc[("UNSEEN+DKM", "full", "usps"), "ari"] == "62.6 ± 10.6"
    assert found.loc[("DBSCAN", "full", "fashion-mnist"), "n_clusters"] == "4.0 ± 0.0"
    spc = found.loc[("SPC", "full", "fashion-mnist"), ["nmi", "ari", "n_clusters"]]
    assert list(spc) == ["73.5", "–", "given"]
    assert found.loc[("the paper", "without-consolidation", "usps"), "nmi"] == "66.2 ± 5.1"
    assert ("the paper", "without-zoom-out", "mnist") not in found.index
    assert found.index.is_unique
    assert found["source"].notna().all()


# Figures.


def test_panels_only_of_cells_with_enough_images() -> None:
    clusters = np.array([0] * 50 + [0] * 49 + [1] * 120)
    classes = np.array([3] * 50 + [4] * 49 + [5] * 120)
    found = choose_panels(clusters, classes)
    assert [(panel.cluster, panel.class_number, panel.images) for panel in found] == [(0, 3, 50), (1, 5, 120)]
    for panel in found:
        assert len(set(panel.shown)) == 9
        assert all(clusters[i] == panel.cluster and classes[i] == panel.class_number for i in panel.shown)
    assert found == choose_panels(clusters, classes)


@pytest.mark.parametrize("channels", [1, 3])
def test_panels_show_the_images(channels: int) -> None:
    images = np.zeros((100, channels, 28, 28), dtype=np.uint8)
    images[7] = 200
    sheet = figures.montage(images[[20, 7, *range(30, 37)]])
    assert sheet.shape == (86, 86, channels)
    assert (sheet[:28, 29:57] == 200).all()
    assert (sheet[:28, :28] == 0).all()
    figure = figures.panels([Panel(0, 1, 100, [7, *range(20, 28)])], images, ["cluster 0, digit 1"])
    pixels = np.asarray(Image.open(io.BytesIO(figures.render(figure, "png"))).convert("L"))
    assert {0, 200, 255} <= set(np.unique(pixels).tolist())


def test_stages_that_begin_close_together_share_a_label() -> None:
    names = ["search"] * 60 + ["merge"] + ["refine"] * 39
    records = [{"step": n, "stage": name, "surprising": n % 7, "active": 8} for n, name in enumerate(names)]
    assert figures.stages(records) == [("search", 0), ("merge, refine", 60)]
    axes = figures.curves("title", {"seed 0": records}, 10).axes[0]
    assert np.array_equal(axes.lines[0].get_ydata(), [n % 7 for n in range(100)])
    assert np.array_equal(axes.lines[1].get_ydata(), [8] * 100)
    assert axes.lines[2].get_linestyle() == "--"
    assert axes.lines[2].get_ydata()[0] == 10  # type: ignore[index]
