"""``cts evaluate``: compare a run's clusters with known classes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from ..config.images import LabelSource
from .arguments import RunPath, SourceName
from .output import cluster_table, say, score_lines, warn


@dataclass(frozen=True)
class Command:
    """Compare a run's clusters with known classes, on the test split where there is one."""

    run: RunPath
    """A run, finished or not."""
    source: SourceName
    """Images with known classes: folder of pictures, table of paths, array file or data set."""
    json: bool = False
    """Print one JSON object instead of a table."""
    split: Literal["test", "train"] = "test"
    """Which part of a data set that has two."""
    labels: LabelSource = "from-folders"
    """Pictures: the folders directly below SOURCE are the classes, if they look like classes."""
    n_clusters: int | None = None
    """Cut the merge tree at this many clusters instead of where the run cut it."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets."""


def execute(command: Command, console: Console) -> None:
    from ..config.images import ImageOptions
    from ..data import datasets
    from ..data.listing import looks_like_classes
    from ..model.assessment import evaluate
    from ..runs.folder import RunFolder
    from ..runs.load import load_annotated_model
    from .loading import load_images

    model, problems = load_annotated_model(RunFolder.open(command.run), command.n_clusters)
    warn(problems)
    listing = None if model.input == "embeddings" else datasets.open_listing(command.source)
    labels = command.labels if listing is not None and looks_like_classes(listing) else "none"
    options = ImageOptions(labels=labels, input=model.input)
    dataset = load_images(command.source, command.data_dir, options, console, model.shape)
    store = dataset.train if command.split == "train" else dataset.evaluation
    # The table is by both views, as the tables of fit and predict and the page are.
    assessment = evaluate(model, model.run_all(store.images), store.labels, both=True)
    if command.json:
        print(json.dumps(assessment.scores()))
        return
    console.print(cluster_table(assessment, model, store.class_names))
    say(console, score_lines(assessment))
