"""Names, merges, noise and cuts that a person gave are respected by every command, and kept where they still hold."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.digit_run import make_run, write_source
from support.picture_run import call, fit_pictures, make_pictures, refused, table

from converge_to_surprise.core import metrics
from converge_to_surprise.model.carried_names import Annotations, carry_annotations
from converge_to_surprise.runs.annotations import apply_annotations, saved_cut, undo_annotations
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.load import load_model

Clusters = list[frozenset[int]]


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Clusters, Clusters]:
    """Two partitions of the same subclusters, of which one refines the other, both numbered at random."""
    fine = draw(st.lists(st.integers(0, 5), min_size=1, max_size=9))
    coarse_of = draw(st.lists(st.integers(0, 3), min_size=6, max_size=6))
    finer = [frozenset(k for k, group in enumerate(fine) if group == name) for name in draw(st.permutations(range(6)))]
    groups = draw(st.permutations(range(4)))
    coarser = [frozenset(k for k, group in enumerate(fine) if coarse_of[group] == name) for name in groups]
    pair = (finer, coarser)
    return pair if draw(st.booleans()) else (coarser, finer)


@given(cuts(), st.data())
def test_what_is_carried_to_another_cut_holds_there(pair: tuple[Clusters, Clusters], data: st.DataObject) -> None:
    before, after = pair
    count = len(before)
    chosen = data.draw(st.lists(st.sampled_from(["", "a", "b"]), min_size=count, max_size=count))
    names = [word + str(number) if word else str(number) for number, word in enumerate(chosen)]
    root = data.draw(st.integers(0, count - 1))
    into = [root if data.draw(st.booleans()) else number for number in range(count)]
    into[root] = root
    marked = data.draw(st.booleans())
    found = Annotations(names, into, [marked and into[number] == root for number in range(count)])
    new = carry_annotations(found, before, after)
    assert all(new.into[target] == target for target in new.into)
    for number, members in enumerate(after):
        same = [old for old, those in enumerate(before) if those and those == members]
        named = [names[old] for old in same if names[old] != str(old)]
        assert new.names[number] == (named[0] if named else str(number))
        if new.into[number] != number:  # a merge is between clusters that were merged
            assert before[root] == after[new.into[number]]
            assert members in [before[old] for old in range(count) if into[old] == root]
        noisy = [those for old, those in enumerate(before) if found.noise[old]]
        assert new.noise[number] == any(bool(members) and members <= those for those in noisy)
    assert carry_annotations(new, after, after) == new


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_source(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def finished(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "digits", source).path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def clusters_file(run: Path, *clusters: dict[str, object], name: str = "saved.json", **more: object) -> Path:
    identity = RunFolder.open(run).description().identity
    path = run.parent / name
    content = {"format": "converge-to-surprise clusters", "version": 1, "run": identity, "clusters": list(clusters)}
    path.write_text(json.dumps(content | more))
    return path


def evaluated(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    assert call("evaluate", *words) == 0
    return capsys.readouterr().out


def test_evaluate_shows_the_names_of_folders_and_clusters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    pictures = make_pictures(tmp_path / "pictures")
    run = fit_pictures(pictures, tmp_path / "run")
    assert "class 0" in evaluated(capsys, run, pictures)
    assert call("relabel", run, clusters_file(run, {"cluster": 0, "name": "[bold]stripes"})) == 0
    shown = evaluated(capsys, run, pictures)
    assert "0 ([bold]stripes)" in shown
    assert "class 1" in shown


def test_evaluate_respects_merges_noise_and_cuts(
    run: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    classes = np.unique(np.load(source)["labels"], return_inverse=True)[1]
    before = json.loads(evaluated(capsys, run, source, "--json"))
    file = clusters_file(run, {"cluster": 1, "into": 0}, {"cluster": 2, "noise": True}, {"cluster": 3, "noise": True})
    assert call("relabel", run, file) == 0
    after = json.loads(evaluated(capsys, run, source, "--json"))
    assert after["n_clusters_both"] == before["n_clusters_both"] - 2  # all noise is one
    assert call("predict", run, source, "--out", tmp_path / "t.csv") == 0
    found = np.array([int(row["cluster"]) for row in table(tmp_path / "t.csv")])
    assert after["acc_both"] == pytest.approx(metrics.accuracy(np.where(found < 0, 99, found), classes))
    shown = evaluated(capsys, run, source)
    assert "2 (noise)" in shown
    assert "3 (noise)" not in shown
    assert "digit" in shown  # the classes have names
    assert call("relabel", run, clusters_file(run, n_clusters=1)) == 0
    assert json.loads(evaluated(capsys, run, source, "--json"))["n_clusters_both"] == 1
    assert json.loads(evaluated(capsys, run, source, "--json", "--n-clusters", "8"))["n_clusters_both"] > 1


def test_the_table_of_evaluate_has_the_sizes_of_the_predictions(
    run: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for cut in (2, 5, 8):
        shown = evaluated(capsys, run, source, "--n-clusters", cut)
        found = {int(number): int(size) for number, size in re.findall(r"│ +(\d+) │ +(\d+) │", shown)}
        assert call("predict", run, source, "--n-clusters", cut, "--out", tmp_path / f"{cut}.csv") == 0
        assert found == Counter(int(row["cluster"]) for row in table(tmp_path / f"{cut}.csv"))


def test_a_name_is_kept_at_another_cut_where_the_cluster_is_the_same(run: Path, source: Path, tmp_path: Path) -> None:
    own = load_model(run)
    assert own.merge_result is not None
    names = [{"cluster": number, "name": f"name {number}"} for number in range(own.n_clusters)]
    assert call("relabel", run, clusters_file(run, *names)) == 0
    for clusters in range(2, own.levels + 1):
        out = tmp_path / f"{clusters}.csv"
        assert call("predict", run, source, "--out", out, "--n-clusters", clusters) == 0
        model = load_model(run, clusters)
        for row in table(out):
            number = int(row["cluster"])
            same = [k for k in range(own.n_clusters) if own.subclusters[k] == model.subclusters[number]]
            assert row["name"] == (f"name {same[0]}" if same else str(number))
    finer = table(tmp_path / f"{own.merge_result.n_clusters + 1}.csv")
    assert any(row["name"].startswith("name ") for row in finer)


def test_a_cut_is_applied_by_every_command_and_can_be_undone(run: Path, source: Path, tmp_path: Path) -> None:
    before, levels = load_model(run).merge_result, load_model(run).levels
    assert before is not None
    cut = before.n_clusters + 1
    folder = RunFolder.open(run)
    apply_annotations(folder, clusters_file(run, {"cluster": 0, "name": "first"}), load_model(run).n_clusters, levels)
    assert call("relabel", run, clusters_file(run, n_clusters=cut)) == 0
    assert load_model(run).cut_at == cut
    for words in (["predict", run, source, "--out"], ["predict", run, source, "--n-clusters", cut, "--out"]):
        assert call(*words, tmp_path / f"{len(words)}.csv") == 0
    assert [row["cluster"] for row in table(tmp_path / "4.csv")] == [
        row["cluster"] for row in table(tmp_path / "6.csv")
    ]
    assert call("predict", run, source, "--n-clusters", before.n_clusters, "--out", tmp_path / "own.csv") == 0
    own = [row["cluster"] for row in table(run / "labels.csv")]
    assert [row["cluster"] for row in table(tmp_path / "own.csv")] == own
    assert undo_annotations(folder)
    assert load_model(run).cut_at is None
    assert load_model(run).cluster_names[0] == "first"
    assert not undo_annotations(folder)


@pytest.mark.parametrize("wanted", [0, 1000, "3", True, 2.5])
def test_a_cut_that_the_tree_does_not_have_is_refused(
    run: Path, wanted: object, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(capsys, "relabel", run, clusters_file(run, n_clusters=wanted))
    assert (
        f'"n_clusters" in {run.parent / "saved.json"} is {wanted!r}; the merge tree of the run can be cut at 1' in line
    )
    assert not (run / "clusters.json").exists()


def test_a_file_is_found_in_the_download_folder(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    clusters_file(run, {"cluster": 0, "name": "x"}, name="clusters-1.json").rename(downloads / "clusters-1.json")
    monkeypatch.setenv("XDG_DOWNLOAD_DIR", str(downloads))
    assert "there is no such file" in refused(capsys, "relabel", run, "clusters-2.json")
    assert call("relabel", run, "clusters-1.json") == 0
    assert saved_cut(RunFolder.open(run), 9) is None


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from converge_to_surprise import __version__

    assert call("--version") == 0
    assert capsys.readouterr().out == f"converge-to-surprise {__version__}\n"
