"""Wrong arguments of the command line are refused by the name that the user wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.picture_run import FLAGS, call, refused

from converge_to_surprise.data.synthetic import striped_images


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "bars.npy"
    np.save(path, striped_images(40)[0].numpy())
    return path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--n-clusters", "0"], "--n-clusters is 0; it must be at least 1"),
        (["--n_clusters", "0"], "--n_clusters is 0; it must be at least 1"),
        (["--n-clusters=100"], "--n-clusters is 100; it must be at most max_clusters, which is 12"),
        (["--n-clusters", "41", "--max-clusters", "64"], "--n-clusters is 41; it must be at most the number of images"),
        (
            ["--search", "evolution", "--n-clusters", "3", "--schedule", "a=evolution:1"],
            "--n-clusters is 3; it must be",
        ),
        (["--n-init", "0"], "--n-init is 0; it must be from 1 to 1000"),
        (["--relaxed.batch-size", "1"], "--relaxed.batch-size is 1; it must be at least 2"),
        (["--image-size", "2"], "--image-size is 2; it must be an integer from 8 to 1024"),
        (["--threads", "-1"], "--threads is -1; it must be from 0 to 1024"),
    ],
)
def test_a_wrong_setting_has_the_name_of_its_flag(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    line = refused(capsys, "fit", source, "--out", tmp_path / "run", *FLAGS, *words)
    assert line.startswith(message)
    assert not (tmp_path / "run").exists()


def test_a_setting_of_a_file_has_its_own_name(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.toml").write_text("n_clusters = 0\n")
    line = refused(capsys, "fit", source, "--out", tmp_path / "run", "--config", tmp_path / "s.toml")
    assert line.startswith("n_clusters is 0; it must be at least 1")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["fit", "SOURCE", "--out", ""], "--out"),
        (["fit", "SOURCE", "--out="], "--out"),
        (["fit", "", "--out", "x"], "an argument"),
        (["predict", "RUN", "SOURCE", "--out", ""], "--out"),
        (["sort", "RUN", "SOURCE", "--into", ""], "--into"),
        (["export", "RUN", "--onnx", ""], "--onnx"),
        (["report", "RUN", "--out", ""], "--out"),
        (["resume", "RUN", "--source", ""], "--source"),
        (["show", ""], "an argument"),
    ],
)
def test_an_empty_path_is_not_the_current_folder(
    words: list[str],
    name: str,
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"SOURCE": str(source), "RUN": str(tmp_path / "run")}
    assert refused(capsys, *(places.get(word, word) for word in words)) == f"{name} is empty; give a value"
    assert list(tmp_path.iterdir()) == []


def test_fewer_clusters_than_asked_for_are_told(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*FLAGS, "--schedule", "search=relaxed:2", "merge=merge:1"]
    assert call("fit", source, "--out", tmp_path / "run", *flags, "--n-clusters", "12") == 0
    assert "warning: n_clusters is 12, but only" in capsys.readouterr().err
