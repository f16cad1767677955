"""Whether a checkpoint can be what this program wrote: a checksum finds damage, not forgery.

Every size is compared before a network of that size is made, so that a file cannot ask for more memory than it brings.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..config import Config
from ..data.memory import check_memory
from ..search import schedule
from ..search.restarts import best_part
from ..search.snapshot import Snapshot
from . import precision
from .backbone import build_network
from .network import ClusterNetwork


def check_network(config: Config, channels: int) -> None:
    """Refuse a network that does not fit into memory, before it is made."""
    network = _outline(config, channels, config.network.clusters, config.relaxed.heads)
    size = sum(parameter.numel() for parameter in network.parameters()) * 4
    check_memory(size, f"network.width {config.network.width} with network.clusters {config.network.clusters}")


def check_snapshot(snapshot: Snapshot, config: Config, channels: int) -> None:
    """Refuse a snapshot whose parts do not fit each other and the configuration."""
    tensors, data = snapshot
    for name in ("step", "views"):
        require(_is_count(data[name]) and data[name] >= 0, name)
    require(_is_number(data["seconds"]) and data["seconds"] >= 0, "seconds")
    network = _check_networks(snapshot, config, channels)
    best, even = best_part(snapshot), data.get("balance", [])
    require(isinstance(even, list) and len(even) <= config.starts and (best is None) == (not even), "balance")
    require(all(_is_number(value) and -1e-9 < value < 1 for value in even), "balance")
    if best is not None:
        _check_networks(best, config, channels)
        require(_is_count(start := best.data["start"]) and 0 <= start < len(even), "best start")
    if data["optimizer"] is not None:
        # Right after a merge the memory is still that of the search before it.
        before = _outline(config, channels, config.network.clusters, config.relaxed.heads)
        _check_optimizer(data["optimizer"], tensors, [network] if data["merged"] is None else [network, before])


def _check_networks(snapshot: Snapshot, config: Config, channels: int) -> ClusterNetwork:
    """Refuse networks that do not fit what is said of them; the outline of the one that is not before merging."""
    tensors, data = snapshot
    require(all(_is_count(data[name]) and data[name] >= 1 for name in ("heads", "clusters")), "heads or clusters")
    require(data["heads"] <= 256 and data["clusters"] <= max(4096, config.network.clusters), "heads or clusters")
    network = _outline(config, channels, data["clusters"], data["heads"])
    _check_tensors(network, tensors, "network.")
    if data["merged"] is not None:
        outputs = tensors["unmerged.head.bias"].numel()
        require(2 <= outputs <= config.network.clusters, "unmerged.head.bias")
        _check_tensors(_outline(config, channels, outputs, 1), tensors, "unmerged.")
        check_merged(data["merged"], outputs)
    return network


def check_position(snapshot: Snapshot, config: Config, channels: int, images: int) -> None:
    """Refuse a snapshot beyond the end of the run, one that lacks what the next step needs, or one of other images."""
    tensors, data = snapshot
    total = schedule.count_steps(config, images)
    require(data["step"] <= total, "step")
    done = data["step"] * config.starts // total if config.starts > 1 else 0
    require(len(data.get("balance", [])) == done, "balance")
    upcoming = next(itertools.islice(schedule.steps(config, images), data["step"], None), None)
    neighbors = tensors.get("neighbors")
    if upcoming is not None and not upcoming.first and upcoming.kind in ("relaxed", "refine", "consolidate"):
        require(data["optimizer"] is not None, "optimizer")
        _check_optimizer(data["optimizer"], tensors, [_outline(config, channels, data["clusters"], data["heads"])])
        require(neighbors is not None or upcoming.kind == "consolidate", "neighbors")
    if neighbors is not None:
        require(neighbors.dtype == torch.int64 and neighbors.ndim == 2 and len(neighbors) == images, "neighbors")
        inside = neighbors.numel() == 0 or (int(neighbors.min()) >= 0 and int(neighbors.max()) < images)
        require(neighbors.numel() > 0 and inside, "neighbors")


def check_labeler(
    described: dict[str, Any], state: dict[str, Tensor], config: Config, channels: int, outlined: bool
) -> None:
    """Refuse a network of a model file whose description does not fit its weights. ``outlined``: it is a ResNet-9."""
    clusters, sizes = described["clusters"], described["sizes"]
    require(_is_count(clusters) and 1 <= clusters == len(state["head.bias"]), "number of clusters")
    require(len(sizes) == clusters and all(_is_count(size) and size >= 0 for size in sizes), "sizes")
    require(_is_number(described["sharpness"]) and described["sharpness"] > 0, "sharpness")
    if outlined:
        _check_tensors(_outline(config, channels, clusters, 1), state, "")


def require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"its {what} cannot be right")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value < 2**63


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _outline(config: Config, channels: int, clusters: int, heads: int) -> ClusterNetwork:
    """A network that has shapes but takes no memory."""
    with torch.device("meta"):
        return build_network(channels, config.network, clusters, heads)


def _check_tensors(network: nn.Module, tensors: dict[str, Tensor], prefix: str) -> None:
    for name, expected in network.state_dict().items():
        found = tensors[f"{prefix}{name}"]
        require(found.shape == expected.shape and found.dtype == expected.dtype, f"{prefix}{name}")
        require(not found.is_floating_point() or bool(found.isfinite().all()), f"{prefix}{name}")


def check_merged(merged: dict[str, Any], outputs: int) -> None:
    """The merge tree speaks of outputs that there are, and ends where it says."""
    joins: list[Any] = merged["joins"]
    require(_outputs(merged["outputs"], outputs), "outputs")
    require(all(len(join) == 3 and _outputs(join[:2], outputs) and _is_number(join[2]) for join in joins), "joins")
    require(len(joins) < outputs and _is_count(merged["clusters"]) and _is_count(merged["head"]), "merge tree")
    require(1 <= merged["clusters"] == len(merged["outputs"]), "clusters")
    for numbers in (merged["boundaries"].values(), merged["information"], merged["agreement"]):
        require(all(map(_is_number, numbers)), "merge tree")


def _outputs(values: Iterable[object], outputs: int) -> bool:
    return all(isinstance(value, int) and _is_count(value) and 0 <= value < outputs for value in values)


def _check_optimizer(groups: list[dict[str, Any]], tensors: dict[str, Tensor], networks: list[ClusterNetwork]) -> None:
    """All but the learning rate is as a new optimizer has it; its memory has the shapes of a network's parameters."""
    parameters = list(networks[0].parameters())
    shapes = [[parameter.shape for parameter in network.parameters()] for network in networks]
    fresh = torch.optim.Adam(parameters).state_dict()["param_groups"]
    require(len(groups) == 1 and groups[0]["params"] == fresh[0]["params"], "optimizer")
    for name, value in json.loads(json.dumps(fresh[0])).items():
        if name != "lr":
            require(name not in groups[0] or groups[0][name] == value, f"optimizer's {name}")
    scale, steady = groups[0].get(precision.SCALE, 1.0), groups[0].get(precision.STEADY, 0)
    require(_is_number(scale) and scale > 0 and _is_count(steady) and steady >= 0, "optimizer's scale")
    require(_is_number(groups[0]["lr"]) and groups[0]["lr"] >= 0, "optimizer's lr")
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, slot = name.split(".")
            require(slot in ("step", "exp_avg", "exp_avg_sq") and tensor.dtype == torch.float32, name)
            fitting = [()] if slot == "step" else [known[int(index)] for known in shapes]
            require(tensor.shape in fitting and bool(tensor.isfinite().all()), name)
            require(slot == "exp_avg" or bool((tensor >= 0).all()), name)
            together = [f"optimizer.{index}.{other}" for other in ("step", "exp_avg", "exp_avg_sq")]
            require(all(other in tensors for other in together), name)
