"""The files of a run folder, and what a run hands on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import safetensors.torch
from hypothesis import strategies as st

from converge_to_surprise.data import datasets
from converge_to_surprise.model import model_file
from converge_to_surprise.report.image_data import image_data
from converge_to_surprise.runs import annotations as annotation_files
from converge_to_surprise.runs import checkpoint, session
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.labels import SavedOutputs, TrainingOutputs
from converge_to_surprise.runs.load import load_model, load_newest_model

from .forge import forged_checkpoint, forged_model, forged_tensors, model_data
from .place import Draw, Place, Use, command, tolerated
from .spoil import dice, spoil_bytes, spoilt


def use_all(run: RunFolder) -> None:
    """Everything that reads a run folder."""
    dataset = datasets.load(run.description().source)
    for act in (
        run.records,
        lambda: session.reopen(run, dataset),
        lambda: load_newest_model(run).model.prepare(),
        lambda: load_newest_model(run).model.cut(2).prepare(),
        lambda: load_newest_model(run).model.cut(5).prepare(),
    ):
        tolerated(act)


def checkpoint_bytes(place: Place, draw: Draw) -> Use:
    """Damage to either file of the newest checkpoint, or of all."""
    run, rng = place.copy(), draw(dice)
    for path in sorted(run.checkpoints.iterdir()):
        if rng.random() < 0.6:
            path.write_bytes(spoil_bytes(path.read_bytes(), rng))
    run.result.unlink()
    return lambda: [checkpoint.load_newest(run.checkpoints, run.description().identity), load_newest_model(run)]


def checkpoint_data(place: Place, draw: Draw) -> Use:
    """Other data in a checkpoint whose checksum is right."""
    run, newest = place.copy(), place.newest
    data = draw(spoilt({key: value for key, value in newest.data.items() if key != "random"}))
    if isinstance(data, dict):
        forged_checkpoint(run, newest.tensors, data | {"random": newest.data["random"]})
    return lambda: use_all(run)


def checkpoint_tensors(place: Place, draw: Draw) -> Use:
    """Other tensors in a checkpoint whose checksum is right; it also has to be trained on."""
    run = place.copy()
    at = {"step": draw(st.sampled_from([20, 24, 26, 32]))}
    forged_checkpoint(run, draw(forged_tensors(place.newest.tensors)), place.newest.data | at)
    words = ("evaluate", run.path, run.description().source)
    return lambda: [command("resume", run.path, "--no-report"), command(*words)]


def safetensors_bytes(place: Place, draw: Draw) -> Use:
    """Damage to a small file of tensors, past the checksum."""
    tensors = {name: place.newest.tensors[name] for name in sorted(place.newest.tensors)[:3]}
    content = spoil_bytes(safetensors.torch.save(tensors), draw(dice))
    return lambda: checkpoint._parse(content, Path("x"))


def run_description(place: Place, draw: Draw) -> Use:
    """config.json of a run."""
    run = place.copy()
    run.config.write_text(json.dumps(draw(spoilt(json.loads(run.config.read_text())))))
    return lambda: [tolerated(run.description), command("show", run.path), command("resume", run.path, "--no-report")]


def run_records(place: Place, draw: Draw) -> Use:
    """result.json and history.jsonl of a run."""
    run, rng = place.copy(), draw(dice)
    run.result.write_text(json.dumps(draw(spoilt(json.loads(run.result.read_text())))))
    run.history.write_bytes(spoil_bytes(run.history.read_bytes(), rng))

    def use() -> None:
        steps = [record["step"] for record in run.records()]
        assert steps == sorted(set(steps))
        run.truncate_history(10)
        command("show", run.path)

    return use


def cluster_names(place: Place, draw: Draw) -> Use:
    """clusters.json, given to ``cts relabel`` and found in a run folder."""
    run = place.copy()
    last = load_model(run.path).n_clusters - 1
    entries = [{"cluster": 0, "name": "a"}, {"cluster": last, "noise": True}][: last + 1]
    whole = {
        "format": annotation_files.FORMAT,
        "version": annotation_files.VERSION,
        "run": run.description().identity,
        "clusters": entries,
    }
    whole["earlier"] = [{"clusters": entries, "n_clusters": 1}]
    text = json.dumps(draw(spoilt(whole)) if draw(st.booleans()) else whole).encode()
    path = place.file("clusters.json", text if draw(st.booleans()) else spoil_bytes(text, draw(dice)))

    def use() -> None:
        if tolerated(lambda: command("relabel", run.path, path)):
            command("relabel", run.path, "--undo")
        shutil.copy(path, run.annotations)
        tolerated(lambda: command("relabel", run.path, "--undo"))
        shutil.copy(path, run.annotations)
        load_model(run.path)

    return use


def model_bytes(place: Place, draw: Draw) -> Use:
    """A model, damaged or with other data whose checksum is right."""
    content = place.finished.model.read_bytes()
    if draw(st.booleans()):
        content = forged_model(content, draw(spoilt(model_data(content))))
    else:
        content = spoil_bytes(content, draw(dice))
    return lambda: model_file.from_bytes(content, "m")


def training_outputs(place: Place, draw: Draw) -> Use:
    """The outputs that the estimator loads, damaged or other ones."""
    content = place.finished.training.read_bytes()
    if draw(st.booleans()):
        content = safetensors.torch.save(draw(forged_tensors(safetensors.torch.load(content))))
    else:
        content = spoil_bytes(content, draw(dice))
    path = place.file("training.safetensors", content)
    model, images = load_model(place.finished.path), place.finished.description().images

    def use() -> None:
        found = TrainingOutputs.load(path, images, model)
        if found is None:
            raise ValueError("they are not used")
        model.interpret(found.final)

    return use


def saved_outputs(place: Place, draw: Draw) -> Use:
    """The outputs from which the page is made, damaged or other ones."""
    content = place.finished.outputs.read_bytes()
    if draw(st.booleans()):
        content = safetensors.torch.save(draw(forged_tensors(safetensors.torch.load(content))))
    else:
        content = spoil_bytes(content, draw(dice))
    path = place.file("outputs.safetensors", content)
    model, images = load_model(place.finished.path), place.finished.description().images

    def use() -> None:
        saved = SavedOutputs.load(path, images, model.active.network.n_outputs)
        if saved is None:
            raise ValueError("they are not used")
        image_data(model, saved, None)

    return use
