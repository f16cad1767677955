"""A run with several starts is the one of their runs that has the best balanced clusters, and nothing else."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import torch
from faults.harness import SETTINGS
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from converge_to_surprise import SurpriseClustering, cli
from converge_to_surprise.config import Config, Merge, Relaxed, Stage, presets
from converge_to_surprise.core.rng import init_seed
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model import validation as vetting
from converge_to_surprise.model.network import flatten
from converge_to_surprise.report.comparison import compare_runs
from converge_to_surprise.report.content import progress
from converge_to_surprise.runs import checkpoint
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.result import read_result, selection_text
from converge_to_surprise.runs.session import finish
from converge_to_surprise.search import schedule
from converge_to_surprise.search.snapshot import Snapshot
from converge_to_surprise.search.trainer import Trainer


@pytest.fixture(scope="module")
def few() -> Tensor:
    return striped_images(60)[0]


@pytest.fixture
def several(small: Config) -> Config:
    """Three starts of a second's run, whose searches end in different clusters."""
    stages = (Stage("search", "relaxed", 4), Stage("merge", "merge", 1), Stage("refine", "refine", 1))
    relaxed = Relaxed(heads=2, batch_size=10, temperature=0.1, diversity_floor=(4.0, 4.0))
    network, merge = replace(small.network, width=4), Merge(clusters=6, augmented_pairs=100, neighbor_pairs=100)
    return replace(small, schedule=stages, network=network, relaxed=relaxed, merge=merge, n_init=3)


def trained(images: Tensor, config: Config) -> Trainer:
    trainer = Trainer(images, config)
    for _ in trainer.run():
        pass
    return trainer


def stored(snapshot: Snapshot) -> Snapshot:
    """As it comes back from a file."""
    return checkpoint.unpack(checkpoint.pack(snapshot))


@given(st.integers(0, 2**63 - 1), st.integers(0, 999))
def test_starts_have_seeds_of_their_own_which_are_seeds(seed: int, start: int) -> None:
    seeds = {init_seed(seed, other) for other in range(start + 1)}
    assert len(seeds) == start + 1
    assert seed in seeds
    assert all(Config(seed=found) for found in seeds)


def test_the_runs_of_a_table_share_no_start() -> None:
    seeds = Counter(init_seed(seed, start) for seed in range(1000) for start in range(5))
    assert max(seeds.values()) == 1


def test_the_schedule_is_worked_through_once_for_each_start(several: Config) -> None:
    one = list(schedule.steps(replace(several, n_init=1), 60))
    found = list(schedule.steps(several, 60))
    assert found == [replace(step, start=start) for start in range(3) for step in one]
    assert schedule.count_steps(several, 60) == len(found)


@pytest.mark.parametrize("search", ["relaxed", "evolution"])
def test_the_most_even_of_the_single_runs_is_taken(
    search: str, bars: Tensor, few: Tensor, small: Config, several: Config
) -> None:
    config, images = (several, few) if search == "relaxed" else (replace(small, n_init=3), bars)
    alone = [trained(images, replace(config, n_init=1, seed=init_seed(0, start))) for start in range(3)]
    sizes = [finish(trainer).model.final.sizes for trainer in alone]
    even = [reference.balance(found) for found in sizes]
    assert len(set(even)) > 1, "the starts must differ for this to show anything"
    best = even.index(max(even))

    together = trained(images, config)
    assert together.starts.summary(config) == {
        "seeds": [0, 1000, 2000],
        "balance": pytest.approx(even),
        "taken": best,
    }
    assert torch.equal(flatten(together.network), flatten(alone[best].network))
    assert together.merged == alone[best].merged
    ours, theirs = finish(together), finish(alone[best])
    assert torch.equal(ours.reading.output, theirs.reading.output)
    assert torch.equal(ours.reading.probabilities, theirs.reading.probabilities)
    assert ours.model.final.sharpness == theirs.model.final.sharpness


def test_each_start_is_taken_by_some_seed(few: Tensor, several: Config) -> None:
    """Not always the first, not always the last: the choice is one."""
    two = replace(several, n_init=2)
    found = {trained(few, replace(two, seed=seed)).starts.best.start for seed in range(6)}  # type: ignore[union-attr]
    assert found == {0, 1}


def test_records_go_on_over_all_starts_and_name_them(few: Tensor, several: Config) -> None:
    trainer = Trainer(few, several)
    records = list(trainer.run())
    assert [record.step for record in records] == list(range(trainer.total))
    per = trainer.total // 3
    single = list(Trainer(few, replace(several, n_init=1)).run())
    timeless = [replace(record, seconds=0) for record in single]
    assert [replace(r, seconds=0, stage=r.stage.removesuffix(" 1/3")) for r in records[:per]] == timeless
    assert [record.stage for record in records[per : per + 2]] == ["search 2/3", "search 2/3"]
    assert records[-1].stage == "refine 3/3"
    assert records[-1].views == 3 * single[-1].views


