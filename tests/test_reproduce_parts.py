"""The parts of ``cts reproduce``: variants, plan, pool of processes, means, figures, the README's table."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor

from converge_to_surprise import cli
from converge_to_surprise.config import Config, Merge, Network, Relaxed, Stage, presets
from converge_to_surprise.core.augment import augment
from converge_to_surprise.core.views import make_views, to_float
from converge_to_surprise.data.datasets import Dataset
from converge_to_surprise.data.store import ImageStore
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.model.inference import run_all
from converge_to_surprise.reproduce import cost, curves, panels, plan, pool, published, tables
from converge_to_surprise.reproduce.variants import VARIANTS, differences
from converge_to_surprise.reproduce.watch import Display
from converge_to_surprise.runs.session import Interrupted
from converge_to_surprise.search import merge
from converge_to_surprise.search.trainer import Trainer

ROOT = Path(__file__).parents[1]
SIZES = {"mnist": (60_000, 28), "fashion-mnist": (60_000, 28), "usps": (7291, 16), "digits": (1797, 8)}


def blank(name: str) -> Dataset:
    """As many images as the data set has; they take no memory."""
    count, side = SIZES[name]
    return Dataset(name, ImageStore(torch.zeros(1, 1, 1, 1, dtype=torch.uint8).expand(count, 1, side, side)))


# Variants.


@pytest.mark.parametrize("preset", ["fast", "paper"])
@pytest.mark.parametrize("name", SIZES)
def test_flags_lead_to_the_variant(preset: presets.PresetName, name: str) -> None:
    """What ``cts fit`` makes of a job's words is the configuration that the job wants."""
    recipe = plan.Recipe(preset, {"checkpoint_seconds": 7, "relaxed": {"heads": 6}})
    jobs = plan.plan(Path("out"), "ablation", recipe, {name: blank(name)}, [3])
    assert len(jobs) >= 3
    for job in jobs:
        words = ["fit", *job.fit, "--out", "x"]
        fit = cli._parse(cli.Command, words)
        parsed = cli._effective(fit, words, blank(name))
        assert differences(parsed, job.config).keys() <= {"threads"}, job.name
        assert parsed.seed == 3


def test_what_a_variant_takes_away() -> None:
    base = presets.resolve("fast", None, "usps", 7291, (1, 16, 16))
    changed = {name: set(differences(base, variant.change(base))) for name, variant in VARIANTS.items()}
    assert changed["full"] == set()
    assert changed["without-zoom-out"] == {"augmentation.zoom_out", "augmentation.zoom_out_prob"}
    assert changed["without-filling"] == {"views.fill"}
    assert changed["one-head"] == {"relaxed.heads"}
    assert changed["without-calibration"] == {"relaxed.calibrate"}
    assert {name.partition(".")[0] for name in changed["without-merging"]} == {"merge"}
    plain = VARIANTS["without-augmentation"].change(base)
    image = torch.rand(4, 1, 32, 32)
    assert torch.equal(augment(image, plain.augmentation, torch.Generator().manual_seed(0), signed=False), image)


def test_without_consolidation_drops_stages_and_passes() -> None:
    stages = ("a=relaxed:2", "m=merge:1", "b=evolution:6:2@3", "c=consolidate:4")
    config = Config(schedule=tuple(map(Stage.parse, stages)))
    changed = VARIANTS["without-consolidation"].change(config)
    assert [str(stage) for stage in changed.schedule] == ["a=relaxed:2", "m=merge:1", "b=evolution:6"]


def test_a_variant_that_changes_nothing_has_no_runs() -> None:
    def variants(preset: presets.PresetName, name: str) -> set[str]:
        jobs = plan.plan(Path("out"), "ablation", plan.Recipe(preset, {}), {name: blank(name)}, [0])
        return {job.variant for job in jobs}

    assert "without-zoom-out" not in variants("fast", "mnist")
    assert "without-zoom-out" in variants("fast", "usps")
    # The paper's search has one head, fills nothing and merges nothing.
    assert variants("paper", "usps") == {"full", "without-augmentation", "without-consolidation", "without-zoom-out"}


