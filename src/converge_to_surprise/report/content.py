"""Everything that a report shows, gathered from a run folder and its images."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from .. import __version__
from ..config.images import LabelSource
from ..config.presets import canonical
from ..core.metrics import Panel, choose_panels
from ..data import datasets
from ..data.cache import Progress
from ..data.near_duplicates import DuplicateGroup, near_duplicates, read_duplicates
from ..data.store import ImageStore, fingerprint
from ..model.cluster_model import Model
from ..runs.annotations import saved_annotations, saved_cut, saved_tree_marks
from ..runs.folder import Description, RunFolder
from ..runs.labels import SavedOutputs, read_quarantine
from ..runs.load import load_newest_model, with_tree_marks
from ..runs.result import read_result, verdict_of
from ..search import schedule
from . import summary
from .image_data import ImageData, Integers, cells, columns, image_data, label_images, printable
from .levels import levels, tree
from .projection import project
from .subcluster_tree import subcluster_tree

Content = dict[str, Any]
"""The data of a page, ready for JSON."""

LIVE_IMAGES = 2_000
"""Images that are labeled for the page while a run goes on, at most."""


class Pictures(NamedTuple):
    """The images of a report."""

    store: ImageStore
    source: str
    own: bool
    """Whether they are the run's training images."""


def open_pictures(
    run: RunFolder, source: str | None = None, data_dir: Path | None = None, progress: Progress | None = None
) -> Pictures:
    """The run's own images, or those of another source. ``progress`` receives the number of decoded pictures."""
    description = run.description()
    where = source or description.source
    options = description.reading
    if source is not None:
        labels: LabelSource = options.labels if Path(source).is_dir() else "none"
        options = replace(options, labels=labels, pictures=None)
    try:
        store = datasets.load(where, data_dir or description.local_data, options, progress, description.shape).train
    except ValueError as error:
        if source is not None:
            raise
        raise ValueError(f"the images of {run.path} cannot be read: {error} Give their place: cts report RUN SOURCE") \
            from None  # fmt: skip
    own = fingerprint(store.images) == description.fingerprint
    if source is None and not own:
        raise ValueError(f"{where} does not hold the images that {run.path} was made with; give them as SOURCE")
    return Pictures(store, where, own)


def progress(run: RunFolder) -> Content:
    """Headline and curves, which change with every step."""
    description = run.description()
    records = run.records()
    finished = run.result.is_file()
    scores, seconds, steps = None, 0.0, 0
    verdict = None
    images = summary.counted(description.images, "image")
    title, sentence = f"A run on {images}", "It has not made a step yet."
    if records:
        scores = records[-1]
        seconds, steps = scores["seconds"], scores["step"] + 1
        title = f"{summary.counted(scores['surprising'], 'surprising cluster')} so far in {images}"
        total = schedule.count_steps(description.config, description.images)
        sentence = f"Not finished: step {steps:,} of {total:,}, stage {scores['stage']}."
    if finished:
        scores = read_result(run.result)
        seconds, verdict = scores["seconds"], verdict_of(scores).to_dict()
        title = f"{summary.counted(len(scores['clusters']), 'cluster')} in {images}"
        sentence = summary.finished_sentence(row["nats"] for row in scores["clusters"])
    return {
        "finished": finished,
        "title": title,
        "sentence": sentence,
        "verdict": verdict,
        "facts": summary.facts(description, scores, seconds, steps),
        "curves": summary.curves(records),
        "newest": newest(run),
    }


def newest(run: RunFolder) -> str:
    """Identifies the newest state of the run that can be shown."""
    if run.result.is_file():
        return "result"
    checkpoints = sorted(path.stem for path in run.checkpoints.glob("step-*.json"))
    return checkpoints[-1] if checkpoints else ""


def gather(run: RunFolder, pictures: Pictures, live: bool = False) -> Content:
    """The whole content. While a run goes on, only a sample of the images is labeled."""
    description = run.description()
    content: Content = {
        "kind": "run",
        "live": live,
        "run": _about(run, description, pictures),
        **progress(run),
        "quarantine": quarantine(run) if pictures.own else [],
        "clustering": None,
    }
    if not content["newest"]:
        return content
    model = with_tree_marks(load_newest_model(run).model, saved_tree_marks(run))
    store = pictures.store
    if live and not content["finished"]:
        store = _sample(store, LIVE_IMAGES)
    saved = None
    if pictures.own and content["finished"]:
        saved = SavedOutputs.load(run.outputs, len(store), model.active.network.n_outputs)
    data = image_data(model, saved or label_images(model, store.images), store.labels)
    return content | {"clustering": _clustering(run, model, data, pictures._replace(store=store), thorough=not live)}


