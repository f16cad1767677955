"""From images to a finished run: begin, carry on, stop safely, resume."""

from __future__ import annotations

import hashlib
import platform
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import __version__
from ..config import Config
from ..config.storage import write_json
from ..data.datasets import Dataset
from ..data.image_options import LabelSource
from ..distributed import launch as distributed
from ..distributed.group import ProcessGroup
from ..model import devices
from ..model import model_file as modelfile
from ..model import validation as vetting
from ..model.cluster_model import CalibratedNetwork, Model
from ..model.inference import Outputs
from ..search.record import Record
from ..search.trainer import Trainer
from . import checkpoint
from .folder import Description, RunFolder
from .labels import write_labels, write_quarantine
from .load import of_this_run
from .result import Assessment, judge

RESTARTS = 3
"""How often helpers that are lost are replaced."""
Reader = Callable[[Record], None]
"""Gets every record of the stream: a progress bar, a log."""


class Interrupted(Exception):  # noqa: N818 - not an error
    """A signal asked the program to stop; what was done is saved."""

    def __init__(self, signal_number: int, hint: str = "the run is saved: continue it with `cts resume`") -> None:
        super().__init__(signal.Signals(signal_number).name)
        self.signal_number = signal_number
        self.hint = hint


class _Interruption:
    """Turns SIGINT and SIGTERM into ``Interrupted``, but never in the middle of writing a file."""

    def __init__(self) -> None:
        self._computing = False
        self._pending: int | None = None

    def __call__(self, signal_number: int, frame: FrameType | None) -> None:
        self._pending = signal_number
        if self._computing:
            self._computing = False
            raise Interrupted(signal_number)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        self._computing = True
        try:
            if self._pending is not None:
                raise Interrupted(self._pending)
            yield
        finally:
            self._computing = False