def test_without_merging_all_clusters_of_a_head_remain() -> None:
    """Three heads with clusters 0 to 3, of which 0 and 1, and 2 and 3, are confused with each other; 3 is small."""
    table = torch.tensor([[300, 200, 0, 0], [200, 300, 0, 0], [0, 0, 950, 20], [0, 0, 20, 10]])
    joint = torch.nn.functional.pad(table, (0, 4, 0, 4)).expand(3, 8, 8)
    labels = np.random.default_rng(0).integers(0, 4, (100, 1)).repeat(3, axis=1)
    config = replace(presets.resolve("fast", None, "usps", 7291, (1, 16, 16)), max_clusters=8, network=Network())

    def clusters(settings: Merge) -> int:
        trees = [merge.build_merge_tree(counts.double().numpy(), settings.smallest) for counts in joint]
        return merge.choose(trees, joint, labels, settings).clusters

    assert clusters(config.merge) < 4
    assert clusters(VARIANTS["without-merging"].change(config).merge) == 4


def test_calibration_can_be_left_out(bars: Tensor) -> None:
    config = Config(threads=1, schedule=(Stage("search", "relaxed", 1),), relaxed=Relaxed(heads=2, batch_size=60))
    plain = random_network(1, config.network, 2, config.seed).head.weight
    assert not torch.equal(Trainer(bars, config).network.head.weight, plain)
    changed = VARIANTS["without-calibration"].change(config)
    assert torch.equal(Trainer(bars, changed).network.head.weight, plain)


def test_both_views_by_a_slow_loop(bars: Tensor) -> None:
    config = Config()
    network = random_network(Config(seed=0, max_clusters=6, network=Network(width=2)), 1, 1)
    with torch.no_grad():  # a head on centered features, so that every output wins somewhere
        for view in make_views(to_float(bars), config.views) * 30:
            features = network.features(view)
        network.head.bias.copy_(-(network.head.weight @ features.mean(0)))
    first, second, both, _, _ = run_all(network, bars, config.views, 10.0)
    network.eval()
    with torch.no_grad():
        for index, image in enumerate(bars):
            views = make_views(to_float(image[None]), config.views)
            outputs = [network.logits(view)[0] for view in views]
            winners = [int(out.argmax()) for out in outputs]
            mean = sum((out / out.norm() for out in outputs), torch.zeros(6)) / 2
            expected = [*winners, int(mean.argmax())]
            assert [int(first[index]), int(second[index]), int(both[index])] == expected
    assert len({tuple(labels.tolist()) for labels in (first, second, both)}) == 3


# Cost.


def test_the_papers_search_is_known_to_take_weeks() -> None:
    recipe = plan.Recipe("paper", {})
    sets = {"mnist": blank("mnist")}
    jobs = plan.plan(Path("nowhere"), "table1", recipe, sets, range(5))
    text = cost.announcement(jobs, {"mnist": (60_000, (1, 28, 28))}, 2)
    assert text.startswith("5 runs: 0 finished, 0 interrupted, 5 to begin; 2 at a time, very roughly ")
    assert 14 < int(text.split()[-2]) < 200
    assert text.endswith("days")


# Processes. They are small programs here, not runs.

SAVES = """
import signal, sys, time
def save(*_):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(60)
"""


def tasks(folder: Path, *programs: str) -> list[pool.Task]:
    return [pool.Task(f"task-{n}", [text], folder / "logs" / f"{n}.log") for n, text in enumerate(programs)]


@pytest.fixture
def small_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "PROGRAM", [sys.executable, "-S", "-c"])


class Notes(pool.Watcher):
    def __init__(self) -> None:
        self.most = 0
        self.order: list[str] = []

    def tick(self, running: Sequence[pool.Running]) -> None:
        self.most = max(self.most, len(running))

    def ended(self, task: pool.Task, seconds: float, error: str | None) -> None:
        self.order.append(task.name)


