"""Everything that a report shows, gathered from a run folder and its images."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console

from .. import __version__
from ..data import datasets
from ..data.image_options import ImageOptions
from ..data.source import check_shape, load_shown
from ..data.store import ImageStore
from ..model.cluster_model import Model
from ..reproduce import panels
from ..reproduce.purity import class_name
from ..runs.annotations import Annotations, no_annotations, read_annotations
from ..runs.folder import Description, RunFolder
from ..runs.load import load_newest_model
from ..runs.result import read_result
from ..runs.session import fingerprint
from ..search import schedule
from . import history
from . import summary as words
from .images import cells, columns, printable
from .levels import levels, tree
from .projection import project
from .reading import Look, Numbers, look, saved_subclusters
from .settings import flat_settings

Content = dict[str, Any]
"""What the page's program reads, ready for JSON."""

LIVE_IMAGES = 2_000
"""At most so many images are looked at while a run goes on."""


class Pictures(NamedTuple):
    """The images of a report."""

    store: ImageStore
    source: str
    own: bool
    """Whether they are those that the run was made with."""


def open_pictures(
    run: RunFolder, source: str | None = None, data_dir: Path | None = None, console: Console | None = None
) -> Pictures:
    """The run's own images, or those of another source; decoding pictures is shown on the console."""
    description = run.description()
    saved = None if description.data_dir is None else Path(description.data_dir)
    where = source or description.source
    reading = ImageOptions(labels=description.labels if source is None or Path(source).is_dir() else "none")
    try:
        store = load_shown(where, data_dir or saved, reading, console or Console(quiet=True), description.shape).train
    except ValueError as error:
        if source is not None:
            raise
        raise ValueError(f"the images of {run.path} cannot be read: {error} Give their place: cts report RUN SOURCE") \
            from None  # fmt: skip
    own = fingerprint(store.images) == description.fingerprint
    if source is None and not own:
        raise ValueError(f"{where} does not hold the images that {run.path} was made with; give them as SOURCE")
    check_shape(where, store.images, description.shape)
    return Pictures(store, where, own)


def progress(run: RunFolder) -> Content:
    """Head line and curves: what changes with every step."""
    description = run.description()
    records = run.records()
    finished = run.result.is_file()
    last = records[-1] if records else None
    seconds, steps = (last["seconds"], last["step"] + 1) if last else (0.0, 0)
    if finished:
        scores = read_result(run.result)
        title = words.finished_title(len(scores["clusters"]), description.images)
        sentence = words.finished_sentence(row["nats"] for row in scores["clusters"])
        seconds = scores["seconds"]
    elif last:
        scores = last
        total = schedule.count_steps(description.config, description.images)
        title = words.running_title(last["surprising"], description.images)
        sentence = words.running_sentence(steps, total, last["stage"])
    else:
        scores = None
        title, sentence = f"A run on {words.counted(description.images, 'image')}", "It has not made a step yet."
    return {
        "finished": finished,
        "title": title,
        "sentence": sentence,
        "facts": words.facts(description, scores, seconds, steps),
        "curves": history.curves(records),
        "newest": newest(run),
    }


def newest(run: RunFolder) -> str:
    """Tells whether there is more to look at than before."""
    if run.result.is_file():
        return "result"
    checkpoints = sorted(path.stem for path in run.checkpoints.glob("step-*.json"))
    return checkpoints[-1] if checkpoints else ""


def gather(run: RunFolder, pictures: Pictures, live: bool = False) -> Content:
    """The whole content. While a run goes on, a sample of the images is looked at."""
    description = run.description()
    content: Content = {
        "kind": "run",
        "live": live,
        "run": _about(run, description, pictures),
        **progress(run),
        "quarantine": quarantine(run) if pictures.own else [],
        "sight": None,
    }
    if not content["newest"]:
        return content
    model, _ = load_newest_model(run)
    store = pictures.store
    if live and not content["finished"]:
        store = _sample(store, LIVE_IMAGES)
    parts = saved_subclusters(run, len(store)) if pictures.own and content["finished"] else None
    seen = look(model, store.images, store.labels, parts)
    return content | {"sight": _sight(run, model, seen, store, pictures, thorough=not live)}


def _about(run: RunFolder, description: Description, pictures: Pictures) -> Content:
    return {
        "identity": description.identity,
        "name": printable(run.path.resolve().name),
        "source": printable(pictures.source),
        "own": pictures.own,
        "program": __version__,
        "settings": {name: printable(value) for name, value in flat_settings(description).items()},
    }


def _sight(run: RunFolder, model: Model, seen: Look, store: ImageStore, pictures: Pictures, thorough: bool) -> Content:
    """Clusters, images, map, tree and classes."""
    classes = store.labels
    found: list[panels.Panel] = [] if classes is None else panels.choose(seen.cluster, classes)
    wanted = np.array([index for panel in found for index in panel.shown], dtype=np.int64)
    place = project(seen.embedding, thorough)
    images, shown = columns(seen, store, place, wanted)
    rank = {int(index): position for position, index in enumerate(shown)}
    count = int(max(seen.cluster.max() + 1, model.clusters if run.result.is_file() else 0))
    return {
        "clusters": count,
        "names": _edits(_names(run, count)),
        "cells": cells(seen, classes),
        "levels": levels(model, seen, classes),
        "tree": tree(model),
        "map": place.method,
        "images": images,
        "classes": None if classes is None else _class_names(pictures.source, store, classes),
        "panels": [
            {"cluster": panel.cluster, "class": panel.number, "images": panel.images,
             "shown": [rank[index] for index in panel.shown]}
            for panel in found
        ],
    }  # fmt: skip


def _names(run: RunFolder, clusters: int) -> Annotations:
    """What a person made of the clusters, so far."""
    if not run.names.is_file() or not run.result.is_file():
        return no_annotations(clusters)
    return read_annotations(run.names, clusters, run.description().identity)


def _edits(names: Annotations) -> list[Content]:
    return [
        {
            "cluster": number,
            "name": None if name == str(number) else name,
            "into": None if into == number else into,
            "noise": noise and into == number,
        }
        for number, (name, into, noise) in enumerate(zip(*names, strict=True))
    ]


def _class_names(source: str, store: ImageStore, classes: Numbers) -> list[str]:
    """What the classes are called."""
    if store.class_names is not None:
        return [printable(name) for name in store.class_names]
    name = datasets.canonical(source)
    numbers = range(int(classes.max()) + 1)
    return [class_name(name, number) if name else f"class {number}" for number in numbers]


def _sample(store: ImageStore, most: int) -> ImageStore:
    """Images evenly spread over the store."""
    if len(store) <= most:
        return store
    chosen = np.linspace(0, len(store) - 1, most).round().astype(np.int64)
    names: Sequence[str] | None = None if store.names is None else [store.names[i] for i in chosen.tolist()]
    labels = None if store.labels is None else store.labels[chosen]
    return replace(store, images=store.images[torch.from_numpy(chosen)], labels=labels, names=names)


def quarantine(run: RunFolder) -> list[Content]:
    """Files that could not be read, and why."""
    if not run.quarantine.is_file():
        return []
    with run.quarantine.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        return [
            {"file": printable(row.get("file") or ""), "reason": printable(row.get("reason") or "")}
            for row in csv.DictReader(file)
        ]