@contextmanager
def _interruptible() -> Iterator[_Interruption]:
    interruption = _Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption  # signals reach the main thread only; whoever runs there decides
        return
    before = {number: signal.signal(number, interruption) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def fingerprint(images: Tensor) -> str:
    """SHA-256 over shape and pixels."""
    digest = hashlib.sha256(repr(tuple(images.shape)).encode())
    for start in range(0, len(images), 4096):
        digest.update(images[start : start + 4096].contiguous().numpy().tobytes())
    return digest.hexdigest()


def begin(
    run: RunFolder,
    dataset: Dataset,
    source: str,
    data_dir: Path | None,
    preset: str,
    config: Config,
    labels: LabelSource = "none",
) -> Trainer:
    """Check that images and settings fit, then describe the run in its folder. Nothing is touched if they do not."""
    devices.check(config.device)
    vetting.check_network(config, dataset.train.images.shape[1])
    trainer = Trainer(dataset.train.images, config)
    run.make()
    with run.locked():
        run.check_free()  # again: another process may have been faster
        run.clear()
        images = dataset.train.images
        channels, height, width = images.shape[1:]
        run.describe(
            Description(
                source=source,
                data_dir=None if data_dir is None else str(data_dir.resolve()),
                preset=preset,
                fingerprint=fingerprint(images),
                images=len(images),
                shape=(channels, height, width),
                program=__version__,
                config=trainer.config,
                labels=labels,
            )
        )
    return trainer


def reopen(run: RunFolder, dataset: Dataset) -> tuple[Trainer, list[str]]:
    """The trainer of an earlier session at its last checkpoint, and warnings about damaged newer ones."""
    description = run.description()
    if fingerprint(dataset.train.images) != description.fingerprint:
        raise ValueError(f"{description.source} does not hold the images that {run.path} was begun with")
    devices.check(description.config.device)
    vetting.check_network(description.config, description.shape[0])
    trainer = Trainer(dataset.train.images, description.config)
    snapshot, problems = checkpoint.load_newest(run.checkpoints, description.identity)
    if snapshot is not None:
        with of_this_run(run):
            vetting.check_snapshot(snapshot, description.config, dataset.train.images.shape[1])
            vetting.check_position(snapshot, description.config, description.shape[0], len(dataset.train))
            trainer.restore(snapshot)
    if missing := run.missing_before(trainer.step):
        problems.append(f"{run.history} is damaged: {missing} of its first {trainer.step} records are lost for good")
    return trainer, problems


def reattach(run: RunFolder, dataset: Dataset, config: Config) -> tuple[Trainer, list[str]]:
    """The trainer of a run that the same command began, with the same images and settings; else the run is refused."""
    description = run.description()
    wanted, begun = devices.effective(config, dataset.train.images), description.config
    # How many threads and processes there are, and how much memory, can change when machines are lost or join.
    chunk = replace(wanted.evolution, chunk=begun.evolution.chunk)
    same = replace(wanted, threads=begun.threads, processes=begun.processes, evolution=chunk)
    if same != begun or fingerprint(dataset.train.images) != description.fingerprint:
        raise ValueError(
            f"{run.path} already holds a run, with other images or settings; under torchrun it is never replaced, "
            "because a restart would do so again: give another folder, or remove it first"
        )
    with run.locked():
        return reopen(run, dataset)


def update_data_dir(run: RunFolder, data_dir: Path | None) -> None:
    """Remember where the named data sets are now, if that was said: helpers look there too."""
    if data_dir is not None:
        with run.locked():
            run.describe(replace(run.description(), data_dir=str(data_dir.resolve())))


def train_with_workers(
    run: RunFolder, trainer: Trainer, dataset: Dataset, readers: list[Reader], world: ProcessGroup
) -> Assessment:
    """``train`` with as many processes as there are or are wanted. Helpers that were started here and are lost are
    started again, a few times.
    """
    restarts = 0
    while True:
        try:
            with distributed.helped(world, trainer.config.processes) as team:
                trainer.join(team)
                return train(run, trainer, dataset, readers)
        except distributed.WorkerLost as lost:
            saved, _ = checkpoint.load_newest(run.checkpoints, run.description().identity)
            if saved is None or restarts == RESTARTS or not world.alone:
                raise
            restarts += 1
            warnings.warn(f"{lost}; its work is begun again at step {saved.data['step']}", stacklevel=2)
            trainer.restore(saved)


def train(run: RunFolder, trainer: Trainer, dataset: Dataset, readers: list[Reader]) -> Assessment:
    """Work through what remains of the schedule and write the result.

    A stop by signal or error loses nothing but the step it falls into: the state after the last finished step is saved.
    """
    seconds = trainer.config.checkpoint_seconds
    with run.locked(), _interruptible() as interruption:
        description = run.description()
        if description.config != trainer.config or description.images != len(trainer.images):
            raise ValueError(f"{run.path} holds another run by now; another process began it")
        identity = description.identity
        run.sweep()
        checkpoint.tidy(run.checkpoints, trainer.step)  # before the history: it must never be shorter than a checkpoint
        run.forget_after(trainer.step)
        if not trainer.world.alone:
            distributed.order(trainer.world, "train", {"description": description.plain()})
            trainer.world.tell(checkpoint.pack(trainer.snapshot()))
        if dataset.quarantine:
            write_quarantine(run.quarantine, dataset.quarantine)
        with run.history_file() as history:
            latest, saved, due = trainer.snapshot(), trainer.step, time.monotonic() + seconds
            records = trainer.run()
            try:
                while True:
                    with interruption.allowed():
                        record = next(records, None)
                    if record is None:
                        break
                    history.append(record)
                    latest = trainer.snapshot()
                    for reader in readers:
                        reader(record)
                    if time.monotonic() >= due:
                        history.to_disk()
                        checkpoint.save(run.checkpoints, latest, identity)
                        saved, due = trainer.step, time.monotonic() + seconds
            finally:
                records.close()
                if latest.data["step"] != saved or not run.checkpoints.exists():
                    history.to_disk()
                    checkpoint.save(run.checkpoints, latest, identity)
        return _finish(run, trainer, dataset)


class Finished(NamedTuple):
    """What a trainer has made, and what it says of the training images."""

    model: Model
    reading: Outputs
    unmerged: Outputs | None
    """The same of the network before merging, if there is a merge tree."""


def finish(trainer: Trainer, probabilities: bool = True) -> Finished:
    """Calibrate the networks that a trainer has made. Without ``probabilities`` those before merging are left out."""
    images, own, world = trainer.images, trainer.own, trainer.world
    final, reading = CalibratedNetwork.fitted(trainer.network.single(), images, own, world=world)
    before = trainer.unmerged and CalibratedNetwork.fitted(trainer.unmerged, images, own, probabilities, world)
    unmerged, finer = before or (None, None)
    channels, height, width = images.shape[1:]
    return Finished(Model(trainer.config, (channels, height, width), final, unmerged, trainer.merged), reading, finer)


def _finish(run: RunFolder, trainer: Trainer, dataset: Dataset) -> Assessment:
    model, reading, finer = finish(trainer, probabilities=False)
    assessment = judge(model, reading, dataset.train.labels, both=True)
    modelfile.save(run.model, model)
    write_labels(run.labels, reading, model, finer and finer.output, dataset.train.names)
    write_json(
        run.result,
        {
            **assessment.scores(),
            "seconds": trainer.seconds,
            "views": trainer.views,
            "order": assessment.order,
            "clusters": assessment.table(),
            "merge": trainer.merged and trainer.merged._asdict(),
            "starts": trainer.starts.summary(trainer.config),
            "versions": versions(),
        },
    )
    return assessment


def versions() -> dict[str, str]:
    """What a result depends on besides images and configuration."""
    return {
        "converge-to-surprise": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
