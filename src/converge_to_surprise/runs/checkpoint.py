"""Checkpoints: tensors as safetensors, everything else as JSON, written atomically, the last two kept.

``step-N.safetensors`` is written first; ``step-N.json``, which holds a SHA-256 over both, makes the pair valid. So a
checkpoint is either complete or absent, and damage is detected. A snapshot read from disk is also checked against the
configuration, the images and the position of the run.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from ..config import Config
from ..config.checks import is_number
from ..config.memory import check_memory
from ..config.settings import MAX_OUTPUTS
from ..config.storage import flush_folder, read_bounded, read_json, write_atomically, write_json
from ..model.network import ClusterNetwork
from ..model.validation import check_merge_result, check_tensors, is_count, outline, require
from ..search import guided, schedule
from ..search.optimizer import EPS, PREFIX, REFINE_EPS
from ..search.restarts import best_part
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
    content = snapshot.tensor_bytes()
    path = folder / f"{_stem(step)}.json"
    write_atomically(path.with_suffix(".safetensors"), content)
    data = json.loads(json.dumps(snapshot.data))  # as it will be read: numeric keys become strings
    digest = _checksum(content, run, data)
    write_json(path, {"format": FORMAT, "version": VERSION, "run": run, "sha256": digest, "data": data})
    tidy(folder, step)
    return path


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


def check_snapshot(snapshot: Snapshot, config: Config, channels: int) -> None:
    """Refuse a snapshot whose parts do not fit each other and the configuration."""
    tensors, data = snapshot
    for name in ("step", "views"):
        require(is_count(data[name]) and data[name] >= 0, name)
    require(is_number(data["seconds"]) and data["seconds"] >= 0, "seconds")
    held = data["held"]
    require(isinstance(held, list) and all(is_count(number) and number >= 1 for number in held), "held")
    require(isinstance(data["grows"], bool), "grows")
    network = _check_networks(snapshot, config, channels)
    best, information = best_part(snapshot), data["information"]
    fits = isinstance(information, list) and len(information) <= config.n_init and (best is None) == (not information)
    require(
        fits and all(is_number(value) and 0 <= value <= math.log(MAX_OUTPUTS) for value in information), "information"
    )
    if best is not None:
        _check_networks(best, config, channels)
        require(is_count(index := best.data["index"]) and 0 <= index < len(information), "best initialization")
    if data["optimizer"] is not None:
        _check_optimizer(data["optimizer"], tensors, network)
    memory = guided.Memory.load(tensors, torch.device("cpu"))
    if memory is not None:
        limits = config.guided.gradients, config.guided.updates
        size = sum(p.numel() for p in network.parameters() if p.requires_grad)
        for name, rows, limit in zip(memory._fields, memory, limits, strict=True):
            fits = rows.ndim == 2 and len(rows) <= limit and rows.shape[1] == size and rows.dtype == torch.float32
            require(fits and bool(rows.isfinite().all()), f"{guided.PREFIX}{name}")


def _check_networks(snapshot: Snapshot, config: Config, channels: int) -> ClusterNetwork:
    """Refuse networks that do not fit their description; returns the outline of the current one."""
    tensors, data = snapshot
    require(all(is_count(data[name]) and data[name] >= 1 for name in ("heads", "n_outputs")), "heads or outputs")
    require(data["heads"] <= 256 and data["n_outputs"] <= MAX_OUTPUTS, "heads or outputs")
    network = outline(config, channels, data["n_outputs"], data["heads"])
    check_tensors(network, tensors, "network.")
    if data["merge"] is not None:
        n_outputs = tensors["unmerged.head.bias"].numel()
        require(2 <= n_outputs <= MAX_OUTPUTS, "unmerged.head.bias")
        check_tensors(outline(config, channels, n_outputs, 1), tensors, "unmerged.")
        check_merge_result(data["merge"], n_outputs)
    return network


def check_position(snapshot: Snapshot, config: Config, images: int) -> None:
    """Refuse a snapshot beyond the end of the run, one that lacks what the next step needs, or one of other images."""
    tensors, data = snapshot
    each = schedule.count_steps(config, images)
    index, done = divmod(data["step"], each)
    require(data["step"] <= each * config.n_init, "step")
    require(len(data["information"]) == (index if config.n_init > 1 else 0), "information")
    upcoming = next(itertools.islice(schedule.steps(config, images), done, None)) if index < config.n_init else None
    neighbors, targets = tensors.get("neighbors"), tensors.get("targets")
    if upcoming is not None and not upcoming.first and upcoming.kind in ("graph", "relaxed", "refine", "consolidate"):
        require(data["optimizer"] is not None, "optimizer")
        require(neighbors is not None or upcoming.kind == "consolidate", "neighbors")
        require(targets is not None or upcoming.kind != "graph", "targets")
    if upcoming is not None and not upcoming.first and upcoming.kind == "guided":
        require(f"{guided.PREFIX}updates" in tensors, f"{guided.PREFIX}updates")
    if neighbors is not None:
        require(neighbors.dtype == torch.int64 and neighbors.ndim == 2 and len(neighbors) == images, "neighbors")
        inside = neighbors.numel() == 0 or (int(neighbors.min()) >= 0 and int(neighbors.max()) < images)
        require(neighbors.numel() > 0 and inside, "neighbors")
    if targets is not None:
        require(targets.dtype == torch.int64 and targets.shape == (images, config.relaxed.heads), "targets")
        require(int(targets.min()) >= -1 and int(targets.max()) < MAX_OUTPUTS, "targets")
    if (copies := tensors.get("copies")) is not None:
        require(copies.dtype == torch.int64 and copies.shape == (images,), "copies")
        require(int(copies.min()) >= 0 and bool((copies <= torch.arange(images)).all()), "copies")


def _check_optimizer(data: dict[str, Any], tensors: dict[str, Tensor], network: ClusterNetwork) -> None:
    """All but the learning rate and ε is as in a new optimizer; its tensors have the shapes of the parameters."""
    groups, scaler = data["param_groups"], data["scaler"]
    parameters = list(network.parameters())
    fresh = torch.optim.Adam(parameters).state_dict()["param_groups"]
    require(len(groups) == 1 and groups[0]["params"] == fresh[0]["params"], "optimizer")
    for name, value in json.loads(json.dumps(fresh[0])).items():
        if name not in ("lr", "eps"):
            require(name not in groups[0] or groups[0][name] == value, f"optimizer's {name}")
    require(is_number(groups[0]["lr"]) and groups[0]["lr"] >= 0, "optimizer's lr")
    require(groups[0]["eps"] in (EPS, REFINE_EPS), "optimizer's eps")
    fresh_scaler = torch.amp.GradScaler("cpu").state_dict()
    known = not scaler or (scaler.keys() == fresh_scaler.keys() and all(map(is_number, scaler.values())))
    require(isinstance(scaler, dict) and known and scaler.get("scale", 1) > 0, "optimizer's scaler")
    for name, tensor in tensors.items():
        if name.startswith(PREFIX):
            _, index, slot = name.split(".")
            require(slot in ("step", "exp_avg", "exp_avg_sq") and tensor.dtype == torch.float32, name)
            expected = () if slot == "step" else parameters[int(index)].shape
            require(tensor.shape == expected and bool(tensor.isfinite().all()), name)
            require(slot == "exp_avg" or bool((tensor >= 0).all()), name)
            together = [f"{PREFIX}{index}.{other}" for other in ("step", "exp_avg", "exp_avg_sq")]
            require(all(other in tensors for other in together), name)