def test_a_restored_trainer_goes_on_bit_for_bit_in_any_start(few: Tensor, several: Config) -> None:
    straight = Trainer(few, several)
    snapshots = [straight.snapshot(), *(straight.snapshot() for _ in straight.run())]
    for snapshot in map(stored, snapshots):
        vetting.check_snapshot(snapshot, several, 1)
        vetting.check_position(snapshot, several, 1, len(few))
    per = straight.total // 3
    for place in (1, per - 1, per, per + 1, 2 * per, 3 * per - 1, 3 * per):
        trainer = Trainer(few, several)
        trainer.restore(stored(snapshots[place]))
        for _ in trainer.run():
            pass
        end = trainer.snapshot()
        assert end.tensors.keys() == snapshots[-1].tensors.keys()
        assert all(torch.equal(tensor, snapshots[-1].tensors[name]) for name, tensor in end.tensors.items())
        assert end.data | {"seconds": 0} == snapshots[-1].data | {"seconds": 0}
        assert torch.equal(finish(trainer).reading.probabilities, finish(straight).reading.probabilities)


def test_a_snapshot_from_before_there_were_starts_is_understood(few: Tensor, small: Config) -> None:
    trainer = Trainer(few, small)
    next(trainer.run())
    tensors, data = trainer.snapshot()
    old = stored(Snapshot(tensors, {name: data[name] for name in data.keys() - {"balance", "best"}}))
    vetting.check_snapshot(old, small, 1)
    vetting.check_position(old, small, 1, len(few))
    again = Trainer(few, small)
    again.restore(old)
    assert again.step == 1
    assert torch.equal(flatten(again.network), flatten(trainer.network))


def test_forged_starts_are_refused(few: Tensor, several: Config) -> None:
    two = replace(several, n_init=2)
    tensors, data = stored(trained(few, two).snapshot())

    def refuse(tensors: dict[str, Tensor], data: dict[str, object], what: str) -> None:
        def check() -> None:
            vetting.check_snapshot(Snapshot(tensors, data), two, 1)
            vetting.check_position(Snapshot(tensors, data), two, 1, len(few))

        with pytest.raises((ValueError, KeyError), match=what):
            check()

    best = data["best"]
    refuse(tensors, data | {"best": best | {"start": 2}}, "best start")
    refuse(tensors, data | {"best": best | {"start": -1}}, "best start")
    refuse(tensors, data | {"best": best | {"clusters": 10**9}}, "heads or clusters")
    refuse(tensors, data | {"best": best | {"clusters": best["clusters"] + 1}}, "head")
    refuse(tensors, data | {"balance": [0.5]}, "balance")
    refuse(tensors, data | {"balance": [0.5, 0.5, 0.5]}, "balance")
    refuse(tensors, data | {"balance": [0.5, math.nan]}, "balance")
    refuse(tensors, data | {"balance": [0.5, "much"]}, "balance")
    refuse(tensors, data | {"balance": [0.5, 1e308]}, "balance")
    refuse(tensors, data | {"balance": "ab"}, "balance")
    refuse(tensors, data | {"best": None}, "balance")
    refuse(tensors | {"best.network.head.bias": tensors["network.head.bias"] * math.inf}, data, "head.bias")
    refuse({name: t for name, t in tensors.items() if name != "best.network.head.bias"}, data, "head.bias")


def test_only_the_fast_preset_starts_twice() -> None:
    shape = (1, 28, 28)
    assert presets.resolve("fast", None, "auto", 1000, shape).starts == 2
    assert presets.resolve("fast", "evolution", "auto", 1000, shape).starts == 1
    assert presets.resolve("paper", None, "auto", 1000, shape).starts == 1
    assert presets.resolve("paper", "relaxed", "auto", 1000, shape).starts == 1


