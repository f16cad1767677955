"""``cts evaluate`` and ``cts show``: what a run found, and what it is worth."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from ..config.text import one_line
from ..data import datasets
from ..data.image_options import ImageOptions, LabelSource
from ..data.listing import looks_like_classes
from ..data.source import check_shape, load_shown
from ..runs.folder import RunFolder
from ..runs.load import load_newest_model
from ..runs.result import assess, read_result, taken_text
from .screen import cluster_table, verdict, warn_of_damage
from .use import SourceName

Run = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]


@dataclass(frozen=True)
class Evaluate:
    """Compare a run's clusters with known classes, on the test split where there is one."""

    run: Run
    source: SourceName
    json: bool = False
    """Print one JSON object instead of a table."""
    split: Literal["test", "train"] = "test"
    labels: LabelSource = "from-folders"
    """Pictures: the folders directly below are the classes, if they look like classes."""
    clusters: int | None = None
    """Read the merge tree at this many clusters instead of where it was cut."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets."""


@dataclass(frozen=True)
class Show:
    """Say what a run is, how far it got and what it found."""

    run: Run


def evaluate(command: Evaluate, console: Console) -> None:
    run = RunFolder.open(command.run)
    model, problems = load_newest_model(run)
    warn_of_damage(problems)
    if command.clusters is not None:
        model = model.cut(command.clusters)
    listing = datasets.open_listing(command.source)
    labels = command.labels if listing is not None and looks_like_classes(listing) else "none"
    dataset = load_shown(command.source, command.data_dir, ImageOptions(labels=labels), console, model.shape)
    store = dataset.train if command.split == "train" else dataset.evaluation
    check_shape(command.source, store.images, model.shape)
    assessment = assess(model, store)
    if command.json:
        print(json.dumps(assessment.scores()))
        return
    console.print(cluster_table(assessment))
    console.print(verdict(assessment), markup=False)


def show(command: Show, console: Console) -> None:
    run = RunFolder.open(command.run)
    description = run.description()
    config = description.config
    records = run.records()
    rows = [
        ("source", f"{description.source}: {description.images:,} images of {'x'.join(map(str, description.shape))}"),
        ("preset", f"{description.preset}, seed {config.seed}, starts {config.starts}, threads {config.threads}"),
        ("schedule", " ".join(map(str, config.schedule))),
        ("program", f"version {description.program}"),
        ("steps", f"{len(records):,} done, {'finished' if run.result.is_file() else 'not finished'}"),
    ]
    if records:
        last = records[-1]
        rows.append(("last", " ".join(f"{key}={value}" for key, value in last.items())))
    if run.result.is_file():
        result = read_result(run.result)
        keys = (
            "n_clusters",
            "n_surprising",
            "surprise",
            "orderliness",
            "agreement",
            "acc",
            "nmi",
            "ari",
            "acc_both",
            "nmi_both",
            "ari_both",
            "seconds",
        )
        if (starts := result.get("starts")) is not None:
            rows.append(("taken", taken_text(starts)))
        rows.append(("result", " ".join(f"{key}={result[key]}" for key in keys if result.get(key) is not None)))
    for name, text in rows:
        console.print(one_line(f"{name:<9} {text}"), markup=False, soft_wrap=True)
