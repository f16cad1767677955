"""The CSV files of benchmarks/results/ and the tables that are made from them."""

from __future__ import annotations

import csv
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import readme_table
import rival_process
import rivals
import rows
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.experiments.result_tables import ABSENT

PAGE = "before\n<!-- {0}: made by benchmarks/readme_table.py -->\nold\n<!-- end of {0} -->\nafter\n"
SCORES = {"nmi": 0.5, "ari": 0.25, "n_clusters": 10, "acc_both": 0.9, "nmi_both": 0.8, "ari_both": 0.7}


def run(seed: int, acc: float, **changes: Any) -> dict[str, Any]:
    row = {"dataset": "usps", "variant": "full", "seed": seed, "n_init": 1, "seconds": 60, "acc": acc, **SCORES}
    return row | changes


def tables(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["readme_table.py", *map(str, words)])
    return readme_table.main()


def made(name: str, folder: Path) -> str:
    """A table with single spaces."""
    return " ".join(readme_table.TABLES[name](folder).split())


def test_pages_are_up_to_date_with_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tables(monkeypatch, "--check") == 0, "run python benchmarks/readme_table.py"


def test_results_are_small_tables() -> None:
    """A row per run, not dumps; every file of figures is read by a table or named by a script."""
    files = sorted(rows.RESULTS.iterdir())
    assert {file.suffix for file in files} == {".csv"}
    assert sum(len(file.read_text().splitlines()) for file in files) < 1500
    for file in files:
        found = rows.read_rows(file)
        assert found
        assert all(None not in row and None not in row.values() for row in found), f"{file} has rows of other lengths"
        assert all(row["command"] for row in found)
        assert not [row for row in found if "/work" in str(row) or "/home" in str(row)]