def test_what_was_taken_is_said_in_words() -> None:
    starts = {"seeds": [7, 1007, 2007], "balance": [0.9, 0.8, 0.7], "taken": 0}
    assert (
        selection_text(starts)
        == "start 1 of 3 (seed 7): its clusters are the best balanced, 0.900 against 0.800, 0.700"
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs by the command line: of two starts together and of each alone."""
    home = tmp_path_factory.mktemp("starts")
    images, classes = striped_images(60)
    np.savez(home / "bars.npz", images=images.numpy(), labels=classes)
    flags = [word for word in SETTINGS["starts"].split() if word != "--no-report"]

    def fit(name: str, *more: str) -> Path:
        assert cli.main(["fit", str(home / "bars.npz"), "--out", str(home / name), *flags, *more]) == 0
        return home / name

    words = {"both": (), "first": ("--n-init", "1"), "second": ("--n-init", "1", "--seed", "1002")}
    return {name: fit(name, *more) for name, more in words.items()}


def test_the_command_line_says_what_was_taken(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    result = read_result(folders["both"] / "result.json")
    taken = result["starts"]["taken"]
    assert read_result(folders["first"] / "result.json")["starts"] is None
    assert (folders["both"] / "labels.csv").read_bytes() == (
        folders[("first", "second")[taken]] / "labels.csv"
    ).read_bytes()
    assert cli.main(["show", str(folders["both"])]) == 0
    said = capsys.readouterr().out
    assert f"taken     {selection_text(result['starts'])}" in said
    assert "seed 2, starts 2, threads 1" in said
    assert cli.main(["resume", str(folders["both"])]) == 0
    assert f"taken: {selection_text(result['starts'])}" in capsys.readouterr().out
    facts = dict(progress(RunFolder.open(folders["both"]))["facts"])
    assert facts["Seed"] == f"{2 + 1000 * taken} (start {taken + 1} of 2)"


def test_a_comparison_shows_how_even_the_runs_are(folders: dict[str, Path]) -> None:
    runs = [RunFolder.open(path) for path in folders.values()]
    found = {row[0]: row[1:] for row in compare_runs(runs)["results"]}
    assert found["balance"] == [
        f"{reference.balance([row['size'] for row in read_result(run.result)['clusters']]):.3f}" for run in runs
    ]


@pytest.mark.parametrize(
    "starts",
    [
        {}, [], "two",
        {"seeds": [0, 1000], "balance": [0.5, 0.6], "taken": 2},
        {"seeds": [0, 1000], "balance": [0.5, 0.6], "taken": -1},
        {"seeds": [0], "balance": [0.5, 0.6], "taken": 0},
        {"seeds": [0, 1000], "balance": [0.5, "more"], "taken": 0},
    ],
)  # fmt: skip
def test_a_damaged_result_is_named(starts: object, folders: dict[str, Path], tmp_path: Path) -> None:
    result = json.loads((folders["both"] / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps(result | {"starts": starts}))
    with pytest.raises(ValueError, match=r"result\.json is damaged: it does not say which start was taken"):
        read_result(tmp_path / "result.json")


def test_the_estimators_n_init(few: Tensor, several: Config) -> None:
    settings = {
        "schedule": [str(stage) for stage in several.schedule],
        "network": {"width": 4},
        "views": {"upsample": 1},
        "relaxed": {"heads": 2, "batch": 10, "temperature": 0.1, "diversity_floor": [4, 4]},
        "merge": {"augmented_pairs": 100, "neighbor_pairs": 100},
    }

    def fitted(**params: Any) -> SurpriseClustering:
        return SurpriseClustering(settings=settings, max_clusters=6, n_clusters=6, n_threads=1, **params).fit(few)

    alone = [fitted(n_init=1, random_state=init_seed(3, start)) for start in range(3)]
    even = [reference.balance(np.bincount(model.labels_).tolist()) for model in alone]
    together = fitted(n_init=3, random_state=3)
    np.testing.assert_array_equal(together.labels_, alone[even.index(max(even))].labels_)
    assert len(together.history_) == 3 * len(alone[0].history_)
    assert len(fitted(random_state=3).history_) == 2 * len(alone[0].history_)
    with pytest.raises(ValueError, match="starts is 0; it must be from 1 to 1000"):
        fitted(n_init=0)


@pytest.mark.parametrize("value", [2.0, True, "auto"])
def test_n_init_is_a_integer(value: Any, few: Tensor) -> None:
    with pytest.raises(ValueError, match=f"n_init is {value!r}; it must be a whole number"):
        SurpriseClustering(n_init=value).fit(few)


def test_a_numpy_number_of_starts_can_be_saved(few: Tensor, several: Config, tmp_path: Path) -> None:
    settings = {"schedule": ["s=relaxed:1"], "network": {"width": 2}, "relaxed": {"heads": 1, "batch": 30}}
    two: Any = np.int64(2)
    model = SurpriseClustering(n_init=two, max_clusters=3 * two, settings=settings, n_threads=1).fit(few)
    model.save(tmp_path / "model.safetensors")
    again = SurpriseClustering.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(few), model.labels_)


def test_a_backbone_that_draws_has_the_starts_of_single_runs(few: Tensor) -> None:
    """Dropout draws from torch's own generator, which every start finds as a run of its own would."""
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.3))
    settings = {"schedule": ["s=relaxed:2"], "relaxed": {"heads": 1, "batch": 30}, "views": {"upsample": 1}}

    def history(n_init: int, seed: int) -> list[dict[str, Any]]:
        model = SurpriseClustering(
            n_init=n_init, random_state=seed, settings=settings, backbone=backbone, max_clusters=6, n_threads=1
        ).fit(few)
        return [{name: record[name] for name in ("epoch", "surprise", "active")} for record in model.history_]

    assert history(2, 5) == history(1, 5) + history(1, 1005)
