"""The files of a target, made of finished runs: a CSV file with one row per run, a Markdown page, figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..config.storage import write_atomically
from ..core.metrics import choose_panels
from ..data.datasets import Dataset, class_name
from ..model.assessment import Assessment, evaluate
from ..runs.folder import RunFolder
from ..runs.load import load_newest_model
from ..runs.result import read_result
from . import figures
from . import result_tables as tables
from .plan import SPEED_ONLY, VARIANTS, PlannedRun, Recipe

PAGES = {"table1": tables.table1, "table2": tables.table2, "ablation": tables.ablation, "curves": tables.figure_page}

Found = list[tuple[PlannedRun, Assessment]]
"""Finished runs and their clusters on the images to evaluate on: the test split where there is one."""


@dataclass(frozen=True)
class Output:
    """What to make, and where."""

    out: Path
    target: str
    recipe: Recipe
    sets: dict[str, Dataset]
    panel_seed: int | None = None
    """The seed of the panels and the purity list; None: the first that is finished."""

    @property
    def settings(self) -> str:
        """The settings on top of the preset, as JSON."""
        return json.dumps({key: value for key, value in self.recipe.overlay.items() if key not in SPEED_ONLY})


def write(output: Output, runs: list[PlannedRun], report: Callable[[str], None]) -> dict[str, str]:
    """Write the files of a target; returns the errors of the runs that cannot be read, by name."""
    found: Found = []
    rows, errors = _other_rows(output, report), {}
    for run in runs:
        try:
            model = load_newest_model(RunFolder.open(run.folder)).model
            store = output.sets[run.dataset].evaluation
            found.append((run, evaluate(model, model.run_all(store.images), store.labels)))
            rows.append(_row(output, *found[-1]))
        except ValueError as error:
            errors[run.name] = f"{error}. Remove {run.folder} to run it again"
    if not rows:
        report("no run is finished yet: there is nothing to show")
        return errors
    sets, variants = list(tables.TITLES), list(VARIANTS)
    rows.sort(key=lambda row: (sets.index(row["dataset"]), variants.index(row["variant"]), row["seed"]))
    frame = pd.DataFrame(rows, columns=list(tables.COLUMNS))
    page = PAGES[output.target](frame)
    report(page)
    files = {f"{output.target}.csv": frame.to_csv(index=False).encode(), f"{output.target}.md": page.encode()}
    files |= _clusters(output, found) if output.target == "table1" else {}
    files |= _curves(output, found) if output.target == "curves" else {}
    for name, content in files.items():
        write_atomically(output.out / name, content)
        report(f"written: {output.out / name}")
    return errors


def _other_rows(output: Output, report: Callable[[str], None]) -> list[dict[str, Any]]:
    """Rows of an earlier call on data sets that are not asked for now, with the same settings: the table grows."""
    path = output.out / f"{output.target}.csv"
    try:
        rows = tables.read(path)
    except (OSError, ValueError):  # missing or damaged
        return []
    rows = rows[~rows["dataset"].isin(list(output.sets))]
    same = (rows["preset"] == output.recipe.preset) & (rows["settings"] == output.settings)
    if not same.all():
        report(f"left out: {(~same).sum()} rows of {path}, which were made with other settings")
    return rows[same].to_dict("records")  # type: ignore[return-value]


def _row(output: Output, run: PlannedRun, assessment: Assessment) -> dict[str, Any]:
    folder = RunFolder.open(run.folder)
    result, description = read_result(folder.result), folder.description()
    versions = result.get("versions") or {"converge-to-surprise": description.program}
    return assessment.scores() | {
        "dataset": run.dataset,
        "variant": run.variant,
        "preset": output.recipe.preset,
        "seed": run.seed,
        "command": run.command(description.config.threads),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "seconds": round(result["seconds"], 1),
        "split": "train" if output.sets[run.dataset].test is None else "test",
        "settings": output.settings,
    }


def _clusters(output: Output, found: Found) -> dict[str, bytes]:
    """Panels and purity list of one run per data set."""
    files: dict[str, bytes] = {}
    for name, dataset in output.sets.items():
        chosen = [one for one in found if one[0].dataset == name and output.panel_seed in (None, one[0].seed)]
        if not chosen or (classes := chosen[0][1].classes) is None:
            continue
        run, assessment = chosen[0]
        rows = [
            (one.cluster, one.size, one.purity, class_name(name, one.dominant))
            for one in sorted(assessment.clusters, key=lambda one: -one.size)
            if one.dominant is not None
        ]
        frame = pd.DataFrame(rows, columns=["cluster", "images", "purity", "class"])
        files[f"purity-{name}.csv"] = frame.to_csv(index=False).encode()
        files[f"purity-{name}.md"] = tables.purity(name, run.seed, frame).encode()
        panels = choose_panels(assessment.labels, classes)
        captions = [f"cluster {one.cluster}, {class_name(name, one.class_number)}: {one.images}" for one in panels]
        figure = figures.panels(panels, dataset.evaluation.images.numpy(), captions)
        files[f"panels-{name}.png"] = figures.render(figure, "png")
    return files


def _curves(output: Output, found: Found) -> dict[str, bytes]:
    """One figure per data set with all seeds in it."""
    files: dict[str, bytes] = {}
    for name, dataset in output.sets.items():
        histories = {f"seed {run.seed}": RunFolder(run.folder).records() for run, _ in found if run.dataset == name}
        if histories:
            labels = dataset.evaluation.labels
            classes = None if labels is None else len(set(labels.tolist()))
            figure = figures.curves(tables.title(name), histories, classes)
            files |= {f"curves-{name}.{kind}": figures.render(figure, kind) for kind in ("svg", "png")}
    return files
