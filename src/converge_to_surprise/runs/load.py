"""Load the model of a run folder or of a model file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..model import devices, model_file
from ..model.cluster_model import UNCALIBRATED, CalibratedNetwork, Model
from ..model.network import ClusterNetwork
from ..search.snapshot import Networks
from . import checkpoint
from .annotations import TreeMarks, saved_annotations, saved_cut, saved_tree_marks
from .checkpoint import check_snapshot
from .features import load_encoder
from .folder import RunFolder


class LoadedModel(NamedTuple):
    model: Model
    problems: list[str]
    """Warnings about damaged checkpoints."""


def load_model(path: Path, n_clusters: int | None = None) -> Model:
    """The model of a finished run, with its annotations, or that of a model file.

    It is cut at ``n_clusters``, or else where the annotations of the run say so.
    """
    if not path.is_dir():
        model = model_file.load(path)[0]
        return model if n_clusters is None else model.cut(n_clusters)
    run = RunFolder.open(path)
    run.check_finished(run.model)
    run.description()  # refuses a run of another version with a better message
    model = model_file.load(run.model)[0]
    if run.annotations.is_file():
        model = replace(model, annotations=saved_annotations(run, model.n_clusters))
        n_clusters = n_clusters or saved_cut(run, model.levels)
    model = with_tree_marks(model, saved_tree_marks(run))
    return model if n_clusters is None else model.cut(n_clusters)


def with_tree_marks(model: Model, marks: TreeMarks) -> Model:
    """The model with a person's names of sub-clusters, and without splits by hand that were undone."""
    if model.hierarchy is None:
        return model
    undone = [path for path in model.hierarchy.by_hand if path not in marks.splits]
    return replace(model, hierarchy=model.hierarchy.without(undone), node_names=marks.names)


def load_annotated_model(run: RunFolder, n_clusters: int | None = None) -> LoadedModel:
    """The same for a run that may not be finished and then has no annotations yet."""
    if run.result.is_file() and run.model.is_file():
        return LoadedModel(load_model(run.path, n_clusters), [])
    found = load_newest_model(run)
    return found if n_clusters is None else found._replace(model=found.model.cut(n_clusters))


def load_newest_model(run: RunFolder) -> LoadedModel:
    """The model of a run that may not be finished: without calibration, from its newest checkpoint."""
    description = run.description()
    if run.result.is_file() and run.model.is_file():
        return LoadedModel(model_file.load(run.model)[0], [])
    devices.check(description.config.device)
    snapshot, problems = checkpoint.load_newest(run.checkpoints, description.identity)
    if snapshot is None:
        raise ValueError(f"{run.path} has no checkpoint yet; continue it with `cts resume {run.path}`")
    channels = description.shape[0]
    with fits_run(run):
        check_snapshot(snapshot, description.config, channels)
        networks = Networks.restore(snapshot, description.config, channels)
        unmerged = None if networks.unmerged is None else _uncalibrated(networks.unmerged)
        final = _uncalibrated(networks.network.single())
        model = Model(description.config, description.shape, final, unmerged, networks.merge_result)
        model = replace(model, encoder=load_encoder(run, description))
    return LoadedModel(model, problems)


def _uncalibrated(network: ClusterNetwork) -> CalibratedNetwork:
    return CalibratedNetwork(network, UNCALIBRATED, (0,) * network.n_outputs)


@contextmanager
def fits_run(run: RunFolder) -> Iterator[None]:
    """Turn errors into a message: an intact checkpoint can be another run's, with other sizes or parts missing."""
    try:
        yield
    except (RuntimeError, LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f": {error}" if isinstance(error, ValueError) else ""
        raise ValueError(
            f"the newest checkpoint in {run.checkpoints} does not fit the run's configuration{reason}"
        ) from error
