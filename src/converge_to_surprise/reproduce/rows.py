"""What a finished run is worth: one row of plain data per run, kept so that no run is evaluated twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from .. import __version__
from ..config.storage import read_json, write_json
from ..core.metrics import balance
from ..data.datasets import Dataset
from ..data.store import fingerprint
from ..model.assessment import Assessment, assess, read_result
from ..runs.folder import Description, RunFolder
from ..runs.load import load_newest_model
from .plan import INDIFFERENT, Recipe, fit_command, job_name, mismatch, parse_name
from .tables import Row


def row_file(out: Path, name: str) -> Path:
    return out / "evaluations" / f"{name}.json"


def assess_run(folder: Path, dataset: Dataset) -> Assessment:
    """A run's clusters on the images to evaluate on: the test split where there is one."""
    return assess(load_newest_model(RunFolder.open(folder)).model, dataset.evaluation)


def evaluate(out: Path, name: str, words: list[str], overlay: dict[str, object], dataset: Dataset) -> Row:
    """The row of a finished run, from the file of an earlier call if it is about the same run."""
    folder, file = out / "runs" / name, row_file(out, name)
    run = RunFolder.open(folder)
    description = run.description()
    told = _told(run, description, words, overlay)
    about = {"evaluated": _evaluated(dataset), **_run_key(run, description)}
    if (known := _known(file, about)) is not None:
        return known | told
    result = read_result(run.result)
    assessment = assess_run(folder, dataset)
    parsed = parse_name(name)
    assert parsed is not None
    row: Row = {
        "dataset": parsed[0],
        "variant": parsed[1],
        "seed": parsed[2],
        "preset": description.preset,
        **told,
        "versions": result.get("versions", {"converge-to-surprise": description.program}),
        "threads": description.config.threads,
        "seconds": round(result["seconds"], 1),
        "split": "train" if dataset.test is None else "test",
        "metrics": assessment.scores(),
        "clusters": assessment.table(),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, {"about": about, **row})
    return row


def _told(run: RunFolder, description: Description, words: list[str], overlay: dict[str, object]) -> Row:
    """What leads to a run today: presets change, and what is known of it may be from before. And what a choice among
    starts goes by: how even its clusters of the training images are.
    """
    return {
        "overlay": {key: value for key, value in overlay.items() if key not in INDIFFERENT},
        "command": fit_command(words, description.config.threads),
        "images": description.images,
        "shape": list(description.shape),
        "balance": balance(row["size"] for row in read_result(run.result)["clusters"]),
    }


def _run_key(run: RunFolder, description: Description) -> dict[str, str]:
    """Tells a run from one that once had its place, and who evaluated it."""
    result = hashlib.sha256(run.result.read_bytes()).hexdigest()
    return {"identity": description.identity, "result": result, "program": __version__}


def _evaluated(dataset: Dataset) -> str:
    """Tells the images and classes of an evaluation from others."""
    images, classes = dataset.evaluation.images, dataset.evaluation.labels
    return fingerprint(images) + ("" if classes is None else hashlib.sha256(np.asarray(classes).tobytes()).hexdigest())


def _known(file: Path, about: dict[str, str]) -> Row | None:
    """The row in a file if it is about this: a run, and the images it was evaluated on if they are at hand."""
    try:
        row = read_json(file)
        stored = row.pop("about")
        return row if all(stored[key] == value for key, value in about.items()) else None
    except (ValueError, KeyError, TypeError, AttributeError):  # missing, damaged, or of an earlier version
        return None


def others(
    out: Path, recipe: Recipe, planned: Iterable[str], variants: Iterable[str]
) -> tuple[list[Row], dict[str, str]]:
    """Rows of evaluated runs in ``out`` on data sets that were not asked for this time, and why runs were left out.

    A table is built up over several calls, one data set at a time: it shows all of them.
    """
    rows: list[Row] = []
    left_out: dict[str, str] = {}
    asked = set(planned)
    for file in sorted((out / "evaluations").glob("*.json")):
        parsed = parse_name(file.stem)
        if parsed is None or parsed[0] in asked or parsed[1] not in variants:
            continue
        dataset, variant, seed = parsed
        run = RunFolder(out / "runs" / job_name(dataset, variant, seed))
        if not (run.config.is_file() and run.result.is_file()):
            continue
        try:
            description = run.description()
        except ValueError:  # damaged, or from a version with other settings
            left_out[run.path.name] = "which cannot be read"
            continue
        wanted = recipe.config(dataset, description.images, description.shape, variant, seed)
        wanted = wanted and replace(wanted, starts=1)
        if wanted is None or mismatch(description, wanted):
            left_out[run.path.name] = "which was made with other settings"
        elif (row := _known(file, _run_key(run, description))) is None:
            left_out[run.path.name] = f"which is to be evaluated again: give --dataset {dataset}"
        else:
            words = recipe.words(dataset, description.images, description.shape, wanted)
            rows.append(row | _told(run, description, words, recipe.overlay))
    return rows, left_out
