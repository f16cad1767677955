"""Checks that a model file or a snapshot can be one that this program wrote: a checksum finds damage, not forgery.

Every size is compared before a network of that size is built, so that a file cannot claim more memory than it holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..config import Config
from ..config.checks import is_number
from ..config.memory import check_memory
from .backbone import build_network
from .network import ClusterNetwork
from .novelty import COMPONENTS, LEVELS, POINTS, Novelty


def require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"its {what} is not valid")


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value < 2**63


def outline(config: Config, channels: int, n_outputs: int, heads: int) -> ClusterNetwork:
    """A network that has shapes but takes no memory."""
    with torch.device("meta"):
        return build_network(channels, config, n_outputs, heads)


def check_network(config: Config, channels: int) -> None:
    """Refuse a network that does not fit into memory, before it is built."""
    network = outline(config, channels, config.max_clusters, config.heads)
    size = sum(parameter.numel() for parameter in network.parameters()) * 4
    check_memory(size, f"network.width {config.network.width} with max_clusters {config.max_clusters}")


def check_tensors(network: nn.Module, tensors: dict[str, Tensor], prefix: str) -> None:
    """Refuse tensors that do not have the shapes and types of a network's, or that are not finite."""
    for name, expected in network.state_dict().items():
        found = tensors[f"{prefix}{name}"]
        require(found.shape == expected.shape and found.dtype == expected.dtype, f"{prefix}{name}")
        require(not found.is_floating_point() or bool(found.isfinite().all()), f"{prefix}{name}")


def check_calibrated(
    described: dict[str, Any], state: dict[str, Tensor], config: Config, channels: int, is_resnet: bool
) -> None:
    """Refuse a network of a model file whose description does not fit its weights."""
    n_outputs, sizes = described["n_outputs"], described["sizes"]
    require(is_count(n_outputs) and 1 <= n_outputs == len(state["head.bias"]), "number of outputs")
    require(len(sizes) == n_outputs and all(is_count(size) and size >= 0 for size in sizes), "sizes")
    require(isinstance(described.get("novelty", False), bool), "novelty")
    require(is_number(described["sharpness"]) and described["sharpness"] > 0, "sharpness")
    if is_resnet:
        check_tensors(outline(config, channels, n_outputs, 1), state, "")


def check_projection(projection: tuple[Tensor, Tensor], features: int, components: int) -> None:
    """Refuse a projection that does not lead from so many features to so many components."""
    for value, shape in zip(projection, ((features,), (features, components)), strict=True):
        require(value.shape == shape and value.dtype == torch.float32 and bool(value.isfinite().all()), "projection")


def check_novelty(novelty: Novelty, width: int) -> None:
    """Refuse a novelty that cannot be computed from descriptors with so many columns."""
    _, directions, points, distances, top = novelty
    components = directions.shape[-1]
    shapes = ((width,), (width, components), (len(points), components), (LEVELS + 1,), ())
    require(all(value.shape == shape for value, shape in zip(novelty, shapes, strict=True)), "novelty")
    require(all(value.is_floating_point() and bool(value.isfinite().all()) for value in novelty), "novelty")
    require(1 <= len(points) <= POINTS and 1 <= components <= sum(COMPONENTS), "novelty")
    require(bool((distances.diff() >= 0).all()) and float(distances[0]) >= 0 and 0 <= float(top) <= 1, "novelty")


def check_merge_result(merged: dict[str, Any], n_outputs: int) -> None:
    """Refuse a merge tree that refers to outputs that do not exist or ends elsewhere than it claims."""
    steps: list[Any] = merged["steps"]
    require(_are_outputs(merged["outputs"], n_outputs), "outputs")
    require(all(len(s) == 3 and _are_outputs(s[:2], n_outputs) and is_number(s[2]) for s in steps), "merge steps")
    require(len(steps) < n_outputs and is_count(merged["n_clusters"]) and is_count(merged["head"]), "merge tree")
    require(1 <= merged["n_clusters"] == len(merged["outputs"]), "n_clusters")
    levels: list[Any] = merged["levels"]
    require(all(len(level) == 5 and is_count(level[0]) and level[0] >= 1 for level in levels), "levels")
    for numbers in (merged["strengths"].values(), merged["information"], merged["agreement"], *levels):
        require(all(map(is_number, numbers)), "merge tree")


def check_annotations(marks: dict[str, Any], most: int) -> None:
    """Refuse names, merges and noise marks that are not those of at most so many clusters."""
    names, into, noise = marks["names"], marks["into"], marks["noise"]
    require(len(names) == len(into) == len(noise) <= most, "list of names")
    require(all(isinstance(name, str) for name in names), "list of names")
    require(_are_outputs(into, len(into)) and all(into[target] == target for target in into), "list of merges")
    require(all(isinstance(mark, bool) for mark in noise), "list of noise marks")


def _are_outputs(values: Iterable[object], n_outputs: int) -> bool:
    return all(isinstance(value, int) and is_count(value) and 0 <= value < n_outputs for value in values)
