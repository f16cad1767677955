"""No class is read before evaluation; and the merge tree of a finished run can be read at any level."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from converge_to_surprise import cli
from converge_to_surprise.data.synthetic import striped_images

WHOLE = """
--seed 1 --n-init 2 --threads 1 --max-clusters 12 --network.width 4 --relaxed.heads 3 --relaxed.batch-size 50
--relaxed.diversity-floor 6 9
--schedule search=relaxed:12 merge=merge:1 refine=refine:3 --no-report --views.upsample 1
"""


@pytest.fixture(scope="module")
def pictures() -> tuple[np.ndarray, np.ndarray]:
    images, kinds = striped_images(300)
    return images[:, 0].numpy(), kinds


def fit(folder: Path, **arrays: np.ndarray) -> Path:
    folder.mkdir(exist_ok=True)
    np.savez(folder / "images.npz", allow_pickle=False, **arrays)
    run = folder / "run"
    assert cli.main(["fit", str(folder / "images.npz"), "--out", str(run), *WHOLE.split()]) == 0
    return run


@pytest.fixture(scope="module")
def labeled(pictures: tuple[np.ndarray, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit(tmp_path_factory.mktemp("labeled"), x_train=pictures[0], y_train=pictures[1])


def test_clusters_do_not_depend_on_labels(
    pictures: tuple[np.ndarray, np.ndarray], labeled: Path, tmp_path: Path
) -> None:
    images, kinds = pictures
    shuffled = np.random.default_rng(0).permutation(kinds)
    found = (labeled / "labels.csv").read_bytes()
    sizes = [row["size"] for row in json.loads((labeled / "result.json").read_text())["clusters"]]
    assert len(sizes) >= 2
    assert min(sizes) >= 20  # so that equal files mean equal clusters, not one cluster for all images
    for name, arrays in {"absent": {}, "shuffled": {"y_train": shuffled}}.items():
        run = fit(tmp_path / name, x_train=images, **arrays)
        assert (run / "labels.csv").read_bytes() == found, name
        kept = [json.loads((folder / "result.json").read_text())["merge"] for folder in (run, labeled)]
        assert kept[0] == kept[1]


def evaluated(run: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, float]:
    capsys.readouterr()
    assert cli.main(["evaluate", str(run), str(run.parent / "images.npz"), "--json", *flags]) == 0
    scores: dict[str, float] = json.loads(capsys.readouterr().out)
    return scores


def test_the_merge_tree_is_read_at_any_level(labeled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    merged = json.loads((labeled / "result.json").read_text())["merge"]
    finest = len(merged["steps"]) + 1
    assert finest > merged["n_clusters"] >= 2
    cut = evaluated(labeled, capsys)
    assert evaluated(labeled, capsys, "--n-clusters", str(merged["n_clusters"]))["nmi"] == pytest.approx(cut["nmi"])
    for clusters in range(1, finest + 1):
        assert evaluated(labeled, capsys, "--n-clusters", str(clusters))["n_clusters"] <= clusters
    assert evaluated(labeled, capsys, "--n-clusters", "1")["n_clusters"] == 1
    assert evaluated(labeled, capsys, "--n-clusters", str(finest))["n_clusters"] > cut["n_clusters"]


@pytest.mark.parametrize("clusters", ["0", "99"])
def test_a_level_that_the_tree_does_not_have_is_refused(
    labeled: Path, capsys: pytest.CaptureFixture[str], clusters: str
) -> None:
    source = str(labeled.parent / "images.npz")
    assert cli.main(["evaluate", str(labeled), source, "--n-clusters", clusters]) == 2
    said = capsys.readouterr().err
    assert f"n_clusters is {clusters}; the merge tree has 1 to" in said
