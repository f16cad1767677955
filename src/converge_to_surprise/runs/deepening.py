"""Search for sub-clusters within the clusters of a finished run, round by round.

After every round the model is saved, so that an interrupted search continues with the round it was in. A round depends
on the model and the images alone, not on when it is computed: it gives the same result bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from ..config import Config
from ..config.storage import write_json
from ..data.datasets import Dataset
from ..data.store import ImageStore, fingerprint
from ..model import model_file
from ..model.cluster_model import Model
from ..model.hierarchy import Hierarchy, path_text
from ..model.hierarchy import Path as TreePath
from ..search.hypotheses import RoundRequest, Searched, deepen
from ..search.restarts import Fitted
from ..search.threads import torch_threads
from .annotations import TreeMarks, add_split, saved_tree_marks, undo_split, without_split
from .features import prepare_again
from .folder import RunFolder
from .hypothesis_table import described_hypotheses, hypothesis_rows
from .labels import SavedOutputs, TrainingOutputs, write_labels
from .load import with_tree_marks
from .result import read_result

Told = Callable[[Hierarchy], None]
"""Receives the tree after every round."""


class Deepened(NamedTuple):
    """What a search for sub-clusters left."""

    tree: Hierarchy
    """As it is in effect: without splits by hand that were undone."""
    table: dict[str, Any]
    """As in result.json."""


def wanted_rounds(config: Config, tree: Hierarchy | None) -> RoundRequest | None:
    """The rounds that a run was begun with and does not have yet; None if there are none."""
    done = 0 if tree is None else tree.rounds
    if config.rounds == 0 or (tree is not None and tree.finished):
        return None
    if config.rounds == "auto":
        return RoundRequest(None)
    return RoundRequest(config.rounds - done) if config.rounds > done else None


def deepen_run(run: RunFolder, dataset: Dataset, request: RoundRequest, told: Told = lambda tree: None) -> Deepened:
    """Work through the rounds and write labels and result again. The clusters themselves stay as they are."""
    with run.locked():
        model = _whole_model(run)
        searched = Searched.of(with_tree_marks(model, saved_tree_marks(run)), _items(run, dataset.train))
        with torch_threads(searched.threads):
            for tree in deepen(searched, request):
                model = replace(model, hierarchy=_joined(model.hierarchy, tree))
                model_file.save(run.model, model)
                told(tree)
        return write_tree(run, dataset, searched.first_nats())


def split_by_hand(run: RunFolder, dataset: Dataset, path: TreePath) -> Deepened:
    """Split one node as well as it can be split. A split that was undone is put into effect again."""
    with run.locked():
        marks = saved_tree_marks(run)
        if path in marks.splits or path not in _by_hand(run):
            found = deepen_run(run, dataset, RoundRequest(1, (path,), by_hand=True))
            if path not in _by_hand(run):
                raise ValueError(f"cluster {path_text(path)} cannot be split: {_why_not(found.tree, path)}")
        # The mark comes last: if the disk is full before it, the same command can be repeated.
        done = _rewrite_tree(run, dataset, marks._replace(splits=[*marks.splits, path]))
        add_split(run, path)
        return done


def undo_split_by_hand(run: RunFolder, dataset: Dataset, path: TreePath) -> None:
    """Take a split by hand, and those below it, out of effect."""
    with run.locked():
        _rewrite_tree(run, dataset, without_split(run, path))
        undo_split(run, path)


def _by_hand(run: RunFolder) -> list[TreePath]:
    """Every node that was ever split by hand."""
    tree = _whole_model(run).hierarchy
    return [] if tree is None else tree.by_hand


def _why_not(tree: Hierarchy, path: TreePath) -> str:
    node = tree.tried(path)
    if node is not None and node.outcome == "too few images":
        return f"it has only {node.images} images, too few to find sub-clusters and to test them"
    return "every attempt to divide it put all of its images together"


def _rewrite_tree(run: RunFolder, dataset: Dataset, marks: TreeMarks) -> Deepened:
    """Write labels and result again, as they are with these splits of the person."""
    first = read_result(run.result).get("hypotheses")
    return write_tree(run, dataset, 0.0 if first is None else float(first["rounds"][0]["nats"]), marks)


def write_tree(run: RunFolder, dataset: Dataset, first_nats: float, marks: TreeMarks | None = None) -> Deepened:
    """Write labels.csv and result.json with the tree as it is in effect, or would be with these marks."""
    model = with_tree_marks(_whole_model(run), marks or saved_tree_marks(run))
    fitted = _fitted(run, model, dataset.train)
    tree = model.hierarchy or Hierarchy()
    prediction = model.interpret(fitted.outputs)
    leaves = [model.paths[leaf] for leaf in prediction.leaf.tolist()]
    rows = hypothesis_rows(tree, first_nats, leaves, model.n_clusters, dataset.train.labels)
    table = described_hypotheses(tree, rows)
    write_labels(run.labels, fitted, dataset.train.names)
    write_json(run.result, read_result(run.result) | {"hypotheses": table})
    return Deepened(tree, table)


def earlier_tree(run: RunFolder, model: Model) -> Hierarchy | None:
    """The tree of the model in the folder, if it is one of the same network: a finished run can be resumed again."""
    if not run.model.is_file():
        return None
    try:
        earlier, _, _ = model_file.load(run.model)
    except ValueError:  # it is written again
        return None
    before, now = earlier.final.network.state_dict(), model.final.network.state_dict()
    same = before.keys() == now.keys() and all(torch.equal(before[name].cpu(), now[name].cpu()) for name in now)
    return earlier.hierarchy if same else None


def _joined(before: Hierarchy | None, after: Hierarchy) -> Hierarchy:
    """The tree after a round, with the splits by hand that were undone: they can be put into effect again."""
    if before is None:
        return after
    known = {split.path for split in after.splits}
    undone = tuple(split for split in before.splits if split.path not in known)
    gone = tuple(node for node in before.nodes if node not in after.nodes)
    return Hierarchy((*after.splits, *undone), (*after.nodes, *gone), after.finished)


def _whole_model(run: RunFolder) -> Model:
    """The model of a finished run with everything that was ever split."""
    run.check_finished(run.model)
    run.description()  # refuses a run of another version with a better message
    return model_file.load(run.model)[0]


def _items(run: RunFolder, store: ImageStore) -> torch.Tensor:
    """What the network takes: the images, or their stored features."""
    description = run.description()
    if fingerprint(store.images) != description.fingerprint:
        raise ValueError(f"these are not the images that {run.path} was begun with")
    prepared = prepare_again(store, description)
    return store.images if prepared is None else prepared.items


def _fitted(run: RunFolder, model: Model, store: ImageStore) -> Fitted:
    """The outputs for the training images as the run saved them; computed again where they are damaged."""
    outputs = TrainingOutputs.load(run.training, len(store), model)
    saved = SavedOutputs.load(run.outputs, len(store), model.final.network.n_outputs)
    if outputs is None or saved is None:
        raise ValueError(f"the saved outputs of {run.path} are damaged; `cts resume {run.path}` writes them again")
    return Fitted(model, outputs.final._replace(features=saved.features), outputs.unmerged)
