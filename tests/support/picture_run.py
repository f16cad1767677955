"""Folders of small pictures, a quick run of them by the command line, and its tables."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from torch import Tensor

from converge_to_surprise import cli
from converge_to_surprise.data import datasets
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.runs import checkpoint, session
from converge_to_surprise.runs.folder import RunFolder

SCHEDULE = ["--schedule", "search=relaxed:24", "merge=merge:1", "refine=refine:6"]
NETWORK = ["--network.width", "4", "--max-clusters", "12", "--views.upsample", "1"]
FLAGS = [*SCHEDULE, *NETWORK, "--threads", "1", "--no-report", "--relaxed.heads", "2", "--relaxed.batch-size", "20"]
FLAGS += ["--n-init", "1"]


def call(*words: object) -> int:
    """The exit code of a command."""
    return cli.main([str(word) for word in words])


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The message of a command that is refused."""
    capsys.readouterr()
    assert call(*words) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("cts: ")
    assert "Traceback" not in shown
    return shown.removeprefix("cts: ").strip()


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_pictures(images: Tensor, labels: Iterable[object], folder: Path) -> None:
    """One PNG per image in a folder per class, names in an order that is not that of the array."""
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = folder / f"class {label}" / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(path)


def make_pictures(folder: Path) -> Path:
    """60 striped pictures in folders of their classes, and two files that are no pictures."""
    write_pictures(*striped_images(60), folder)
    (folder / "class 0" / "empty.png").touch()
    (folder / "class 1" / "text.jpg").write_text("not a picture")
    return folder


def fit_pictures(pictures: Path, out: Path) -> Path:
    """A finished run of them."""
    assert call("fit", pictures, "--out", out, *FLAGS) == 0
    return out


def result_of(run: Path) -> dict[str, Any]:
    """The content of result.json."""
    found: dict[str, Any] = json.loads((run / "result.json").read_text(encoding="utf-8"))
    return found


def interrupt(run: RunFolder, steps: int) -> None:
    """Bring a finished run back to where it was after so many steps, with a checkpoint there."""
    description = run.description()
    for file in (run.result, run.model, run.labels, *run.checkpoints.iterdir()):
        file.unlink()
    dataset = datasets.load(description.source, options=description.reading, shape=description.shape)
    search, _ = session.reopen(run, dataset)
    records = search.run()
    for _ in range(steps):
        next(records)
    checkpoint.save(run.checkpoints, search.snapshot(), description.identity)
    run.truncate_history(search.step)
