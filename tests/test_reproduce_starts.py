"""The starts of a seed are runs of their own in ``cts reproduce``, and the row of the seed is that of the best balanced."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from test_reproduce import bars_as_usps, call, words

from converge_to_surprise.core.rng import init_seed
from converge_to_surprise.reproduce.plan import Recipe
from converge_to_surprise.reproduce.tables import Row
from converge_to_surprise.reproduce.taking import groups, run_seed, taken, without_later_starts
from converge_to_surprise.runs.folder import RunFolder

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bars_as_usps(tmp_path_factory.mktemp("data"))


def twice(data: Path) -> Path:
    """The settings of test_reproduce.py, with a search long enough that clusters differ, and two starts."""
    path = data / "twice.toml"
    path.write_text(
        """
        threads = 1
        starts = 2
        schedule = ["search=relaxed:4", "merge=merge:1"]
        network = { clusters = 6, width = 4 }
        relaxed = { heads = 2, batch = 10, temperature = 0.1, diversity_floor = [4, 4] }
        merge = { augmented_pairs = 100, neighbor_pairs = 100, clusters = 6 }
        """
    )
    return path


def asked(target: str, data: Path, out: Path, seeds: str) -> list[str]:
    return [*words(target, data, out, seeds)[:-1], str(twice(data))]


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("starts") / "out"
    assert call(*asked("table1", data, out, str(len(SEEDS)))) == 0
    return out


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    """The finished runs, for a test that changes them."""
    return Path(shutil.copytree(finished, tmp_path / "out"))


def rows(out: Path, table: str = "table1") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((out / f"{table}.json").read_text())["runs"]
    return found


def even(out: Path, seed: int) -> float:
    """Of the clusters as they are handed to the user."""
    with (out / "runs" / f"usps-full-{seed}" / "labels.csv").open() as file:
        sizes = Counter(row["cluster"] for row in csv.DictReader(file))
    return reference.balance(list(sizes.values()))


def test_every_start_is_a_run_of_its_own(finished: Path) -> None:
    found = {path.name: RunFolder.open(path).description().config for path in (finished / "runs").iterdir()}
    assert {name: (config.seed, config.n_init) for name, config in found.items()} == {
        f"usps-full-{own}": (own, 1) for seed in SEEDS for own in (seed, seed + 1000)
    }


def test_the_row_of_a_seed_is_that_of_its_most_even_start(finished: Path) -> None:
    found = rows(finished)
    assert [row["seed"] for row in found] == list(SEEDS)
    for row in found:
        values = [even(finished, own) for own in (row["seed"], row["seed"] + 1000)]
        assert [start["balance"] for start in row["starts"]] == pytest.approx(values)
        assert row["taken"] == values.index(max(values))
        assert run_seed(row) == row["seed"] + 1000 * row["taken"]
        taken = row["starts"][row["taken"]]
        assert row["metrics"] == taken["metrics"]
        assert row["clusters"] == taken["clusters"]
        assert row["seconds"] == pytest.approx(sum(start["seconds"] for start in row["starts"]), abs=0.1)
    assert len({even(finished, own) for seed in SEEDS for own in (seed, seed + 1000)}) > 1


def test_the_command_of_a_row_takes_the_same_start(finished: Path, data: Path, tmp_path: Path) -> None:
    row = max(rows(finished), key=lambda row: int(row["taken"]))  # a second one, if there is any
    words = row["command"].removeprefix("cts ").replace("--out RUN", f"--out {tmp_path / 'run'}").split()
    assert words[words.index("--seed") + 1] == str(row["seed"])
    assert call(*words, "--data-dir", data) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["starts"] == {
        "seeds": [row["seed"], row["seed"] + 1000],
        "balance": pytest.approx([start["balance"] for start in row["starts"]]),
        "taken": row["taken"],
    }
    theirs = finished / "runs" / f"usps-full-{run_seed(row)}"
    for file in ("labels.csv", "model.safetensors"):
        ours, alone = ((folder / file).read_bytes() for folder in (tmp_path / "run", theirs))
        assert (ours == alone) == (file == "labels.csv")  # a model says with how many starts it was made


def test_the_table_shows_what_there_would_be_without_a_choice(finished: Path) -> None:
    text = (finished / "table1.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("| converge-to-surprise")]
    taken, first = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    assert first[0] == "converge-to-surprise, one start"
    accuracy = [100 * row["starts"][0]["metrics"]["acc"] for row in rows(finished)]
    assert first[1].startswith(f"{sum(accuracy) / len(accuracy):.1f} ± ")
    assert taken[5] == first[5] == "3 (0-2)"
    assert taken[6].startswith("2 × ")
    assert "×" not in first[6]
    assert "the best balanced is taken, without any class" in text


def test_an_ablation_is_one_of_single_starts(out: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*asked("ablation", data, out, "2"), "--no-run") == 0
    assert [(row["variant"], row["seed"]) for row in rows(out, "ablation")] == [("full", 0), ("full", 1)]
    # Asked for, it is a seed like any other.
    assert call(*asked("ablation", data, out, "0,1000"), "--no-run") == 0
    assert [row["seed"] for row in rows(out, "ablation")] == [0, 1000]
    # Of a set that is not asked for everything is shown, but no second start as if it were a seed.
    assert call(*asked("ablation", data, out, "2"), "--no-run", "--dataset", "digits") == 0
    assert [row["seed"] for row in rows(out, "ablation")] == list(SEEDS)
    capsys.readouterr()


def test_a_seed_waits_for_all_of_its_starts(out: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (out / "runs" / "usps-full-1001" / "result.json").unlink()
    assert call(*asked("table2", data, out, "3"), "--no-run") == 0
    assert [row["seed"] for row in rows(out, "table2")] == [0, 2]
    said = capsys.readouterr().out
    assert "left out: usps-full-1, which belongs to no seed all of whose 2 starts are finished" in said
    # What is missing is all that is run.
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").glob("*/result.json")}
    assert call(*asked("table2", data, out, "3")) == 0
    assert [row["seed"] for row in rows(out, "table2")] == list(SEEDS)
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert (out / "runs" / "usps-full-1001" / "result.json").is_file()


def test_seeds_that_share_a_start_are_refused(
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(*asked("table1", data, tmp_path / "out", "0,1000")) == 2
    assert "two of them have the run of seed 1000 as a start" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def row(seed: int, balance: float) -> Row:
    return {
        "dataset": "usps", "variant": "full", "seed": seed, "balance": balance, "seconds": 1.0, "threads": 1,
        "images": 60, "shape": [1, 8, 8],
    }  # fmt: skip


def test_runs_are_starts_of_the_seeds_asked_for() -> None:
    """Of 0 and 2000, of which run 0 is missing, 1000 and 2000 are not two starts of a seed 1000."""
    recipe = Recipe("fast", {})
    rows = [row(1000, 0.5), row(2000, 0.6), row(3000, 0.7)]
    found, left_out = taken(rows, recipe, [0, 2000])
    assert [(one["seed"], run_seed(one)) for one in found] == [(2000, 3000)]
    assert list(left_out) == ["usps-full-1000"]
    assert found[0]["command"] == "cts fit usps --preset fast --seed 2000 --threads 1 --out RUN"


def test_equally_even_starts_give_the_first() -> None:
    found, _ = taken([row(1000, 0.5), row(0, 0.5)], Recipe("fast", {}), [0])
    assert run_seed(found[0]) == 0


def test_other_numbers_of_starts() -> None:
    rows = [row(0, 0.5), row(1000, 0.6), row(2000, 0.7)]
    assert [run_seed(one) for one in taken(rows, Recipe("fast", {"starts": 3}), [0])[0]] == [2000]
    alone, left_out = taken(rows, Recipe("fast", {"starts": 1}), [0, 1000, 2000])
    assert (alone, left_out) == (rows, {})
    assert without_later_starts(rows[:2], Recipe("fast", {"starts": 3})) == rows[:1]
    assert without_later_starts(rows, Recipe("fast", {"starts": 1})) == rows


@given(st.sets(st.integers(0, 5000), max_size=40), st.integers(1, 4))
def test_every_run_is_a_start_of_one_seed_at_most(seeds: set[int], starts: int) -> None:
    found = groups(seeds, starts)
    used = [own for group in found.values() for own in group]
    assert len(used) == len(set(used))
    assert seeds.issuperset(used)
    assert all(group == [init_seed(seed, start) for start in range(starts)] for seed, group in found.items())
    left = seeds.difference(used)
    assert not any(left.issuperset(init_seed(seed, start) for start in range(starts)) for seed in left)