def test_a_page_follows_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format("faults"))
    rows.write_rows(tmp_path / "faults.csv", [{"fault": "flood", "tried": 1200, "survived": 1199, "lost": 1}])
    words = (page, "--results", tmp_path)
    assert tables(monkeypatch, "--check", *words) == 1
    assert page.read_text() == PAGE.format("faults")
    assert tables(monkeypatch, *words) == 0
    text = " ".join(page.read_text().split())
    assert "| flood | 1,200 | 1,199 | 1 | | all | 1,200 | 1,199 | 1 |" in text
    assert text.startswith("before <!-- faults: made by")
    assert text.endswith("<!-- end of faults --> after")
    assert tables(monkeypatch, "--check", *words) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [(PAGE.format("weather"), "there is no table 'weather'"), (PAGE.format("faults")[:-30], "have no end")],
)
def test_wrong_markers_are_refused(text: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        readme_table.renewed(text, rows.RESULTS)


def test_main_table_shows_what_was_selected_and_one_initialization(tmp_path: Path) -> None:
    single = [run(seed + start, 0.9 + seed / 100) for seed in range(5) for start in (0, 1000)]
    selected = [run(seed, 0.95, n_init=2, seconds=120) for seed in range(5)]
    rows.write_rows(tmp_path / "table1-0.1.csv", [*single, *selected])
    found = made("results", tmp_path)
    assert "| USPS | 95.0 ± 0.0 | 50.0 ± 0.0 | 25.0 ± 0.0 | 10.0 ± 0.0 | 5 (0-4) | 2 × 60 ± 0 s |" in found
    assert "| USPS, one initialization | 92.0 ± 1.4 |" in found
    assert "94.9 / 90.2 / 90.3, 10.4 ± 0.5" in found


def test_the_first_table_shows_version_0_1_beside_the_current_one(tmp_path: Path) -> None:
    rows.write_rows(tmp_path / "table1-0.1.csv", [run(0, 0.7), run(0, 0.8, n_init=2)])
    rows.write_rows(tmp_path / "table1.csv", [run(seed, 0.9) for seed in range(3)])
    found = made("table1", tmp_path)
    assert "| USPS | 90.0 ± 0.0 | 50.0 ± 0.0 | 25.0 ± 0.0 | 10.0 ± 0.0 | 3 (0-2) |" in found
    assert "| 80.0 / 50.0 / 25.0, 10.0 |" in found


def test_ablation_lines_follow_the_file(tmp_path: Path) -> None:
    variants = [run(0, 0.3, variant=name) for name in ("full", "one-head", "without-zoom-out")]
    rows.write_rows(tmp_path / "ablation.csv", [run(0, 0.9, dataset="mnist"), *variants])
    lines = readme_table.ablation(tmp_path).splitlines()[2:]
    assert [line.split("|")[1].strip() for line in lines] == ["full method", "one head", "without anisotropic zoom-out"]
    assert "| 90.0 / 50.0 / 25.0, 10.0 (n=1) | 30.0 / 50.0 / 25.0, 10.0 (n=1) |" in " ".join(lines[0].split())
    assert "| – | 30.0" in " ".join(lines[1].split())


def test_a_run_of_evolution_is_its_last_row_and_a_repetition_counts(tmp_path: Path) -> None:
    about: dict[str, object] = {"data": "digits", "network": "2 units", "search": "evolution", "variant": "full"}
    about |= {"seed": 4, "initialization": 0}
    same = {"views": 2e6, "surprise": 0.5, "agreement": 0.25, "acc": 60, "nmi": 50, "ari": 40, "clusters": 7}
    found = [about | same | {"step": step, "surprising": step} for step in (24, 49, 9, 8, 3)]
    rows.write_rows(tmp_path / "evolution.csv", [*found[:2], found[3], found[2], found[2] | {"variant": "bare"}])
    lines = [" ".join(line.split()) for line in readme_table.evolution(tmp_path).splitlines()[2:]]
    assert len(lines) == 2
    assert "| evolution | 4 | 2.0 million | 0.50 | 0.25 | 9, 9 | 60.0 / 50.0 / 40.0 | 7 |" in lines[0]
    assert "| evolution, bare |" in lines[1]


def test_subsets_count_first_initializations_only(tmp_path: Path) -> None:
    row = {"subset": "odd", "class_sizes": "9 170 30", "acc": 0.5, "nmi": 0.25, "ari": 0.125, "n_init": 1}
    found = [row | {"seed": seed, "n_clusters": 3 + seed % 1000} for seed in (0, 1, 2, 1000, 1001, 1002)]
    rows.write_rows(tmp_path / "subsets.csv", [*found, row | {"seed": 0, "n_init": 2, "n_clusters": 99}])
    assert "| odd | 3 | 9-170 | 4.0 ± 0.8 | 50.0 / 25.0 / 12.5 | 3 (0-2) |" in made("subsets", tmp_path)


def test_rivals_stand_beside_ours(tmp_path: Path) -> None:
    scores = {"acc": 0.9, "nmi": 0.8, "ari": 0.7, "n_clusters": 9, "noise": 0.05, "data": "usps"}
    runs = [
        scores | {"method": "evoc", "seed": seed, "threads": 1, "seconds": 4 + seed, "cpu_seconds": 1}
        for seed in range(3)
    ]
    rows.write_rows(tmp_path / "rivals.csv", [*runs, runs[0] | {"threads": 2, "seconds": 2, "acc": 0.1}])
    command = "cts fit usps --threads 2 --out RUN"
    rows.write_rows(tmp_path / "table1.csv", [run(0, 0.97, n_init=2) | {"command": command, "seconds": 7}])
    found = made("rivals", tmp_path)
    line = (
        "| USPS | EVoC | 90.0 ± 0.0 | 80.0 ± 0.0 | 70.0 ± 0.0 | 9.0 ± 0.0 | 3 (0-2) | 5.0 % | 1 ± 0 s | 5 ± 1 s | 2 s |"
    )
    assert line in found
    assert "| USPS | converge-to-surprise | 97.0 |" in found
    assert found.endswith("| – | – | – | 7 s |"), "the time of two threads"


@given(st.floats(0.1, 2), st.floats(1e-7, 1e-3))
def test_growth_of_a_power_is_its_exponent(exponent: float, factor: float) -> None:
    sizes = [1_000, 10_000, 300_000]
    found, line = readme_table.growth(sizes, [factor * size**exponent for size in sizes], passes=False)
    assert found == f"{exponent:.2f}" or abs(float(found) - exponent) < 0.006
    assert line == ABSENT


def test_growth_of_a_line_is_its_two_parts() -> None:
    sizes = [1_000, 10_000, 300_000]
    assert readme_table.growth(sizes, [1.5 + 25e-6 * size for size in sizes], passes=True)[1] == "1.5 s + 25 µs"


def test_growth_is_that_of_the_last_command_for_each_number_of_images(tmp_path: Path) -> None:
    about = {"side": 28, "channels": 1, "source": "npy", "command": "new"}
    columns = {"cpu_seconds": 2, "step_cpu_seconds": 0.5, "megabytes": 300, **about}
    new = [{"images": size, "stage": stage, **columns} for size in (1000, 9000) for stage in readme_table.STAGES]
    cold = {"images": 1, "stage": "cold batches", "command": "cold"}
    rows.write_rows(
        tmp_path / "bigdata.csv", [*(row | {"cpu_seconds": 7, "command": "old"} for row in new), *new[::-1], cold]
    )
    found = made("bigdata", tmp_path)
    assert found.startswith("Images of 28×28 from an .npy file: | images | 1,000 | 9,000 | exponent |")
    assert "| one step of the search, ms | 500.0 | 500.0 | 0.00 |" in found.replace("-0.00", "0.00")
    assert "| neighbors by pixels, s | 2.0 | 2.0 |" in found


def test_growth_has_a_table_for_every_size_and_source_of_images(tmp_path: Path) -> None:
    columns = {"cpu_seconds": 2, "step_cpu_seconds": 0.5, "megabytes": 300}
    new = [
        {"images": size, "stage": stage, **columns, **about, "command": str(about)}
        for about in (
            {"side": 28, "channels": 1, "source": "npy"},
            {"side": 28, "channels": 1, "source": "files"},
            {"side": 48, "channels": 3, "source": "npy"},
        )
        for size in (1000, 9000)
        for stage in readme_table.STAGES
    ]
    rows.write_rows(tmp_path / "bigdata.csv", new)
    found = made("bigdata", tmp_path)
    assert "Images of 28×28 from an .npy file: | images" in found
    assert "Images of 28×28 from a folder of PNG files: | images" in found
    assert "Images of 48×48 in color from an .npy file: | images" in found


def test_times_stand_beside_those_of_version_0_1(tmp_path: Path) -> None:
    about = {"kind": "whole", "data": "usps", "seed": 0, "nmi": 0.5}
    times = {"current": 50, "version 0.1": 200, "evoc": 0.4}
    point = about | {"kind": "point", "method": "current", "seconds": 9}
    rows.write_rows(
        tmp_path / "time_to_quality.csv",
        [point, *(about | {"method": method, "seconds": seconds} for method, seconds in times.items())],
    )
    assert "| USPS | 50 s, 50.0 | 200 s, 50.0 | 0.25 | 0 s, 50.0 | – |" in made("time-to-quality", tmp_path)


def test_later_rows_count(tmp_path: Path) -> None:
    about = {"benchmark": "predict", "what": "from an array", "unit": "images/s", "threads": 2}
    rows.write_rows(tmp_path / "speed.csv", [about | {"value": 1000}, about | {"value": 2000}])
    assert "2,000 images/s" in made("predict", tmp_path)
    assert "1,000" not in made("predict", tmp_path)


fields = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


@given(st.lists(st.dictionaries(fields, fields, min_size=1, max_size=5), min_size=1, max_size=5))
def test_rows_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, some: list[dict[str, str]]
) -> None:
    file = tmp_path_factory.mktemp("rows") / "a.csv"
    rows.write_rows(file, some)
    columns = {name for row in some for name in row}
    assert rows.read_rows(file) == [{name: row.get(name, "") for name in columns} for row in some]
    with file.open(newline="", encoding="utf-8") as lines:
        assert len(list(csv.reader(lines))) == len(some) + 1


