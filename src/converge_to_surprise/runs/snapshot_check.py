"""Checks that a snapshot read from disk fits the run: its configuration, its images and its position."""

from __future__ import annotations

import itertools
import json
from typing import Any

import torch
from torch import Tensor

from ..config import Config
from ..model.network import ClusterNetwork
from ..model.validation import check_merge_result, check_tensors, is_count, is_number, outline, require
from ..search import schedule
from ..search.optimizer import PREFIX
from ..search.restarts import best_part
from ..search.snapshot import Snapshot


def check_snapshot(snapshot: Snapshot, config: Config, channels: int) -> None:
    """Refuse a snapshot whose parts do not fit each other and the configuration."""
    tensors, data = snapshot
    for name in ("step", "views"):
        require(is_count(data[name]) and data[name] >= 0, name)
    require(is_number(data["seconds"]) and data["seconds"] >= 0, "seconds")
    network = _check_networks(snapshot, config, channels)
    best, balance = best_part(snapshot), data["balance"]
    fits = isinstance(balance, list) and len(balance) <= config.n_init and (best is None) == (not balance)
    require(fits and all(is_number(value) and -1e-9 < value < 1 for value in balance), "balance")
    if best is not None:
        _check_networks(best, config, channels)
        require(is_count(index := best.data["index"]) and 0 <= index < len(balance), "best initialization")
    if data["optimizer"] is not None:
        _check_optimizer(data["optimizer"], tensors, network)


def _check_networks(snapshot: Snapshot, config: Config, channels: int) -> ClusterNetwork:
    """Refuse networks that do not fit their description; returns the outline of the current one."""
    tensors, data = snapshot
    require(all(is_count(data[name]) and data[name] >= 1 for name in ("heads", "n_outputs")), "heads or outputs")
    require(data["heads"] <= 256 and data["n_outputs"] <= max(4096, config.max_clusters), "heads or outputs")
    network = outline(config, channels, data["n_outputs"], data["heads"])
    check_tensors(network, tensors, "network.")
    if data["merge"] is not None:
        n_outputs = tensors["unmerged.head.bias"].numel()
        require(2 <= n_outputs <= config.max_clusters, "unmerged.head.bias")
        check_tensors(outline(config, channels, n_outputs, 1), tensors, "unmerged.")
        check_merge_result(data["merge"], n_outputs)
    return network


def check_position(snapshot: Snapshot, config: Config, images: int) -> None:
    """Refuse a snapshot beyond the end of the run, one that lacks what the next step needs, or one of other images."""
    tensors, data = snapshot
    each = schedule.count_steps(config, images)
    index, done = divmod(data["step"], each)
    require(data["step"] <= each * config.n_init, "step")
    require(len(data["balance"]) == (index if config.n_init > 1 else 0), "balance")
    upcoming = next(itertools.islice(schedule.steps(config, images), done, None)) if index < config.n_init else None
    neighbors = tensors.get("neighbors")
    if upcoming is not None and not upcoming.first and upcoming.kind in ("relaxed", "refine", "consolidate"):
        require(data["optimizer"] is not None, "optimizer")
        require(neighbors is not None or upcoming.kind == "consolidate", "neighbors")
    if neighbors is not None:
        require(neighbors.dtype == torch.int64 and neighbors.ndim == 2 and len(neighbors) == images, "neighbors")
        inside = neighbors.numel() == 0 or (int(neighbors.min()) >= 0 and int(neighbors.max()) < images)
        require(neighbors.numel() > 0 and inside, "neighbors")


def _check_optimizer(data: dict[str, Any], tensors: dict[str, Tensor], network: ClusterNetwork) -> None:
    """Everything but the learning rate is as in a new optimizer; its tensors have the shapes of the parameters."""
    groups, scaler = data["param_groups"], data["scaler"]
    parameters = list(network.parameters())
    fresh = torch.optim.Adam(parameters).state_dict()["param_groups"]
    require(len(groups) == 1 and groups[0]["params"] == fresh[0]["params"], "optimizer")
    for name, value in json.loads(json.dumps(fresh[0])).items():
        if name != "lr":
            require(name not in groups[0] or groups[0][name] == value, f"optimizer's {name}")
    require(is_number(groups[0]["lr"]) and groups[0]["lr"] >= 0, "optimizer's lr")
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
