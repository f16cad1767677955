"""Sub-clusters by the command line: found by rounds or made by hand, resumed, predicted, sorted, exported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.known_trees import tree_items, with_tree
from support.picture_run import call, fit_pictures, make_pictures, refused, table

from converge_to_surprise import SurpriseClustering
from converge_to_surprise.core.metrics import adjusted_rand_index
from converge_to_surprise.model import model_file
from converge_to_surprise.model.hierarchy import Node
from converge_to_surprise.runs import deepening
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.hypothesis_table import why
from converge_to_surprise.runs.load import load_model
from converge_to_surprise.search.hypotheses import deepen

Capture = pytest.CaptureFixture[str]
WORDS = ["--input", "embeddings", "--threads", 1, "--max-clusters", 8, "--relaxed.heads", 3, "--n-clusters", 3]
WORDS += ["--schedule", "search=relaxed:60", "merge=merge:1", "refine=refine:10", "--no-report"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    items, leaves = tree_items()
    np.savez(folder / "items.npz", embeddings=items[:, :, 0].float().numpy(), labels=leaves)
    return folder


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    """A run with all its rounds."""
    assert call("fit", place / "items.npz", "--out", place / "whole", "--rounds", "auto", *WORDS) == 0
    return place / "whole"


@pytest.fixture
def plain(place: Path, tmp_path: Path) -> Path:
    """A finished run without rounds."""
    if not (place / "plain").exists():
        assert call("fit", place / "items.npz", "--out", place / "plain", *WORDS) == 0
    shutil.copytree(place / "plain", tmp_path / "run")
    return tmp_path / "run"


def hypotheses(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "result.json").read_text(encoding="utf-8"))["hypotheses"]
    return found


def column(run: Path, name: str) -> list[str]:
    return [row[name] for row in table(run / "labels.csv")]


def same_tree(one: Path, other: Path) -> bool:
    trees = [model_file.load(run / "model.safetensors")[0].hierarchy for run in (one, other)]
    assert all(tree is not None for tree in trees)
    first, second = (tree for tree in trees if tree is not None)
    heads = zip(first.splits, second.splits, strict=True)
    return first.nodes == second.nodes and all(torch.equal(a.weight, b.weight) for a, b in heads)


def test_a_fit_with_rounds_finds_the_tree_and_says_so(whole: Path, place: Path) -> None:
    _, truth = tree_items()
    leaves = column(whole, "leaf")
    assert adjusted_rand_index(np.unique(leaves, return_inverse=True)[1], truth) > 0.95
    assert all(leaf.split("/")[0] == cluster for leaf, cluster in zip(leaves, column(whole, "cluster"), strict=True))
    found = hypotheses(whole)
    assert found["finished"]
    assert [row["round"] for row in found["rounds"]] == list(range(len(found["rounds"])))
    assert found["rounds"][1]["splits"] == 1
    assert found["rounds"][1]["nats"] > 50
    assert found["rounds"][-1]["splits"] == 0
    assert found["rounds"][1]["nmi"] > found["rounds"][0]["nmi"]
    assert found["rounds"][-1]["leaves"] == len(set(leaves))


def test_a_finished_run_is_deepened_to_the_same_tree(whole: Path, plain: Path, capsys: Capture) -> None:
    clusters = column(plain, "cluster")
    assert "leaf" not in table(plain / "labels.csv")[0]
    assert call("deepen", plain, "--no-report") == 0
    assert "no further surprise found" in capsys.readouterr().out
    assert column(plain, "cluster") == clusters
    assert same_tree(whole, plain)
    assert (plain / "labels.csv").read_bytes() == (whole / "labels.csv").read_bytes()


@pytest.mark.parametrize("rounds_before", [0, 1])
def test_an_interrupted_round_is_resumed_bit_for_bit(
    whole: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds_before: int
) -> None:
    def interrupted(searched, request):  # type: ignore[no-untyped-def]
        for number, tree in enumerate(deepen(searched, request)):
            if number == rounds_before:
                raise KeyboardInterrupt
            yield tree

    monkeypatch.setattr(deepening, "deepen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call("fit", place / "items.npz", "--out", tmp_path / "run", "--rounds", "auto", *WORDS)
    monkeypatch.undo()
    known = model_file.load(tmp_path / "run" / "model.safetensors")[0].hierarchy
    assert (0 if known is None else known.rounds) == rounds_before
    assert call("resume", tmp_path / "run", "--no-report") == 0
    assert same_tree(whole, tmp_path / "run")
    assert (tmp_path / "run" / "labels.csv").read_bytes() == (whole / "labels.csv").read_bytes()
    assert hypotheses(tmp_path / "run") == hypotheses(whole)


def test_resuming_a_finished_run_keeps_its_tree(whole: Path, plain: Path) -> None:
    assert call("deepen", plain, "--no-report") == 0
    assert call("resume", plain, "--no-report") == 0
    assert same_tree(whole, plain)
    assert hypotheses(plain) == hypotheses(whole)
    assert (plain / "labels.csv").read_bytes() == (whole / "labels.csv").read_bytes()


def test_predictions_and_python_have_the_same_leaves(whole: Path, place: Path, tmp_path: Path) -> None:
    items, _ = tree_items()
    assert call("predict", whole, place / "items.npz", "--out", tmp_path / "labels.csv") == 0
    leaves = column(whole, "leaf")
    assert [row["leaf"] for row in table(tmp_path / "labels.csv")] == leaves
    model = SurpriseClustering.load(whole)
    assert model.labels_at().tolist() == leaves
    assert model.labels_at(1).tolist() == [str(label) for label in model.labels_]
    assert model.predict_at(items[:20, :, 0].float().numpy()).tolist() == leaves[:20]
    rows = {row["path"]: row for row in model.hierarchy_}
    split = next(row for row in rows.values() if row["outcome"] == "split")
    assert sum(rows[child]["size"] for child in split["children"]) == split["size"]
    assert all(rows[child]["parent"] == split["path"] for child in split["children"])
    with pytest.raises(ValueError, match="depth is 0"):
        model.labels_at(0)
    model.save(tmp_path / "saved.safetensors")
    assert SurpriseClustering.load(tmp_path / "saved.safetensors").labels_at(2).tolist() == model.labels_at(2).tolist()


def test_an_estimator_with_rounds(place: Path) -> None:
    items, truth = tree_items()
    quick = {"schedule": ["search=relaxed:60", "merge=merge:1", "refine=refine:10"], "relaxed": {"heads": 3}}
    params: dict[str, Any] = {"input": "embeddings", "n_clusters": 3, "max_clusters": 8, "settings": quick}
    model = SurpriseClustering(rounds="auto", random_state=0, n_threads=1, **params).fit(items[:, :, 0].float().numpy())
    leaves = np.unique(model.labels_at().astype(str), return_inverse=True)[1]
    assert adjusted_rand_index(leaves, truth) > 0.95
    assert model.cut(2).hierarchy_ == []
    with pytest.raises(ValueError, match="rounds"):
        SurpriseClustering(rounds="often", **params).fit(items[:, :, 0].float().numpy())  # type: ignore[arg-type]


def test_one_cluster_is_split_by_hand_and_undone(plain: Path, capsys: Capture) -> None:
    noise = column(plain, "cluster")[-1]  # the last images are of a cluster without parts
    before = (plain / "labels.csv").read_bytes()
    assert call("split", plain, noise, "--no-report") == 0
    assert "by hand" in capsys.readouterr().out
    split = column(plain, "leaf")
    assert {f"{noise}/0", f"{noise}/1"} <= set(split)
    assert refused(capsys, "split", plain, noise, "--no-report").startswith(f"cluster {noise} is split already")
    assert call("split", plain, noise, "--undo", "--no-report") == 0
    assert set(column(plain, "leaf")) == {"0", "1", "2"}
    assert load_model(plain).hierarchy is not None
    assert call("relabel", plain, "--undo") == 0  # undoes the undoing
    assert [path for path in load_model(plain).paths if len(path) > 1] == [(int(noise), 0), (int(noise), 1)]
    assert call("relabel", plain, "--undo") == 0
    assert call("split", plain, noise, "--no-report") == 0  # again, without a search
    assert column(plain, "leaf") == split
    assert before != (plain / "labels.csv").read_bytes()
    assert "was not split by hand" in refused(capsys, "split", plain, "0/7", "--undo", "--no-report")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["deepen", "RUN", "--cluster", "9"], "there is no cluster 9"),
        (["deepen", "RUN", "--cluster", "x"], "'x' is not the path of a cluster"),
        (["deepen", "RUN", "--rounds", "0"], "rounds is 0"),
        (["split", "RUN", "12"], "there is no cluster 12"),
    ],
)
def test_wrong_clusters_are_refused(plain: Path, capsys: Capture, words: list[str], message: str) -> None:
    assert message in refused(capsys, *[plain if word == "RUN" else word for word in words])


def test_an_unfinished_run_is_refused(plain: Path, capsys: Capture) -> None:
    (plain / "result.json").unlink()
    assert "is not finished" in refused(capsys, "deepen", plain)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Path:
    """A run on pictures whose largest cluster is split, and a part of it again."""
    run = fit_pictures(pictures, tmp_path_factory.mktemp("runs") / "run")
    model = load_model(run)
    images = np.stack([np.asarray(Image.open(p)) for p in sorted(pictures.rglob("*.png")) if p.stat().st_size])
    model_file.save(run / "model.safetensors", with_tree(model, torch.from_numpy(images)[:, None]))
    return run


def test_folders_lie_within_folders(opened: Path, pictures: Path, tmp_path: Path) -> None:
    assert call("predict", opened, pictures, "--out", tmp_path / "labels.csv") == 0
    leaves = {row["path"]: row["leaf"] for row in table(tmp_path / "labels.csv")}
    assert {"0/0", "0/1/0", "0/1/1"} <= set(leaves.values())
    assert call("sort", opened, pictures, "--into", tmp_path / "out") == 0
    for row in table(tmp_path / "out" / "sorted.csv"):
        name = Path(row["from"]).relative_to(pictures).as_posix()
        parts = row["to"].split("/")[:-1]
        assert "/".join(str(int(part)) for part in parts) == leaves[name]
        assert (tmp_path / "out" / row["to"]).is_file()
    assert call("sort", "--undo", tmp_path / "out") == 0
    assert not (tmp_path / "out").exists()


def test_names_of_sub_clusters_reach_the_folders(opened: Path, pictures: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(opened, run)
    saved = {"format": "converge-to-surprise clusters", "version": 1, "run": RunFolder(run).description().identity}
    names = {"clusters": [{"cluster": 0, "name": "bars"}], "leaves": {"0/1": "thin / one"}}
    (tmp_path / "names.json").write_text(json.dumps(saved | names))
    assert call("relabel", run, tmp_path / "names.json") == 0
    assert call("sort", run, pictures, "--into", tmp_path / "out") == 0
    folders = {path.name for path in (tmp_path / "out").rglob("*") if path.is_dir()}
    assert {"1 thin _ one", "0"} <= folders
    assert any(name.endswith(" bars") for name in folders)


@pytest.mark.slow
def test_the_exported_file_has_the_leaves(opened: Path, pictures: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    assert call("export", opened, "--onnx", tmp_path / "model.onnx") == 0
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    images = np.stack([np.asarray(Image.open(p)) for p in sorted(pictures.rglob("*.png")) if p.stat().st_size])[:, None]
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"images": images}), strict=True))
    model = load_model(opened)
    (wanted,) = model.predict(torch.from_numpy(images))
    clear = wanted.leaf_confidence.numpy() > 0.6
    assert clear.sum() > 10
    assert (found["leaf"] == wanted.leaf.numpy())[clear].all()
    paths = json.loads(session.get_modelmeta().custom_metadata_map["paths"])
    assert paths[-4:] == ["0/0", "0/1", "0/1/0", "0/1/1"]


def test_every_outcome_has_its_sentence() -> None:
    node = Node((0,), 1, 30, 10, "split", 2, -30.0, 0.9, 1.0, 20.0, 0.5, 1.9)
    outcomes = ("split", "by hand", "too few images", "one group", "no surprise", "weak boundary")
    sentences = {why(node._replace(outcome=outcome)) for outcome in outcomes}  # type: ignore[arg-type]
    assert len(sentences) == 6
    weak = node._replace(outcome="weak boundary", needed=0.5)
    assert "(boundary 0.40 of 1; 0.50 is needed)" in why(weak._replace(boundary=0.4, strength=0.9))
    assert "(strength 0.70 of 1; 0.84 is needed)" in why(weak._replace(boundary=0.8, strength=0.7))
    assert "look alike" in why(node._replace(strength=0.9))
    assert "look alike" not in why(node)  # a model of before it was asked for
    assert all(sentence[0].isupper() and sentence.endswith(".") for sentence in sentences)