def test_appended_rows_tell_how_they_were_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/benchmarks/x.py", "--work", "/somewhere/else", "--rounds", "3"])
    file = tmp_path / "new" / "a.csv"
    rows.append_rows(file, [{"value": 1 / 3, "date": "long ago"}])
    rows.append_rows(file, [{"value": None, "other": "b"}])
    first, second = rows.read_rows(file)
    assert first["value"] == "0.333333"
    assert first["date"] == "long ago"
    assert first["command"] == "python benchmarks/x.py --work PATH --rounds 3"
    assert "numpy" in first["versions"]
    assert (first["other"], second["other"], second["value"]) == ("", "b", "")
    assert second["date"].startswith("2")
    assert [path.name for path in file.parent.iterdir()] == ["a.csv"]


def test_noise_is_one_more_cluster() -> None:
    labels, classes = np.array([-1, -1, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 2, 2])
    assert rivals.scores(labels, classes) == {"n_clusters": 2, "noise": 1 / 3, "acc": 1, "nmi": 1, "ari": 1}


def test_rivals_run_the_threads_last_and_umap_without_a_seed_there() -> None:
    options = Namespace(threads=[2, 1], seeds=[0, 1], data=["usps"], methods=["evoc", "umap+hdbscan"])
    jobs = rivals.plan(options)
    assert [(job.method, job.seed, job.threads) for job in jobs] == [
        ("evoc", 0, 1), ("umap+hdbscan", 0, 1), ("evoc", 1, 1), ("umap+hdbscan", 1, 1),
        ("evoc", 0, 2), ("umap+hdbscan", None, 2), ("evoc", 1, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(("images", "size"), [(70_000, 500), (60_000, 428), (1_000, 10)])
def test_smallest_cluster_is_in_proportion_to_that_of_the_documentation(images: int, size: int) -> None:
    assert rival_process.min_cluster_size(images) == size