@pytest.mark.usefixtures("small_programs")
def test_errors_by_name_and_no_more_at_once_than_asked_for(tmp_path: Path) -> None:
    notes = Notes()
    programs = [
        "print('fine')",
        "import sys; print('cts: no such thing'); sys.exit(2)",
        "import os; os.kill(os.getpid(), 9)",
        "print('fine too')",
        "raise SystemExit(3)",
    ]
    errors = pool.run_all(tasks(tmp_path, *programs), 2, notes)
    assert errors == {"task-1": "no such thing", "task-2": "ended by SIGKILL", "task-4": "exit code 3"}
    assert notes.most == 2
    assert sorted(notes.order) == [f"task-{n}" for n in range(5)]


@pytest.mark.usefixtures("small_programs")
def test_a_signal_stops_all_and_lets_them_save(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    jobs = tasks(tmp_path, SAVES, SAVES, "print('never')")

    class Stopper(Notes):
        def tick(self, running: Sequence[pool.Running]) -> None:
            if all(one.last_line() == "ready" for one in running) and len(running) == 2:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted) as stop:
        pool.run_all(jobs, 2, Stopper())
    assert stop.value.signal_number == signal.SIGINT
    assert [job.log.read_text() for job in jobs[:2]] == ["ready\nsaved\n"] * 2
    assert not jobs[2].log.exists()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("small_programs")
def test_a_second_signal_ends_what_does_not_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SAME_SECONDS", 0.0)
    stubborn = SAVES.replace("sys.exit(0)", "pass").replace("time.sleep(60)", "[time.sleep(1) for _ in range(60)]")
    processes: list[subprocess.Popen[bytes]] = []

    class Stopper(Notes):
        def tick(self, running: Sequence[pool.Running]) -> None:
            processes[:] = [one.process for one in running]
            if running[0].last_line() == "ready":
                os.kill(os.getpid(), signal.SIGINT)

        def stopping(self, count: int) -> None:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()

    with pytest.raises(Interrupted):
        pool.run_all(tasks(tmp_path, stubborn), 1, Stopper())
    assert [process.returncode for process in processes] == [-signal.SIGKILL]


@pytest.mark.parametrize("terminal", [True, False])
def test_display(tmp_path: Path, terminal: bool) -> None:
    file = io.StringIO()
    (job,) = tasks(tmp_path, "")
    job.log.parent.mkdir()
    job.log.write_text("search   step 12/601  S 0.4\n")
    process = subprocess.Popen(["true"])
    with Display(Console(file=file, force_terminal=terminal, width=100), 3, 1) as display:
        display.began(job)
        display.tick([pool.Running(job, process)])
        if display._bar:
            display._bar.refresh()
        display.ended(job, 5, None)
        display.ended(job, 5, "no memory") if not terminal else None
    process.wait()
    text = file.getvalue()
    assert "task-0: done in 5 s; 2 of 3 done" in text
    assert ("step 12/601" in text) == terminal
    assert ("task-0: failed: no memory; 2 of 3 done, 1 failed" in text) != terminal


# Means.


def row(seed: int, acc: float, dataset: str = "usps", variant: str = "full", **more: Any) -> dict[str, Any]:
    metrics = {"acc": acc, "nmi": 0.5, "ari": 0.25, "n_clusters": 10 + seed, "acc_both": None, "nmi_both": None}
    return {
        "dataset": dataset, "variant": variant, "seed": seed, "preset": "fast", "command": "cts fit", "threads": 1,
        "versions": {"torch": "2"}, "seconds": 60.0 + seed, "split": "test", "metrics": metrics, "clusters": [], **more,
    }  # fmt: skip


