"""Several initializations in a run folder, on the command line and in the report."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from faults.harness import SETTINGS
from support.configs import few_initializations, stored
from torch import Tensor

from converge_to_surprise import cli
from converge_to_surprise.config import Config
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.report.comparison import compare_runs
from converge_to_surprise.report.content import progress
from converge_to_surprise.runs.checkpoint import check_position, check_snapshot
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.result import read_result, selection_text
from converge_to_surprise.search.restarts import Restarts
from converge_to_surprise.search.snapshot import Snapshot


@pytest.fixture(scope="module")
def two(small: Config) -> Config:
    """Two initializations with a merge."""
    return few_initializations(small, 2)


@pytest.fixture(scope="module")
def finished(two: Config) -> Snapshot:
    """The snapshot after the last step, as it is read from a file."""
    search = Restarts(striped_images(60)[0], two)
    for _ in search.run():
        pass
    snapshot = stored(search.snapshot())
    check(snapshot, two)
    return snapshot


def check(snapshot: Snapshot, config: Config) -> None:
    check_snapshot(snapshot, config, 1)
    check_position(snapshot, config, 60)


@pytest.mark.parametrize("held", [None, "6", [6, 0], [6, "26"], [6.5], [True]])
def test_numbers_that_held_which_are_none(two: Config, finished: Snapshot, held: Any) -> None:
    """They decide which stages are skipped."""
    with pytest.raises(ValueError, match="held"):
        check(finished._replace(data=finished.data | {"held": held}), two)


@pytest.mark.parametrize("grows", [None, 1, "yes"])
def test_whether_more_is_to_be_found_which_is_no_truth_value(two: Config, finished: Snapshot, grows: Any) -> None:
    with pytest.raises(ValueError, match="grows"):
        check(finished._replace(data=finished.data | {"grows": grows}), two)


INFORMATION: list[Any] = [[0.5], [0.5, 0.5, 0.5], [0.5, math.nan], [0.5, "much"], [0.5, 1e308], "ab", []]


@pytest.mark.parametrize("information", INFORMATION)
def test_a_snapshot_with_forged_information_is_refused(information: Any, two: Config, finished: Snapshot) -> None:
    first = finished.data["best"] | {"index": 0}  # whatever the search made of it
    with pytest.raises(ValueError, match="its information is not valid"):
        check(Snapshot(finished.tensors, finished.data | {"information": information, "best": first}), two)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"index": 2}, "best initialization"),
        ({"index": -1}, "best initialization"),
        ({"index": True}, "best initialization"),
        ({"n_outputs": 10**9}, "heads or outputs"),
        ({"n_outputs": 7}, "head"),
        ({"heads": 0}, "heads or outputs"),
    ],
)
def test_a_snapshot_with_a_forged_best_initialization_is_refused(
    change: dict[str, Any], message: str, two: Config, finished: Snapshot
) -> None:
    best = finished.data["best"]
    with pytest.raises(ValueError, match=message):
        check(Snapshot(finished.tensors, finished.data | {"best": best | change}), two)


def test_a_snapshot_without_the_networks_of_its_best_initialization_is_refused(two: Config, finished: Snapshot) -> None:
    name = "best.network.head.bias"
    with pytest.raises(ValueError, match="information"):
        check(Snapshot(finished.tensors, finished.data | {"best": None}), two)
    damaged: dict[str, Tensor] = finished.tensors | {name: finished.tensors[name] * math.inf}
    with pytest.raises(ValueError, match=r"head\.bias"):
        check(Snapshot(damaged, finished.data), two)
    lacking = {other: tensor for other, tensor in finished.tensors.items() if other != name}
    with pytest.raises(KeyError, match=r"head\.bias"):
        check(Snapshot(lacking, finished.data), two)


def test_the_selection_is_described_in_one_line() -> None:
    summary = {"seeds": [7, 1007, 2007], "information": [1.9, 0.8, 0.7], "selected": 0}
    expected = "initialization 1 of 3 (seed 7): its views tell most about each other, 1.900 nats against 0.800, 0.700"
    assert selection_text(summary) == expected


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs by the command line: of two initializations together and of each alone."""
    home = tmp_path_factory.mktemp("initializations")
    images, classes = striped_images(60)
    np.savez(home / "bars.npz", images=images.numpy(), labels=classes)
    flags = [word for word in SETTINGS["restarts"].split() if word != "--no-report"]

    def fit(name: str, *more: str) -> Path:
        assert cli.main(["fit", str(home / "bars.npz"), "--out", str(home / name), *flags, *more]) == 0
        return home / name

    runs = {"both": (), "first": ("--n-init", "1"), "second": ("--n-init", "1", "--seed", "1002")}
    return {name: fit(name, *more) for name, more in runs.items()}


@pytest.mark.slow
def test_the_run_is_the_selected_initialization_and_every_command_reports_it(
    folders: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    summary = read_result(folders["both"] / "result.json")["initializations"]
    selected = summary["selected"]
    alone = ("first", "second")
    assert read_result(folders["first"] / "result.json")["initializations"] is None
    tables = {name: (folder / "labels.csv").read_bytes() for name, folder in folders.items()}
    assert tables["both"] == tables[alone[selected]]
    assert tables["first"] != tables["second"], "the initializations must differ for this to show anything"
    assert cli.main(["show", str(folders["both"])]) == 0
    shown = capsys.readouterr().out
    assert f"selected  {selection_text(summary)}" in shown
    assert "seed 2, n_init 2, threads 1" in shown
    assert cli.main(["resume", str(folders["both"])]) == 0
    assert f"selected: {selection_text(summary)}" in capsys.readouterr().out
    facts = dict(progress(RunFolder.open(folders["both"]))["facts"])
    assert facts["Seed"] == f"{2 + 1000 * selected} (initialization {selected + 1} of 2)"


@pytest.mark.slow
def test_a_comparison_shows_the_balance_of_the_runs(folders: dict[str, Path]) -> None:
    runs = [RunFolder.open(path) for path in folders.values()]
    found = {row[0]: row[1:] for row in compare_runs(runs)["results"]}
    assert found["balance"] == [
        f"{reference.balance([row['size'] for row in read_result(run.result)['clusters']]):.3f}" for run in runs
    ]


@pytest.mark.parametrize(
    "initializations",
    [
        {}, [], "two",
        {"seeds": [0, 1000], "information": [0.5, 0.6], "selected": 2},
        {"seeds": [0, 1000], "information": [0.5, 0.6], "selected": -1},
        {"seeds": [0], "information": [0.5, 0.6], "selected": 0},
        {"seeds": [0, 1000], "information": [0.5, "more"], "selected": 0},
    ],
)  # fmt: skip
def test_damaged_initializations_in_a_result_are_refused(initializations: object, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    verdict = {"strength": "weak", "reasons": [], "advice": []}
    result = {"clusters": [], "seconds": 1.0, "verdict": verdict}
    path.write_text(json.dumps(result), encoding="utf-8")
    assert read_result(path) == result
    path.write_text(json.dumps(result | {"initializations": initializations}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"result\.json is damaged: its initializations are not valid"):
        read_result(path)
