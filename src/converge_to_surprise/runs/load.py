"""The model of a run folder or of a model file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..model import devices
from ..model import model_file as modelfile
from ..model import validation as vetting
from ..model.cluster_model import UNCALIBRATED, CalibratedNetwork, Model
from ..model.network import ClusterNetwork
from ..search.snapshot import merged_of, network_of, unmerged_network_of
from . import checkpoint
from .annotations import read_annotations
from .folder import RunFolder


class Opened(NamedTuple):
    model: Model
    problems: list[str]
    """Warnings about damaged checkpoints."""


def load_model(path: Path) -> Model:
    """The model of a finished run, with the names a person gave to its clusters, or that of a model file."""
    if not path.is_dir():
        return modelfile.load(path)[0]
    run = RunFolder.open(path)
    if not run.result.is_file() or not run.model.is_file():
        raise ValueError(f"{path} is not finished: continue it with `cts resume {path}`")
    model, _, _ = modelfile.load(run.model)
    if run.names.is_file():
        model = replace(model, names=read_annotations(run.names, model.clusters, run.description().identity))
    return model


def load_newest_model(run: RunFolder) -> Opened:
    """The model of a run that may still be going on: without calibration, from its newest checkpoint."""
    if run.result.is_file() and run.model.is_file():
        return Opened(modelfile.load(run.model)[0], [])
    description = run.description()
    devices.check(description.config.device)
    snapshot, problems = checkpoint.load_newest(run.checkpoints, description.identity)
    if snapshot is None:
        raise ValueError(f"{run.path} has no checkpoint yet; continue it with `cts resume {run.path}`")
    channels = description.shape[0]
    with of_this_run(run):
        vetting.check_snapshot(snapshot, description.config, channels)
        final = _unread(network_of(snapshot, description.config, channels).single())
        before = unmerged_network_of(snapshot, description.config, channels)
        unmerged = None if before is None else _unread(before)
        model = Model(
            description.config,
            description.shape,
            final,
            unmerged,
            merged_of(snapshot),
        )
    return Opened(model, problems)


def _unread(network: ClusterNetwork) -> CalibratedNetwork:
    return CalibratedNetwork(network, UNCALIBRATED, (0,) * network.clusters)


@contextmanager
def of_this_run(run: RunFolder) -> Iterator[None]:
    """A checkpoint that is whole can still be another run's: its network has other sizes, or parts are missing."""
    try:
        yield
    except (RuntimeError, LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f": {error}" if isinstance(error, ValueError) else ""
        raise ValueError(
            f"the newest checkpoint in {run.checkpoints} does not fit the run's configuration{reason}"
        ) from error
