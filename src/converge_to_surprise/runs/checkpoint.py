"""Checkpoints: tensors as safetensors, everything else as JSON, written atomically, the last two kept.

``step-N.safetensors`` is written first; ``step-N.json``, which holds a SHA-256 over both, makes the pair valid. So a
checkpoint is either complete or absent, and damage is detected.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from ..config.memory import check_memory
from ..config.storage import flush_folder, read_bounded, read_json, write_atomically, write_json
from ..search.snapshot import Snapshot

FORMAT = "converge-to-surprise checkpoint"
VERSION = 3
KEEP = 2
LARGEST = 2**40
"""Bytes; the free memory sets the real limit."""


def save(folder: Path, snapshot: Snapshot, run: str = "") -> Path:
    """Write a checkpoint of the run with this identity, keep the newest two, return the path of the JSON part."""
    if not folder.is_dir():
        folder.mkdir()
        flush_folder(folder.parent)
    step = snapshot.data["step"]
    content = _serialized(_plain(snapshot))
    path = folder / f"{_stem(step)}.json"
    write_atomically(path.with_suffix(".safetensors"), content)
    data = json.loads(json.dumps(snapshot.data))  # as it will be read: numeric keys become strings
    digest = _checksum(content, run, data)
    write_json(path, {"format": FORMAT, "version": VERSION, "run": run, "sha256": digest, "data": data})
    tidy(folder, step)
    return path


def _serialized(tensors: dict[str, Tensor]) -> bytes:
    # Without memory safetensors panics and prints to the terminal: request the memory first.
    bytearray(2 * sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()))
    try:
        return safetensors.torch.save(tensors)
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # raised by safetensors when it gets no memory
            raise MemoryError(str(error)) from None
        raise


def pack(snapshot: Snapshot) -> bytes:
    """A snapshot as bytes, for another process."""
    data = json.dumps(snapshot.data).encode()
    return len(data).to_bytes(8, "little") + data + _serialized(_plain(snapshot))


def unpack(content: bytes) -> Snapshot:
    """The inverse of ``pack``."""
    size = int.from_bytes(content[:8], "little")
    return Snapshot(safetensors.torch.load(content[8 + size :]), json.loads(content[8 : 8 + size]))


def _plain(snapshot: Snapshot) -> dict[str, Tensor]:
    return {key: value.cpu().contiguous() for key, value in snapshot.tensors.items()}


def tidy(folder: Path, step: int) -> None:
    """Keep the newest two checkpoints up to this step. Newer ones belong to steps that will be repeated."""
    found = _newest_first(folder)
    newer = [path for path in found if path.stem > _stem(step)]
    for path in [*newer, *found[len(newer) + KEEP :]]:
        path.unlink()
    for tensors in folder.glob("step-*.safetensors"):
        if not tensors.with_suffix(".json").exists():  # of an old or an incomplete checkpoint
            tensors.unlink()


def _stem(step: int) -> str:
    return f"step-{step:09d}"


def _checksum(content: bytes, run: object, data: dict[str, Any]) -> str:
    digest = hashlib.sha256(content)
    digest.update(json.dumps([VERSION, run, data], sort_keys=True).encode())
    return digest.hexdigest()


def load_newest(folder: Path, run: str = "") -> tuple[Snapshot | None, list[str]]:
    """The newest intact checkpoint, or None if there is none, and what is wrong with newer ones.

    If there are checkpoints but all are damaged, a ValueError gives the reason for each.
    """
    problems: list[str] = []
    for path in _newest_first(folder):
        try:
            return load(path, run), [f"{problem}; using the previous checkpoint" for problem in problems]
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
    if (version := description.get("version")) != VERSION:
        raise ValueError(f"{path} has version {version!r}; this program reads version {VERSION}")
    if description.get("run") != run:
        raise ValueError(f"{path} is a checkpoint of another run: its images or settings are not this run's")
    tensors = path.with_suffix(".safetensors")
    try:
        check_memory(tensors.stat().st_size, tensors)
        content = read_bounded(tensors, LARGEST)
    except (OSError, MemoryError) as error:
        raise ValueError(f"cannot read the checkpoint {tensors}: {error}") from None
    if _checksum(content, run, data) != description.get("sha256"):
        raise ValueError(f"the checkpoint {tensors} or its {path.name} is truncated or damaged: the checksum differs")
    return Snapshot(_parse(content, tensors), data)


def _parse(content: bytes, path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(content)
    except Exception as error:  # an unknown number format is not a SafetensorError
        raise ValueError(f"the checkpoint {path} cannot be read: {error}") from None


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.json"), reverse=True)
