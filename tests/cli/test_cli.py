"""The command line: every command, and every mistake in one clear line, with exit code 2 and nothing lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from converge_to_surprise import cli
from converge_to_surprise.data import datasets
from converge_to_surprise.data.synthetic import striped_images

SETTINGS = """
--threads 1 --n-init 1 --search evolution --schedule explore=evolution:2 --max-clusters 6 --network.width 2
--network.min-active-outputs 4 --augmentation.crop 1 --no-report --views.upsample 1 --evolution.population 2
--evolution.batch-size 10 --evolution.sigma 0.1
"""
FLAGS = SETTINGS.split()
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (20, 8, 8), dtype=np.uint8)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "bars.npz"
    images, classes = striped_images(60)
    np.savez(path, images=images.numpy(), labels=classes)
    return path


@pytest.fixture(scope="module")
def finished(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    assert cli.main(["fit", str(source), "--out", str(out), *FLAGS]) == 0
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run that a test may harm."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def call(*words: str | Path) -> int:
    """The exit code. The parser itself leaves by SystemExit."""
    try:
        return cli.main([str(word) for word in words])
    except SystemExit as left:
        return int(left.code or 0)


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The one line with which these words are refused."""
    capsys.readouterr()
    assert call(*words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("cts: ")
    assert shown.err.count("\n") == 1, shown.err
    assert "Traceback" not in shown.err
    return shown.err.removeprefix("cts: ").rstrip()


def boxed(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The text of the box in which the parser itself refuses words, without its frame and line breaks."""
    capsys.readouterr()
    assert call(*words) == 2
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    return " ".join((shown.out + shown.err).replace("│", " ").split())


# What works.


def test_fit_writes_a_run(finished: Path) -> None:
    assert {path.name for path in finished.iterdir()} - {".lock"} == {
        "config.json", "history.jsonl", "checkpoints", "result.json", "labels.csv", "model.safetensors",
        "outputs.safetensors", "training.safetensors", "exemplars.csv", "duplicates.csv",
    }  # fmt: skip
    config = json.loads((finished / "config.json").read_text())
    assert config["config"]["evolution"]["sigma"] == 0.1
    assert config["config"]["schedule"] == ["explore=evolution:2"]
    assert config["config"]["threads"] == 1
    history = [json.loads(line) for line in (finished / "history.jsonl").read_text().splitlines()]
    assert [record["step"] for record in history] == list(range(12))
    assert set(history[0]) == {
        "step", "epoch", "stage", "kind", "surprise", "orderliness", "agreement", "surprising", "active", "views",
        "seconds",
    }  # fmt: skip
    rows = (finished / "labels.csv").read_text().splitlines()
    assert rows[0] == "image,cluster,confidence,novelty,second,second_confidence,views_agree,subcluster"
    assert [row.split(",")[0] for row in rows[1:]] == [str(index) for index in range(60)]


def test_clusters_are_numbered_by_size(finished: Path) -> None:
    rows = (finished / "labels.csv").read_text().splitlines()[1:]
    sizes = np.bincount([int(row.split(",")[1]) for row in rows])
    assert (sizes > 0).all()
    assert (np.diff(sizes) <= 0).all()
    result = json.loads((finished / "result.json").read_text())
    assert [cluster["size"] for cluster in result["clusters"]] == sizes.tolist()
    assert result["n_clusters_both"] == len(sizes)


def test_fit_says_what_it_found(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("fit", source, "--out", tmp_path / "run", *FLAGS) == 0
    out = capsys.readouterr().out
    assert "explore  step 1/12  S " in out
    assert "explore  step 12/12  S " in out
    assert "clusters in 60 images" in out
    assert "−log p" in out
    assert "purity" in out
    assert "NMI " in out
    assert f"run in {tmp_path / 'run'}" in out


def test_evaluate_json(finished: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert call("evaluate", finished, source, "--json") == 0
    scores = json.loads(capsys.readouterr().out)  # one object and nothing else
    assert {"acc", "nmi", "ari", "n_clusters", "surprise", "orderliness", "agreement"} <= set(scores)
    assert 0 < scores["acc"] <= 1
    result = json.loads((finished / "result.json").read_text())
    assert {name: result[name] for name in scores} == scores


def test_evaluate_takes_the_test_part(
    finished: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images, classes = striped_images(90, seed=1)
    path = tmp_path / "two.npz"
    np.savez(path, x_train=images[:50].numpy(), y_train=classes[:50], x_test=images[50:].numpy(), y_test=classes[50:])
    counts = []
    for flags in ([], ["--split", "train"], ["--split", "test"]):
        capsys.readouterr()
        assert call("evaluate", finished, path, "--json", *flags) == 0
        counts.append(json.loads(capsys.readouterr().out)["images"])
    assert counts == [40, 50, 40]


def test_evaluate_without_classes(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "plain.npy", striped_images(30)[0].numpy())
    capsys.readouterr()
    assert call("evaluate", finished, tmp_path / "plain.npy", "--json") == 0
    scores = json.loads(capsys.readouterr().out)
    assert (scores["acc"], scores["nmi"], scores["ari"]) == (None, None, None)
    assert call("evaluate", finished, tmp_path / "plain.npy") == 0
    out = capsys.readouterr().out
    assert "clusters in 30 images" in out
    assert "purity" not in out


def test_evaluate_changes_nothing(finished: Path, source: Path) -> None:
    before = contents(finished)
    assert call("evaluate", finished, source) == 0
    assert call("show", finished) == 0
    assert contents(finished) == before


def test_show(finished: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert call("show", finished) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["source"] == f"{source}: 60 images of 1x8x8"
    assert rows["schedule"] == "explore=evolution:2"
    assert rows["steps"] == "12 done, finished"
    assert "step=11" in rows["last"]
    assert "n_clusters=" in rows["result"]


def test_show_an_unfinished_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "result.json").unlink()
    assert call("show", run) == 0
    assert "12 done, not finished" in capsys.readouterr().out


def test_resume_completes(run: Path) -> None:
    before = contents(run)
    for name in ("result.json", "labels.csv"):
        (run / name).unlink()
    assert call("resume", run, "--no-report") == 0
    assert contents(run) == before


def test_relative_sources_are_found_from_elsewhere(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parent)
    assert call("fit", source.name, "--out", tmp_path / "run", *FLAGS) == 0
    monkeypatch.chdir(tmp_path)
    assert call("resume", "run") == 0


@pytest.mark.parametrize(("flags", "background"), [((), "remove"), (("--views.background", "keep"), "keep")])
def test_a_folder_that_is_called_like_a_data_set_is_one_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], background: str
) -> None:
    (tmp_path / "digits").mkdir()
    for number, image in enumerate(striped_images(12)[0]):
        Image.fromarray(image[0].numpy()).save(tmp_path / "digits" / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    assert call("fit", "digits/", "--out", "run", "--kind", "glyph", *FLAGS, *flags) == 0
    saved = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert saved["views"]["background"] == background
    assert saved["augmentation"]["zoom_out_prob"] == 0


def test_the_background_of_a_named_data_set_can_be_removed(tmp_path: Path) -> None:
    flags = [*FLAGS, "--views.background", "remove", "--no-report"]
    assert call("fit", "digits", "--out", tmp_path / "run", *flags) == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["views"]["background"] == "remove"


def test_named_data_from_a_folder(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    shutil.copy(source, tmp_path / "data" / "usps.npz")
    monkeypatch.chdir(tmp_path)
    assert call("fit", "USPS", "--out", "run", "--data-dir", "data", *FLAGS) == 0
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["source"] == "usps"
    assert saved["config"]["augmentation"]["zoom_out"] == [1, 3], "those of the named data set, not enlarged"
    monkeypatch.chdir("/")
    assert call("resume", tmp_path / "run") == 0
    assert call("evaluate", tmp_path / "run", "usps", "--data-dir", tmp_path / "data") == 0


def test_force_gives_up_the_run_and_nothing_else(run: Path, source: Path) -> None:
    (run / "notes.txt").write_text("mine")
    assert call("fit", source, "--out", run, "--force", "--seed", "5", *FLAGS) == 0
    assert json.loads((run / "config.json").read_text())["config"]["seed"] == 5
    assert (run / "notes.txt").read_text() == "mine"


@pytest.mark.subprocess
def test_python_m_is_the_same_program(finished: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [sys.executable, "-m", "converge_to_surprise", "evaluate", str(finished), str(source), "--json"]
    evaluated = subprocess.run(words, capture_output=True, text=True, check=True)
    capsys.readouterr()
    assert call("evaluate", finished, source, "--json") == 0
    assert json.loads(evaluated.stdout) == json.loads(capsys.readouterr().out)


@pytest.mark.subprocess
def test_the_exit_code_reaches_the_shell() -> None:
    words = [sys.executable, "-m", "converge_to_surprise", "show", "nowhere"]
    wrong = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "cts: nowhere is not a run folder: it has no config.json\n"


# Mistakes in the images. None of them may leave a run folder behind.


def with_pixel(value: float) -> npt.NDArray[np.float64]:
    pixels = PIXELS / 255
    pixels[7, 3, 3] = value
    return pixels


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (np.zeros((20, 64), dtype=np.uint8), "has shape (20, 64); images are (N, H, W)"),
        (np.zeros((20, 8, 8, 5), dtype=np.uint8), "has shape (20, 8, 8, 5)"),
        (PIXELS.astype(str), "has dtype <U3; pixels are"),
        (PIXELS.astype(complex), "has dtype complex128"),
        (PIXELS.astype(int) - 9, "they must lie in 0..255"),
        (PIXELS.astype(int) * 300, "they must lie in 0..255"),
        (with_pixel(np.nan), "has a pixel that is nan in image 7; pixels must be finite"),
        (with_pixel(np.inf), "has a pixel that is inf in image 7"),
        (with_pixel(-np.inf), "has a pixel that is -inf in image 7"),
        (PIXELS[:0], "holds no images"),
        (PIXELS[:1], "holds 1 image; clustering needs at least 2"),
        (PIXELS[:, :1, :1], "holds images of 1x1 pixels"),
        (np.full((20, 8, 8), 9, dtype=np.uint8), "are constant (every pixel is 9)"),
        (np.repeat(PIXELS[:1], 20, axis=0), "are the same: there is nothing to cluster"),
        (np.repeat(PIXELS[:, :1, :1], 64, axis=1).reshape(20, 8, 8), "is constant (a single gray value)"),
    ],
)
def test_wrong_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pixels: npt.NDArray[Any], message: str
) -> None:
    path = tmp_path / "wrong.npy"
    np.save(path, pixels)
    line = refused(capsys, "fit", path, "--out", tmp_path / "run", *FLAGS)
    assert message in line
    assert str(path) in line
    assert os.listdir(tmp_path) == ["wrong.npy"]


def test_labels_that_do_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "wrong.npz", images=PIXELS, labels=np.arange(19))
    line = refused(capsys, "fit", tmp_path / "wrong.npz", "--out", tmp_path / "run", *FLAGS)
    assert "has 20 images but labels of shape (19,)" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mnits", "there is no data set or file 'mnits'; give a name (mnist, fashion-mnist, usps, digits)"),
        ("none.npz", "there is no data set or file 'none.npz'"),
        (".", ". is not a source of images"),
        ("notes.txt", "notes.txt is not a source of images"),
        ("notes.npz", "cannot read notes.npz as an array file"),
        ("notes.npy", "cannot read notes.npy as an array file"),
    ],
)
def test_wrong_sources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for ending in ("txt", "npz", "npy"):
        (tmp_path / f"notes.{ending}").write_text("no images here")
    assert message in refused(capsys, "fit", name, "--out", "run", *FLAGS)
    assert not (tmp_path / "run").exists()


def test_offline(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(datasets, "fetch_openml", fail)
    line = refused(capsys, "fit", "mnist", "--out", tmp_path / "run")
    assert "mnist is not in the local folder and could not be downloaded from OpenML (no route to host)" in line
    assert not (tmp_path / "run").exists()
    line = refused(capsys, "fit", "mnist", "--out", tmp_path / "run", "--data-dir", tmp_path / "none")
    assert "--data-dir is " in line
    assert "which is not a folder" in line


# Mistakes in the settings.


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "--evolution.batch-size 61",
            "evolution.batch_size is 61 but there are only 60 images; set it to 60 or less",
        ),
        ("--schedule s=relaxed:1 --relaxed.batch-size 61", "relaxed.batch_size is 61 but there are only 60 images"),
        ("--augmentation.crop 8", "augmentation.crop is 8 but the views are only 8 pixels wide or high"),
        ("--evolution.score beauty", "unknown score 'beauty'; known: surprise, orderliness"),
        (
            "--schedule x=walk:3",
            "kind of stage x is 'walk'; it must be one of evolution, guided, graph, relaxed, merge, refine, "
            "consolidate",
        ),
        ("--schedule x", "schedule stage 'x' is not of the form name=kind:epochs"),
        ("--schedule ok=evolution:1 x=evolution:0", "epochs of stage x is 0; it must be a whole number of at least 1"),
        ("--seed -1", "seed is -1; it must be a whole number from 0"),
        ("--threads 9999", "threads is 9999; it must be from 0 to 1024"),
        ("--device abacus", "device is 'abacus', which cannot be used here"),
        ("--config none.toml", "cannot read the configuration none.toml"),
    ],
)
def test_wrong_settings(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: str, message: str
) -> None:
    line = refused(capsys, "fit", source, "--out", tmp_path / "run", *FLAGS, *flags.split())
    assert message in line
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--evolution.population 3", "evolution.population is 3; it must be an even number of at least 2"),
        ("--evolution.sigma nan", "evolution.sigma is nan; it must be above 0"),
        ("--max-clusters 1", "--max-clusters is 1; it must be from 2 to 4096"),
        ("--nonsense 3", "--nonsense"),
        ("--evolution.popluation 4", "--evolution.popluation"),
        ("--seed many", "'many'"),
        ("--preset slow", "slow"),
        ("--search random", "random"),
        ("--augmentation.sampling cubic", "cubic"),
        ("--augmentation.zoom-out 3", "--augmentation.zoom-out"),
        ("--threads", "--threads"),
    ],
)
def test_words_that_the_parser_refuses(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: str, message: str
) -> None:
    assert message in boxed(capsys, "fit", source, "--out", tmp_path / "run", *FLAGS, *flags.split())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "fit"), (["dance"], "dance"), (["fit"], "SOURCE"), (["fit", "digits"], "--out"), (["resume"], "RUN"),
     (["evaluate", "run"], "SOURCE"), (["show"], "RUN"), (["show", "a", "b"], "b")],
)  # fmt: skip
def test_incomplete_commands(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert message in boxed(capsys, *words)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", "seed = ", "is not valid toml"),
        ("a.json", "{", "is not valid json"),
        ("a.toml", "sead = 3", "unknown setting 'sead'"),
        ("a.toml", "seed = '3'", "seed is '3'; it must be of type int"),
        ("a.toml", "[evolution]\npopulation = 7", "evolution.population is 7; it must be an even number"),
        ("a.json", '{"schedule": ["x=walk:1"]}', "kind of stage x is 'walk'"),
        ("a.json", "[]", "must be a table of settings"),
    ],
)
def test_wrong_configuration_files(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    line = refused(capsys, "fit", source, "--out", tmp_path / "run", *FLAGS, "--config", tmp_path / name)
    assert message in line
    assert os.listdir(tmp_path) == [name]


# Mistakes about the folder.


def test_an_existing_run_is_kept(run: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(run)
    line = refused(capsys, "fit", source, "--out", run, *FLAGS)
    assert line == f"{run} already holds a run; continue it with `cts resume {run}` or give --force"
    assert contents(run) == before


@pytest.mark.parametrize("wrong", ["--evolution.batch-size 61", "--evolution.score beauty", "--device abacus"])
def test_force_with_a_mistake_keeps_the_run(
    run: Path, source: Path, capsys: pytest.CaptureFixture[str], wrong: str
) -> None:
    before = contents(run)
    refused(capsys, "fit", source, "--out", run, "--force", *FLAGS, *wrong.split())
    refused(capsys, "fit", "nothing.npz", "--out", run, "--force", *FLAGS)
    assert contents(run) == before


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_folders_of_other_things(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str], force: list[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "is not empty and holds no run" in refused(capsys, "fit", source, "--out", tmp_path, *force, *FLAGS)
    line = refused(capsys, "fit", source, "--out", tmp_path / "thesis.tex", *force, *FLAGS)
    assert line == f"--out is {tmp_path / 'thesis.tex'}, which is a file; give a folder"
    line = refused(capsys, "fit", source, "--out", tmp_path / "thesis.tex" / "run", *force, *FLAGS)
    assert "cannot make the run folder" in line
    assert contents(tmp_path) == {"thesis.tex": b"years of work"}


@pytest.mark.parametrize("command", ["resume", "show", "evaluate"])
def test_what_is_no_run(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    more = [source] if command == "evaluate" else []
    for path in (tmp_path, tmp_path / "none", source):
        assert refused(capsys, command, path, *more) == f"{path} is not a run folder: it has no config.json"
    (tmp_path / "config.json").write_text('{"name": "some web project"}')
    assert "does not describe a run of this program" in refused(capsys, command, tmp_path, *more)
    assert contents(tmp_path) == {"config.json": b'{"name": "some web project"}'}


def test_resume_with_changed_images(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own.npz"
    shutil.copy(source, own)
    assert call("fit", own, "--out", tmp_path / "run", *FLAGS) == 0
    before = contents(tmp_path / "run")
    np.savez(own, images=striped_images(60, seed=9)[0].numpy())
    line = refused(capsys, "resume", tmp_path / "run")
    assert line == f"{own} does not hold the images that {tmp_path / 'run'} was begun with"
    own.unlink()
    assert f"there is no data set or file '{own}'" in refused(capsys, "resume", tmp_path / "run")
    assert contents(tmp_path / "run") == before


def test_evaluate_with_other_images(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "color.npy", RNG.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8))
    line = refused(capsys, "evaluate", finished, tmp_path / "color.npy")
    size = "are 3x8x8 (channels, height, width) and the model was made with 1x8x8, another number of channels"
    assert line.startswith(f"the images of {tmp_path / 'color.npy'} {size}")
    np.save(tmp_path / "flat.npy", np.zeros((20, 0, 8), dtype=np.uint8))
    assert "flat.npy" in refused(capsys, "evaluate", finished, tmp_path / "flat.npy", "--json")
    assert "'none.npz'" in refused(capsys, "evaluate", finished, "none.npz", "--json")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(content)


DAMAGE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "truncated tensors": ("*.safetensors", truncate, "is truncated or damaged"),
    "missing tensors": ("*.safetensors", Path.unlink, "cannot read the checkpoint"),
    "truncated description": ("*.json", truncate, "cannot read"),
    "foreign description": ("*.json", lambda p: p.write_text('{"model": "other"}'), "is not a checkpoint of this prog"),
    "later version": (
        "*.json",
        lambda p: p.write_text(p.read_text().replace('"version": 3', '"version": 4')),
        "has version 4; this program reads version 3",
    ),
    "missing parts": (
        "*.json",
        lambda p: p.write_text(json.dumps(json.loads(p.read_text()) | {"data": {"step": 3}})),
        "the checksum differs",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_checkpoints(run: Path, source: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    pattern, damage, message = DAMAGE[name]
    for path in (run / "checkpoints").glob(pattern):
        damage(path)
    (run / "model.safetensors").unlink()  # as if the run was not finished
    before = contents(run)
    for command, *more in (["resume"], ["evaluate", source]):
        line = refused(capsys, str(command), run, *more)
        assert message in line
        assert str(run / "checkpoints") in line
    assert contents(run) == before


def test_evaluate_warns_of_a_damaged_newest_checkpoint(
    run: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = max((run / "checkpoints").glob("*.safetensors"))
    for path in (newest, newest.with_suffix(".json")):
        shutil.copy(path, path.with_name(path.name.replace("12", "11")))
    truncate(newest)
    (run / "model.safetensors").unlink()
    capsys.readouterr()
    assert call("evaluate", run, source, "--json") == 0
    shown = capsys.readouterr()
    json.loads(shown.out)
    assert f"warning: the checkpoint {newest} or its {newest.stem}.json is truncated or damaged" in shown.err


def test_no_checkpoint_to_evaluate(run: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(run / "checkpoints")
    (run / "result.json").unlink()
    assert "has no checkpoint yet; continue it with `cts resume" in refused(capsys, "evaluate", run, source)


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, lambda path: path.write_bytes(b"")])
def test_damaged_model(
    run: Path, source: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], object]
) -> None:
    damage(run / "model.safetensors")
    assert "model.safetensors" in refused(capsys, "evaluate", run, source)
    assert call("resume", run) == 0  # which writes it again
    assert call("evaluate", run, source) == 0
