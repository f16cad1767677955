"""From images to a finished run: begin, train, stop safely, resume."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from .. import __version__
from ..config import Config, check_n_clusters
from ..config.images import LabelSource
from ..config.presets import canonical
from ..config.storage import write_json
from ..data import datasets
from ..data.datasets import Dataset
from ..data.near_duplicates import near_duplicates, write_duplicates
from ..data.store import ImageStore, fingerprint
from ..distributed import launch
from ..distributed.errors import WorkerLost
from ..distributed.group import current
from ..model import devices, model_file
from ..model.assessment import Assessment, evaluate
from ..model.judgment import explained_by_light, judge
from ..model.merge_tree import MergeResult
from ..model.validation import check_network
from ..model.verdict import Verdict
from ..search.chunking import check_device_memory, resolve_hardware
from ..search.memory_plan import check_fit_memory
from ..search.record import Record
from ..search.restarts import Restarts
from ..search.snapshot import Snapshot
from . import checkpoint
from .annotations import saved_tree_marks
from .checkpoint import check_position, check_snapshot
from .deepening import earlier_tree
from .features import Prepared, prepare_again, save_projection
from .folder import Description, RunFolder
from .interruption import Interruption, interruptible
from .labels import KEEP, SavedOutputs, TrainingOutputs, write_exemplars, write_labels, write_quarantine
from .load import fits_run, with_tree_marks
from .result import read_result

MAX_RESTARTS = 3
"""How often lost workers are replaced."""
Reader = Callable[[Record], None]
"""Receives every record: a progress bar, a log."""


class Finished(NamedTuple):
    """What a run found."""

    assessment: Assessment
    merge_result: MergeResult | None
    verdict: Verdict


class Origin(NamedTuple):
    """Where the images of a run come from, and its preset."""

    source: str
    preset: str
    data_dir: Path | None = None
    labels: LabelSource = "none"
    pictures: str | None = None
    """Embeddings: where the pictures for the page are."""


def begin(
    run: RunFolder, dataset: Dataset, origin: Origin, config: Config, prepared: Prepared | None = None
) -> Restarts:
    """Check that images and settings fit, then describe the run in its folder. Nothing is written if they do not.

    ``prepared``: the stored features of the images, on which the search works instead of pixels.
    """
    check_network(config, dataset.train.images.shape[1])
    check_n_clusters(config, len(dataset.train))
    if prepared is None:
        check_fit_memory(dataset.train.images.shape, config, names=("--image-size", "--"))
    search = _search(dataset.train, config, prepared)
    check_device_memory(search.config, dataset.train.images.shape)
    run.make()
    with run.locked():
        run.check_free()  # again: another process may have begun a run meanwhile
        run.clear()
        images = dataset.train.images
        channels, height, width = images.shape[1:]
        run.describe(
            Description(
                source=origin.source,
                data_dir=None if origin.data_dir is None else str(origin.data_dir.resolve()),
                preset=origin.preset,
                fingerprint=fingerprint(images),
                images=len(images),
                shape=(channels, height, width),
                program=__version__,
                config=search.config,
                labels=origin.labels,
                pictures=origin.pictures,
                features=prepared and prepared.encoder.recipe.to_dict(),
            )
        )
        if prepared is not None:
            save_projection(run, prepared)
    return search


def _search(store: ImageStore, config: Config, prepared: Prepared | None) -> Restarts:
    """A search on the pixels of images or on their stored features."""
    if prepared is None:
        return Restarts(store.images, config)
    return Restarts(prepared.items, config, encoder=prepared.encoder, statistics=prepared.statistics)


def reopen(run: RunFolder, dataset: Dataset) -> tuple[Restarts, list[str]]:
    """The search of an earlier session at its last checkpoint, and warnings about damaged newer ones."""
    description = run.description()
    if fingerprint(dataset.train.images) != description.fingerprint:
        raise ValueError(f"{dataset.name} does not hold the images that {run.path} was begun with")
    devices.check(description.config.device)
    check_network(description.config, description.shape[0])
    search = _search(dataset.train, description.config, prepare_again(dataset.train, description))
    snapshot, problems = checkpoint.load_newest(run.checkpoints, description.identity)
    if snapshot is not None:
        with fits_run(run):
            check_snapshot(snapshot, description.config, dataset.train.images.shape[1])
            check_position(snapshot, description.config, len(dataset.train))
            search.restore(snapshot)
    if missing := run.missing_before(search.step):
        problems.append(f"{run.history} is damaged: {missing} of its first {search.step} records are lost")
    return search, problems


def reattach(run: RunFolder, dataset: Dataset, config: Config) -> tuple[Restarts, list[str]]:
    """The search of a run begun by the same command with the same images and settings; other runs are refused."""
    description = run.description()
    wanted, begun = resolve_hardware(config, dataset.train.images), description.config
    # The numbers of threads and processes and the memory of a GPU can change when machines are lost or join.
    evolution = replace(wanted.evolution, chunk_size=begun.evolution.chunk_size)
    same = replace(wanted, threads=begun.threads, processes=begun.processes, evolution=evolution)
    if same != begun or fingerprint(dataset.train.images) != description.fingerprint:
        raise ValueError(
            f"{run.path} already holds a run, with other images or settings; under torchrun it is never replaced, "
            "because a restart would do so again: give another folder, or remove it first"
        )
    with run.locked():
        return reopen(run, dataset)


def update_origin(run: RunFolder, source: str | None, data_dir: Path | None) -> None:
    """Record where the images or the named data sets are now, if given: workers look there too."""
    with run.locked():
        description = run.description()
        moved = replace(
            description,
            source=description.source if source is None else origin_of(source),
            data_dir=description.data_dir if data_dir is None else str(data_dir.resolve()),
        )
        if moved != description:
            run.describe(moved)


def origin_of(source: str) -> str:
    """A source as it is saved with a run: the name of a data set, or an absolute path."""
    return canonical(source) or str(Path(source).resolve())


def train_with_workers(run: RunFolder, search: Restarts, dataset: Dataset, readers: list[Reader]) -> Finished:
    """``train`` with the configured number of processes. Lost workers of this machine are replaced, a few times."""
    restarts = 0
    while True:
        try:
            with launch.workers(search.config.processes):
                return train(run, search, dataset, readers)
        except WorkerLost as lost:
            saved, _ = checkpoint.load_newest(run.checkpoints, run.description().identity)
            if saved is None or restarts == MAX_RESTARTS or not launch.joined_group().is_single:
                raise
            restarts += 1
            warnings.warn(f"{lost}; its work is repeated from step {saved.data['step']}", stacklevel=2)
            search.restore(saved)


def train(run: RunFolder, search: Restarts, dataset: Dataset, readers: list[Reader]) -> Finished:
    """Work through the remaining schedule and write the result.

    A stop by signal or error loses at most the step it interrupts: the state after the last completed step is saved.
    """
    with run.locked(), interruptible() as interruption:
        description = run.description()
        if description.config != search.config or description.images != len(search.images):
            raise ValueError(f"{run.path} holds another run now; another process began it")
        run.sweep()
        checkpoint.tidy(run.checkpoints, search.step)  # first: the history must never be shorter than a checkpoint
        run.truncate_history(search.step)
        if not run.duplicates.is_file():
            with interruption.allowed():
                pictures = dataset.train.pictures
                found = [] if pictures is None else near_duplicates(pictures)
            write_duplicates(run.duplicates, found, dataset.train.names)
        group = current()
        if not group.is_single:
            launch.send_command(group, "train", {"description": description.plain()})
            group.broadcast(search.snapshot().to_bytes())
        if dataset.quarantine:
            write_quarantine(run.quarantine, dataset.quarantine)
        search.keep = KEEP
        _train_steps(run, search, readers, interruption)
        return _finish(run, search, dataset)


def _train_steps(run: RunFolder, search: Restarts, readers: list[Reader], interruption: Interruption) -> None:
    """Run the remaining steps, append their records to the history and write checkpoints."""
    seconds, identity = search.config.checkpoint_seconds, run.description().identity
    with run.history_file() as history:
        latest, saved, due = search.snapshot(), search.step, time.monotonic() + seconds
        records = search.run()
        try:
            while True:
                with interruption.allowed():
                    record = next(records, None)
                if record is None:
                    break
                history.append(record)
                latest = search.snapshot()
                for reader in readers:
                    reader(record)
                if time.monotonic() >= due:
                    history.flush()
                    checkpoint.save(run.checkpoints, latest, identity)
                    saved, due = search.step, time.monotonic() + seconds
        finally:
            records.close()
            if latest.data["step"] != saved or not run.checkpoints.exists():
                history.flush()
                checkpoint.save(run.checkpoints, latest, identity)


def _finish(run: RunFolder, search: Restarts, dataset: Dataset) -> Finished:
    """Write the model, the labels, the outputs and the result."""
    fitted = search.finish()
    if shortfall := fitted.shortfall:
        warnings.warn(shortfall, stacklevel=2)
    if (tree := earlier_tree(run, fitted.model)) is not None:  # the run was finished before
        fitted = fitted._replace(model=replace(fitted.model, hierarchy=tree))
    assessment = evaluate(fitted.model, fitted.outputs, dataset.train.labels, both=True)
    hypotheses = read_result(run.result).get("hypotheses") if tree is not None and run.result.is_file() else None
    model_file.save(run.model, fitted.model)
    marks = saved_tree_marks(run)
    write_labels(run.labels, fitted._replace(model=with_tree_marks(fitted.model, marks)), dataset.train.names)
    write_exemplars(run.exemplars, fitted, dataset.train.names)
    SavedOutputs.of(fitted).save(run.outputs)
    TrainingOutputs(fitted.outputs, fitted.unmerged).save(run.training)
    merge_result = fitted.model.merge_result
    pictures = dataset.train.pictures
    explained = 0.0 if pictures is None else explained_by_light(pictures, assessment.labels_both)
    model = fitted.model
    verdict = judge(assessment, merge_result, explained, model.encoder is not None, model.input)
    write_json(
        run.result,
        {
            **assessment.scores(),
            "seconds": search.seconds,
            "views": search.views,
            "threads": search.config.threads,
            "order": assessment.order,
            "clusters": assessment.table(),
            "merge": merge_result and merge_result._asdict(),
            "verdict": verdict.to_dict(),
            "initializations": search.summary(),
            "versions": versions(),
            **({} if hypotheses is None else {"hypotheses": hypotheses}),
        },
    )
    return Finished(assessment, merge_result, verdict)


def train_as_worker(description: dict[str, Any]) -> None:
    """Take part in the training of the first process, from its state on."""
    run = Description.parse(description)
    reading = replace(run.reading, pictures=None)
    store = datasets.load(run.source, run.local_data, reading, shape=run.shape).train
    if fingerprint(store.images) != run.fingerprint:
        raise ValueError(f"{run.source} does not hold the same images here as for the first process")
    search = _search(store, run.config, prepare_again(store, run))
    search.keep = KEEP
    search.restore(Snapshot.from_bytes(current().broadcast()))
    for _ in search.run():
        pass
    search.finish()


def versions() -> dict[str, str]:
    """The versions on which a result depends."""
    return {
        "converge-to-surprise": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
