"""Checkpoints: tensors as safetensors, everything else as JSON, written atomically, the last two kept.

``step-N.safetensors`` is written first; ``step-N.json``, which carries its SHA-256, makes the pair valid. So a
checkpoint is either whole or not there, and damage is noticed instead of loaded.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError

from ..learn.trainer import Snapshot
from .files import read_json, write_atomically, write_json

FORMAT = "converge-to-surprise checkpoint"
VERSION = 1
KEEP = 2


def save(folder: Path, snapshot: Snapshot, run: str = "") -> Path:
    """Write a checkpoint of the run with this identity, keep the newest two, return the path of the JSON part."""
    folder.mkdir(exist_ok=True)
    name = f"step-{snapshot.data['step']:09d}"
    content = safetensors.torch.save({key: value.cpu().contiguous() for key, value in snapshot.tensors.items()})
    write_atomically(folder / f"{name}.safetensors", content)
    digest = hashlib.sha256(content).hexdigest()
    path = folder / f"{name}.json"
    write_json(path, {"format": FORMAT, "version": VERSION, "run": run, "sha256": digest, "data": snapshot.data})
    for old in _newest_first(folder)[KEEP:]:
        old.unlink()
    for tensors in folder.glob("step-*.safetensors"):
        if not tensors.with_suffix(".json").exists():  # of an old checkpoint, or of one that was never finished
            tensors.unlink()
    return path


def load_newest(folder: Path, run: str = "") -> tuple[Snapshot | None, list[str]]:
    """The newest checkpoint that is whole, or None if there is none at all, and what is wrong with newer ones.

    If there are checkpoints but every one is damaged, a ValueError says why for each.
    """
    problems: list[str] = []
    for path in _newest_first(folder):
        try:
            return load(path, run), problems
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("no checkpoint can be used: " + "; ".join(problems))
    return None, problems


def load(path: Path, run: str = "") -> Snapshot:
    """The checkpoint whose JSON part is ``path``, if it belongs to the run with this identity."""
    description = read_json(path)
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f"{path} is not a checkpoint of this program")
    if not isinstance(data := description.get("data"), dict):
        raise ValueError(f"{path} is damaged: it has no data")
    if description.get("version") != VERSION:
        raise ValueError(f"{path} has version {description.get('version')}; this program reads version {VERSION}")
    if description.get("run") != run:
        raise ValueError(f"{path} is a checkpoint of another run: its images or settings are not this run's")
    tensors = path.with_suffix(".safetensors")
    try:
        content = tensors.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read the checkpoint {tensors}: {error}") from None
    if hashlib.sha256(content).hexdigest() != description.get("sha256"):
        raise ValueError(f"the checkpoint {tensors} is truncated or damaged: its checksum does not match")
    try:
        return Snapshot(safetensors.torch.load(content), data)
    except SafetensorError as error:
        raise ValueError(f"the checkpoint {tensors} cannot be read: {error}") from None


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.json"), reverse=True)