def _about(run: RunFolder, description: Description, pictures: Pictures) -> Content:
    return {
        "identity": description.identity,
        "name": printable(run.path.resolve().name),
        "place": printable(shlex.quote(str(run.path.resolve()))),
        "source": printable(pictures.source),
        "own": pictures.own,
        "program": __version__,
        "settings": {name: printable(value) for name, value in summary.flat_settings(description).items()},
    }


def _clustering(run: RunFolder, model: Model, data: ImageData, pictures: Pictures, thorough: bool) -> Content:
    """Clusters, images, map, tree and classes."""
    store = pictures.store
    classes = store.labels
    found: list[Panel] = [] if classes is None else choose_panels(data.cluster, classes)
    wanted = np.array([index for panel in found for index in panel.shown], dtype=np.int64)
    place = project(data.embedding, thorough)
    images, shown = columns(data, store, place, wanted)
    rank = {int(index): position for position, index in enumerate(shown)}
    count = int(max(data.cluster.max() + 1, model.n_clusters if run.result.is_file() else 0))
    return {
        "clusters": count,
        "annotations": _edits(run, count),
        "cut": saved_cut(run, model.levels),
        "cells": cells(data, classes),
        "levels": levels(model, data, classes),
        "tree": tree(model),
        "hierarchy": subcluster_tree(model, data.leaf, _rounds(run)),
        "map": place.method,
        "images": images,
        "classes": None if classes is None else _class_names(pictures.source, store, classes),
        "duplicates": [
            stack
            for group in _duplicates(run, pictures, thorough)
            if len(stack := [rank[image] for image in group.images if image in rank]) > 1
        ],
        "panels": [
            {"cluster": panel.cluster, "class": panel.class_number, "images": panel.images,
             "shown": [rank[index] for index in panel.shown]}
            for panel in found
        ],
    }  # fmt: skip


def _rounds(run: RunFolder) -> list[dict[str, Any]]:
    """The table of rounds of a finished run; empty if it has none or is damaged."""
    try:
        found = read_result(run.result).get("hypotheses") if run.result.is_file() else None
    except ValueError:
        return []
    return [] if found is None else list(found["rounds"])


def _duplicates(run: RunFolder, pictures: Pictures, thorough: bool) -> list[DuplicateGroup]:
    """The groups of near-duplicates as the run listed them; of other images they are searched, if it may take time."""
    store, found = pictures.store, None
    if pictures.own and len(store) == run.description().images:
        found = read_duplicates(run.duplicates, store.names, len(store))
    if found is None:
        return near_duplicates(store.pictures) if thorough and store.pictures is not None else []
    return found


def _edits(run: RunFolder, clusters: int) -> list[Content]:
    return [
        {
            "cluster": number,
            "name": None if name == str(number) else name,
            "into": None if into == number else into,
            "noise": noise and into == number,
        }
        for number, (name, into, noise) in enumerate(zip(*saved_annotations(run, clusters), strict=True))
    ]


def _class_names(source: str, store: ImageStore, classes: Integers) -> list[str]:
    """The names of the classes."""
    if store.class_names is not None:
        return [printable(name) for name in store.class_names]
    name = canonical(source)
    numbers = range(int(classes.max()) + 1)
    return [datasets.class_name(name, number) if name else f"class {number}" for number in numbers]


def _sample(store: ImageStore, most: int) -> ImageStore:
    """At most ``most`` images, evenly spaced in the store."""
    if len(store) <= most:
        return store
    chosen = np.linspace(0, len(store) - 1, most).round().astype(np.int64)
    names: Sequence[str] | None = None if store.names is None else [store.names[i] for i in chosen.tolist()]
    labels = None if store.labels is None else store.labels[chosen]
    rows = torch.from_numpy(chosen)
    pictures = None if store.thumbnails is None else store.thumbnails[rows]
    return replace(store, images=store.images[rows], labels=labels, names=names, thumbnails=pictures)


def quarantine(run: RunFolder) -> list[Content]:
    """Skipped files and the reasons."""
    skipped = read_quarantine(run.quarantine)
    return [{"file": printable(one.name), "reason": printable(one.reason)} for one in skipped]
