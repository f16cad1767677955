"""``cts similar``, near-duplicates, levels and the verdict of a run of pictures, on the command line and in Python."""

from __future__ import annotations

import csv
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.picture_run import call, fit_pictures, make_pictures, refused, table

from converge_to_surprise import SurpriseClustering
from converge_to_surprise.data.near_duplicates import DuplicateGroup, read_duplicates, write_duplicates
from converge_to_surprise.data.source import Source
from converge_to_surprise.model.carried_names import Annotations
from converge_to_surprise.model.merge_tree import Level, MergeResult, MergeStep
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.result import levels_of, read_result, verdict_of
from converge_to_surprise.runs.similar import TrainingImages, write_similar

COPY = "class 0/copy.png"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 pictures and a copy of the first one."""
    folder = make_pictures(tmp_path_factory.mktemp("pictures"))
    first = min((folder / "class 0").glob("0*.png"))
    shutil.copy(first, folder / COPY)
    return folder


@pytest.fixture(scope="module")
def run(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("similar")
    return fit_pictures(pictures, folder / "run")


def original(pictures: Path) -> str:
    return min((pictures / "class 0").glob("0*.png")).relative_to(pictures).as_posix()


def test_near_duplicates_are_listed(run: Path, pictures: Path) -> None:
    rows = table(run / "duplicates.csv")
    group = next(row["group"] for row in rows if row["file"] == COPY)
    together = {row["file"]: float(row["distance"]) for row in rows if row["group"] == group}
    assert together[COPY] == together[original(pictures)]
    assert list(rows[0]) == ["group", "file", "distance"]


def test_a_table_of_duplicates_is_read_as_it_was_written(tmp_path: Path) -> None:
    groups = [DuplicateGroup([0, 3], [0.0, 0.0213]), DuplicateGroup([1, 2, 4], [0.0, 0.0, 0.1])]
    names = ["a.png", 'b "2", c.png', "\udcff.png", "é.png", "x/y.png"]
    for given in (names, None):
        write_duplicates(tmp_path / "d.csv", groups, given)
        assert read_duplicates(tmp_path / "d.csv", given, 5) == groups
    assert read_duplicates(tmp_path / "d.csv", names, 5) is None
    assert read_duplicates(tmp_path / "d.csv", None, 4) is None  # of other images
    assert read_duplicates(tmp_path / "none.csv", None, 5) is None
    for damaged in ("group,image\n0,1\n", "group,image,distance\n0,1,x\n", "group,image,distance\n0,1,0\n1,1,0\n"):
        (tmp_path / "d.csv").write_text(damaged)
        assert read_duplicates(tmp_path / "d.csv", None, 5) is None
    write_duplicates(tmp_path / "d.csv", [], names)
    assert read_duplicates(tmp_path / "d.csv", names, 5) == []


def test_similar_images_as_a_table(run: Path, pictures: Path, tmp_path: Path) -> None:
    shutil.copy(pictures / original(pictures), tmp_path / "new.png")
    out = tmp_path / "similar.csv"
    assert call("similar", run, tmp_path / "new.png", pictures / "class 1", "--count", "5", "--out", out) == 0
    rows = table(out)
    labels = {row["path"]: row for row in table(run / "labels.csv")}
    queries = list(dict.fromkeys(row["picture"] for row in rows))
    assert queries[0] == str(tmp_path / "new.png")
    assert len(rows) == 5 * len(queries)
    assert {rows[0]["path"], rows[1]["path"]} == {original(pictures), COPY}
    assert float(rows[0]["distance"]) == pytest.approx(0, abs=1e-5)
    for query in queries:
        found = [row for row in rows if row["picture"] == query]
        assert [row["rank"] for row in found] == ["1", "2", "3", "4", "5"]
        distances = [float(row["distance"]) for row in found]
        assert distances == sorted(distances)
        assert all(row["cluster"] == labels[row["path"]]["cluster"] for row in found)


def test_similar_images_in_the_terminal_and_as_a_page(
    run: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("similar", run, pictures / COPY, "--count", "3") == 0
    shown = capsys.readouterr().out
    assert COPY in shown
    assert len(re.findall(r"│ +\d\.\d{4} │", shown)) == 3
    assert call("similar", run, pictures / COPY, "--page", tmp_path / "p.html") == 0
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert text.count("data:image/webp;base64,") == 11
    assert COPY in text
    assert "exists" in refused(capsys, "similar", run, pictures / COPY, "--page", tmp_path / "p.html")


def test_wrong_wishes_are_refused(
    run: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--count is 0" in refused(capsys, "similar", run, pictures / COPY, "--count", "0")
    assert "must end in .csv" in refused(capsys, "similar", run, pictures / COPY, "--out", tmp_path / "x.txt")
    assert "not a run folder" in refused(capsys, "similar", tmp_path, pictures / COPY)
    assert "no data set or file" in refused(capsys, "similar", run, tmp_path / "nothing.png")
    assert "at least one picture" in refused(capsys, "similar", run)
    outputs = run / "outputs.safetensors"
    aside = outputs.rename(run / "aside")
    try:
        assert "outputs.safetensors is missing or damaged" in refused(capsys, "similar", run, pictures / COPY)
    finally:
        aside.rename(outputs)


def test_the_same_in_python(run: Path, pictures: Path, tmp_path: Path) -> None:
    model = SurpriseClustering.load(run)
    paths = [row["path"] for row in table(run / "labels.csv")]
    copies = {paths.index(COPY), paths.index(original(pictures))}
    images, distances = model.similar([pictures / COPY, pictures / "class 0" / "empty.png"], n=3)
    assert images.shape == distances.shape == (2, 3)
    assert set(images[0, :2].tolist()) == copies
    assert distances[0, 0] == pytest.approx(0, abs=1e-5)
    assert images[1].tolist() == [-1] * 3
    assert np.isnan(distances[1]).all()
    finest = model.cut(len(model.merge_tree_) + 1)
    assert finest.similar(pictures / "class 0", n=4)[0].tolist() == model.similar(pictures / "class 0", n=4)[0].tolist()
    assert model.similar([pictures / COPY], n=1000)[0].shape == (1, len(paths))
    with pytest.raises(ValueError, match="n is 0"):
        model.similar([pictures / COPY], n=0)
    shutil.copy(run / "model.safetensors", tmp_path / "alone.safetensors")
    with pytest.raises(ValueError, match="knows no training images"):
        SurpriseClustering.load(tmp_path / "alone.safetensors").similar([pictures / COPY])


def test_levels_and_verdict_in_python_are_those_of_the_result(run: Path, tmp_path: Path) -> None:
    result = read_result(run / "result.json")
    model = SurpriseClustering.load(run)
    assert model.verdict_ == verdict_of(result)
    finest = len(model.merge_tree_) + 1
    assert [tuple(level) for level in model.levels_] == [
        tuple(level) for level in result["merge"]["levels"] if level[0] <= finest
    ]
    for level in model.levels_:
        assert model.cut(level).n_clusters_ == model.cut(level.n_clusters).n_clusters_
    one = model.cut(Level(1, 1.0, 0.0, 1.0, 1.0))
    assert one.n_clusters_ == 1
    model.save(tmp_path / "saved.safetensors")
    again = SurpriseClustering.load(tmp_path / "saved.safetensors")
    assert (again.verdict_, again.levels_) == (model.verdict_, model.levels_)
    shutil.copy(run / "model.safetensors", tmp_path / "alone.safetensors")
    assert SurpriseClustering.load(tmp_path / "alone.safetensors").verdict_ is None


def test_levels_that_the_tree_does_not_reach_are_not_offered() -> None:
    levels = [Level(9, 2.0, 2.0, 1.0, 1.0), Level(3, 1.5, 1.0, 1.0, 1.0), Level(2, 1.0, 0.5, 1.0, 1.0)]
    steps = [MergeStep(0, 2, 0.5), MergeStep(0, 1, 0.9)]
    merged = MergeResult(3, 0, [0, 1, 2], steps, {}, [], [], levels)
    assert [level.n_clusters for level in merged.reachable_levels] == [3, 2]
    assert levels_of({"merge": merged._asdict()}) == "3 clusters (selected; its splits hold 1.00), 2 (1.00)"


def test_show_and_compare_tell_the_verdict(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strength = verdict_of(read_result(run / "result.json")).strength
    assert call("show", run) == 0
    assert re.search(rf"^verdict +{strength}", capsys.readouterr().out, re.M)
    other = shutil.copytree(run, tmp_path / "other")
    assert call("compare", run, other, "--out", tmp_path / "c.html") == 0
    shown = capsys.readouterr().out
    assert shown.count(f"verdict: {strength}") == 2
    assert f'["verdict","{strength}","{strength}"]' in (tmp_path / "c.html").read_text(encoding="utf-8")


def test_names_of_clusters_are_in_the_table(run: Path, pictures: Path, tmp_path: Path) -> None:
    known = TrainingImages.open(RunFolder(run))
    count = known.model.n_clusters
    marks = Annotations([f"kind {k}" for k in range(count)], list(range(count)), [False] * count)
    known = known._replace(model=replace(known.model, annotations=marks))
    source = Source.open(str(pictures / COPY), known.model.shape, "train", None)
    write_similar(tmp_path / "s.csv", list(known.similar(source, 2, [])), known)
    with (tmp_path / "s.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [f"kind {row['cluster']}" for row in rows]