def test_mean_and_population_deviation() -> None:
    (cell,) = tables.cells([row(2, 0.90), row(0, 0.96), row(1, 0.84)]).values()
    spread = cell.spread("acc", 100)
    assert spread is not None
    assert spread.mean == pytest.approx(90)
    assert spread.std == pytest.approx(np.sqrt(24))  # (36 + 0 + 36) / 3
    assert tables.shown(spread) == "90.0 ± 4.9"
    assert cell.seeds() == "3 (0-2)"
    assert cell.spread("acc_both") is None
    assert tables.measured(cell)[3] == "11.0 ± 0.8"
    assert tables.measured(cell)[5] == "61 ± 1 s"


def test_a_single_seed_has_no_deviation() -> None:
    text = tables.table1([row(4, 0.9)])
    (ours,) = [line for line in text.splitlines() if line.startswith("| converge")]
    assert "| 90.0 " in ours
    assert "| 1 (4) " in ours
    assert "±" not in ours
    assert "Not the preset alone" not in text


def test_ablation_says_how_many_seeds_each_cell_has() -> None:
    rows = [row(0, 0.9), row(1, 0.9), row(0, 0.5, variant="without-zoom-out"), row(0, 0.7, dataset="digits")]
    titles = {name: variant.title for name, variant in VARIANTS.items()}
    text = tables.ablation(rows, titles, [])
    usps, digits = text.split("## digits")
    assert "| 2 (0, 1) " in usps
    assert "| 1 (0) " in next(line for line in usps.splitlines() if "zoom-out" in line)
    assert "83.4 ± 3.3 | 80.4 ± 2.8 | 73.0 ± 4.8 |" in next(line for line in usps.splitlines() if "zoom-out" in line)
    assert "zoom-out" not in digits.split("- Preset")[0]


def test_published_numbers_of_the_paper() -> None:
    """Spot checks against the paper's tables, one per kind of row."""
    found = {(one.method, one.dataset): one for one in published.RESULTS}
    assert found["the paper", "mnist"].acc == (98.3, 0.5)
    assert found["UNSEEN+DKM", "usps"].ari == (62.6, 10.6)
    assert found["DBSCAN", "fashion-mnist"].clusters == (4.0, 0.0)
    assert found["SPC", "fashion-mnist"].nmi == (73.5, None)
    assert found["SPC", "fashion-mnist"].given
    loss = published.ablation("without-consolidation", "usps")
    assert loss is not None
    assert loss.nmi == (66.2, 5.1)
    assert published.ablation("without-zoom-out", "mnist") is None
    assert all(one.source for one in published.RESULTS)


# Figures.


def test_panels_only_of_cells_with_enough_images() -> None:
    clusters = np.array([0] * 50 + [0] * 49 + [1] * 120)
    classes = np.array([3] * 50 + [4] * 49 + [5] * 120)
    found = panels.choose(clusters, classes)
    assert [(panel.cluster, panel.number, panel.images) for panel in found] == [(0, 3, 50), (1, 5, 120)]
    for panel in found:
        assert len(set(panel.shown)) == 9
        assert all(clusters[i] == panel.cluster and classes[i] == panel.number for i in panel.shown)
    assert found == panels.choose(clusters, classes)


@pytest.mark.parametrize("channels", [1, 3])
def test_panels_show_the_images(channels: int) -> None:
    images = np.zeros((100, channels, 28, 28), dtype=np.uint8)
    images[7] = 255
    panel = panels.Panel(0, 1, 100, [7, *range(20, 28)])
    sheet = Image.open(io.BytesIO(panels.draw([panel], images, ["cluster 0, digit 1"]))).convert("L")
    pixels = np.asarray(sheet)
    top = panels.GAP + panels.CAPTION
    first = pixels[top : top + 56, panels.GAP : panels.GAP + 56]
    second = pixels[top : top + 56, panels.GAP + 58 : panels.GAP + 58 + 56]
    assert (first == 255).all()
    assert (second == 0).all()
    assert (pixels[: top - 2, :100] < 128).any()  # the caption


def test_no_panel_is_still_an_image() -> None:
    Image.open(io.BytesIO(panels.draw([], np.zeros((0, 1, 8, 8), dtype=np.uint8), []))).verify()


