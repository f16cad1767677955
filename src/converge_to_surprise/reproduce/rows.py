"""What a finished run is worth: one row of plain data per run, kept so that no run is evaluated twice."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from .. import __version__
from ..data.datasets import Dataset
from ..run.files import read_json, write_json
from ..run.opening import open_newest
from ..run.result import Assessment, assess
from ..run.rundir import Description, RunFolder
from .plan import INDIFFERENT, Recipe, job_name, mismatch, parse_name
from .tables import Row


def row_file(out: Path, name: str) -> Path:
    return out / "evaluations" / f"{name}.json"


def assess_run(folder: Path, dataset: Dataset) -> Assessment:
    """A run's clusters on the images to evaluate on: the test split where there is one."""
    return assess(open_newest(RunFolder.open(folder)).model, dataset.evaluation)


def evaluate(out: Path, name: str, words: list[str], overlay: dict[str, object], dataset: Dataset) -> Row:
    """The row of a finished run, from the file of an earlier call if it is about the same run."""
    folder, file = out / "runs" / name, row_file(out, name)
    run = RunFolder.open(folder)
    description = run.description()
    # What leads to the run today: presets change, and the file may be from before.
    told = {
        "overlay": {key: value for key, value in overlay.items() if key not in INDIFFERENT},
        "command": shlex.join(["cts", "fit", *words, "--threads", str(description.config.threads), "--out", "RUN"]),
    }
    if (known := _known(file, description)) is not None:
        return known | told
    result = read_json(run.result)
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
    write_json(file, {"identity": description.identity, "program": __version__, **row})
    return row


def _known(file: Path, description: Description) -> Row | None:
    if not file.is_file():
        return None
    row = read_json(file)
    if not isinstance(row, dict) or row.pop("identity", None) != description.identity:
        return None
    return row if row.pop("program", None) == __version__ else None


def others(out: Path, recipe: Recipe, planned: Iterable[str], variants: Iterable[str]) -> tuple[list[Row], list[str]]:
    """Rows of evaluated runs in ``out`` on data sets that were not asked for this time, and runs left out.

    A table is built up over several calls, one data set at a time: it shows all of them.
    """
    rows, left_out = [], []
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
            left_out.append(run.path.name)
            continue
        wanted = recipe.config(dataset, description.images, description.shape, variant, seed)
        row = _known(file, description)
        if wanted is None or mismatch(description, wanted):
            left_out.append(run.path.name)
        elif row is not None:
            rows.append(row)
    return rows, left_out
