"""From images to a finished run: begin, carry on, stop safely, resume."""

from __future__ import annotations

import hashlib
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import __version__
from ..config import Config
from ..data.datasets import Dataset
from ..data.store import ImageStore
from ..learn.merge import one_head
from ..learn.network import ResNet9
from ..learn.record import Record
from ..learn.trainer import Trainer, merged_of, network_of, searched_network_of
from . import checkpoint, vetting
from .files import read_json, write_atomically, write_json
from .result import Assessment, assess
from .rundir import Description, RunFolder

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


def check_device(name: str) -> None:
    """Refuse a device that is not one or that this machine does not have."""
    try:
        torch.zeros(1, device=name).cpu()
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device is {name!r}, which cannot be used here: {str(error).splitlines()[0]}") from None


@contextmanager
def _of_this_run(run: RunFolder) -> Iterator[None]:
    """A checkpoint that is whole can still be another run's: its network has other sizes, or parts are missing."""
    try:
        yield
    except (RuntimeError, LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = str(error).splitlines()[0] if isinstance(error, ValueError) else ""
        raise ValueError(
            f"the newest checkpoint in {run.checkpoints} does not fit the run's configuration{reason and ': ' + reason}"
        ) from error


def _fell_back(problems: list[str]) -> list[str]:
    return [f"{problem}; using the checkpoint before it" for problem in problems]


def begin(run: RunFolder, dataset: Dataset, source: str, data_dir: Path | None, preset: str, config: Config) -> Trainer:
    """Check that images and settings fit, then describe the run in its folder. Nothing is touched if they do not."""
    check_device(config.device)
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
                config=config,
            )
        )
    return trainer


def reopen(run: RunFolder, dataset: Dataset) -> tuple[Trainer, list[str]]:
    """The trainer of an earlier session at its last checkpoint, and warnings about damaged newer ones."""
    description = run.description()
    if fingerprint(dataset.train.images) != description.fingerprint:
        raise ValueError(f"{description.source} does not hold the images that {run.path} was begun with")
    check_device(description.config.device)
    vetting.check_network(description.config, description.shape[0])
    trainer = Trainer(dataset.train.images, description.config)
    snapshot, problems = checkpoint.load_newest(run.checkpoints, description.identity)
    warnings = _fell_back(problems)
    if snapshot is not None:
        with _of_this_run(run):
            vetting.check_snapshot(snapshot, description.config, dataset.train.images.shape[1])
            vetting.check_position(snapshot, trainer.total, len(dataset.train))
            trainer.restore(snapshot)
    if missing := run.missing_before(trainer.step):
        warnings.append(f"{run.history} is damaged: {missing} of its first {trainer.step} records are lost for good")
    return trainer, warnings


def carry_on(run: RunFolder, trainer: Trainer, dataset: Dataset, readers: list[Reader]) -> Assessment:
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


def _finish(run: RunFolder, trainer: Trainer, dataset: Dataset) -> Assessment:
    assessment = assess(single_head(trainer.network), dataset.train, trainer.config)
    rows = zip(assessment.labels.tolist(), assessment.agreed.tolist(), strict=True)
    lines = [f"{index},{cluster},{int(agreed)}\n" for index, (cluster, agreed) in enumerate(rows)]
    write_atomically(run.labels, "".join(["image,cluster,views_agree\n", *lines]).encode())
    write_json(
        run.result,
        {
            **assessment.scores(),
            "seconds": trainer.seconds,
            "views": trainer.views,
            "order": assessment.order,
            "clusters": assessment.table(),
            "merge": trainer.merged and trainer.merged._asdict(),
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


class Trained(NamedTuple):
    """A network as it is used after training."""

    network: ResNet9
    config: Config
    order: list[int] | None
    """The network's output of each cluster number, if the run is finished."""
    groups: list[int] | None
    """Which output stands for each output, if another number of clusters was asked for."""
    problems: list[str]
    """Warnings about damaged checkpoints."""

    def assess(self, store: ImageStore) -> Assessment:
        """What it says about images."""
        return assess(self.network, store, self.config, self.order, self.groups)


def trained_network(run: RunFolder, clusters: int | None = None) -> Trained:
    """The network at the newest checkpoint; with ``clusters`` as it is at that level of the merge tree."""
    description = run.description()
    check_device(description.config.device)
    snapshot, problems = checkpoint.load_newest(run.checkpoints, description.identity)
    warnings = _fell_back(problems)
    if snapshot is None:
        raise ValueError(f"{run.path} has no checkpoint yet; continue it with `cts resume {run.path}`")
    with _of_this_run(run):
        vetting.check_snapshot(snapshot, description.config, description.shape[0])
        network = single_head(network_of(snapshot, description.config, description.shape[0]))
        searched = searched_network_of(snapshot, description.config, description.shape[0])
        merged = merged_of(snapshot)
    if clusters is not None:
        if merged is None or searched is None:
            raise ValueError(f"{run.path} has no merge tree (yet): the number of clusters cannot be chosen")
        if not 1 <= clusters <= merged.finest:
            raise ValueError(f"--clusters is {clusters}; the merge tree of {run.path} has from 1 to {merged.finest}")
        with _of_this_run(run):
            if clusters > merged.clusters:
                groups = merged.finer(clusters, searched.clusters)
                return Trained(searched, description.config, None, groups, warnings)
            coarser = merged.coarser(clusters) + list(range(merged.clusters, network.clusters))
            return Trained(network, description.config, None, coarser, warnings)
    order = None
    if run.result.is_file():
        result = read_json(run.result)
        order = result.get("order") if isinstance(result, dict) else None
        whole = isinstance(order, list) and all(type(output) is int for output in order)
        if order is None or not whole or sorted(order) != list(range(network.clusters)):
            raise ValueError(f"{run.result} is damaged: it does not say which output is which cluster")
    return Trained(network, description.config, order, None, warnings)


def single_head(network: ResNet9) -> ResNet9:
    """Of a network that was not merged (yet), the head in the middle, which has the middle one of the floors."""
    return network if network.heads == 1 else one_head(network, network.heads // 2)