def records(stages: Sequence[tuple[str, Sequence[int]]]) -> list[dict[str, Any]]:
    flat = [(stage, count) for stage, counts in stages for count in counts]
    return [{"step": n, "epoch": 0, "stage": stage, "surprising": count} for n, (stage, count) in enumerate(flat)]


def test_thinning_keeps_the_ends_of_stages() -> None:
    history = records([("search", range(1000)), ("merge", [10])])
    points = curves.thin(history, 100)
    assert len(points) <= 102
    assert [point.surprising for point in points[-2:]] == [999, 10]
    assert curves.thin(history[:50], 100) == [curves.Point(n, 0, "search", n) for n in range(50)]


def test_curve_is_drawn_to_scale() -> None:
    lines = [curves.Curve(f"seed {n}", curves.thin(records([("a & b", [0, 20]), ("end", [n])]))) for n in (5, 10)]
    root = ElementTree.fromstring(curves.draw("x < y", lines, 10))
    space = "{http://www.w3.org/2000/svg}"
    drawn = [line.attrib["points"].split() for line in root.findall(f"{space}polyline")]
    heights = [[float(point.split(",")[1]) for point in points] for points in drawn]
    for first, (low, high, last) in zip((5, 10), heights, strict=True):
        assert (low - last) / (low - high) == pytest.approx(first / 20, abs=1e-3)
    texts = [text.text for text in root.findall(f"{space}text")]
    assert {"x < y", "a & b", "end", "seed 5", "seed 10", "10 classes"} <= set(texts)
    assert curves.stages(lines) == [("a & b", 0), ("end", 2)]


# The README.


def readme_table(*words: str) -> int:
    script = ROOT / "benchmarks" / "readme_table.py"
    return subprocess.run([sys.executable, script, *words], stdout=subprocess.DEVNULL, check=False).returncode


def test_readme_is_in_step_with_the_results() -> None:
    assert readme_table("--check") == 0, "run python benchmarks/readme_table.py"


def test_readme_follows_the_results(tmp_path: Path) -> None:
    readme = Path(shutil.copy(ROOT / "README.md", tmp_path))
    before = readme.read_text()
    rows = [row(seed, 0.9 + seed / 100) for seed in range(5)]
    (tmp_path / "table1.json").write_text(json.dumps({"runs": rows}))
    (tmp_path / "ablation.json").write_text(json.dumps({"runs": [*rows, row(0, 0.3, variant="one-head")]}))
    fault = {"fault": "lightning", "how": "", "tried": 1200, "survived": 1199, "lost": 1}
    (tmp_path / "faults.json").write_text(json.dumps({"faults": [fault, fault | {"fault": "flood"}]}))
    metrics = {"acc": 0.5, "nmi": 0.25, "ari": 0.125}
    subset = {"subset": "odd", "class sizes": [9, 170, 30]}
    found = [{**subset, "seed": k, "metrics": {**metrics, "n_clusters": 3 + k}} for k in range(3)]
    (tmp_path / "subsets.json").write_text(json.dumps({"runs": found}))
    place = ["--readme", str(readme), "--results", str(tmp_path)]
    assert readme_table("--check", *place) == 1
    assert readme.read_text() == before
    assert readme_table(*place) == 0
    after = readme.read_text()
    assert "| USPS | 92.0 ± 1.4 |" in " ".join(after.split())
    assert "94.9 / 90.2 / 90.3, 10.4 ± 0.5" in after
    assert "30.0 / 50.0 / 25.0, 10.0 (n=1)" in after
    assert "| odd | 3 | 9-170 | 4.0 ± 0.8 | 50.0 / 25.0 / 12.5 | 3 (0-2) |" in " ".join(after.split())
    assert "| flood | 1,200 | 1,199 | 1 | | all | 2,400 | 2,398 | 2 |" in " ".join(after.split())
    assert readme_table("--check", *place) == 0
    assert after.partition("<!-- results")[0] == before.partition("<!-- results")[0]
    assert after.partition("<!-- end of faults")[2] == before.partition("<!-- end of faults")[2]
