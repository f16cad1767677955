"""A trainer between two steps as tensors and plain data, and the networks in it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..config import Config
from ..model.backbone import Backbone, build_network
from ..model.devices import chosen
from ..model.network import ClusterNetwork
from . import merge


class Snapshot(NamedTuple):
    """A trainer between two steps: tensors by name, and plain data."""

    tensors: dict[str, Tensor]
    data: dict[str, Any]


def networks(network: ClusterNetwork, unmerged: ClusterNetwork | None, merged: merge.MergeResult | None) -> Snapshot:
    """A network, the one before merging and how clusters were merged, if they were."""
    tensors = {f"network.{name}": value.clone() for name, value in network.state_dict().items()}
    if unmerged:
        tensors |= {f"unmerged.{name}": value.clone() for name, value in unmerged.state_dict().items()}
    data = {"heads": network.heads, "clusters": network.clusters, "merged": merged and merged._asdict()}
    return Snapshot(tensors, data)


def network_of(snapshot: Snapshot, config: Config, channels: int, backbone: Backbone | None = None) -> ClusterNetwork:
    """The network in a snapshot."""
    clusters, heads = snapshot.data["clusters"], snapshot.data["heads"]
    network = build_network(channels, config.network, clusters, heads, backbone)
    return _load(network, snapshot, "network.", config)


def unmerged_network_of(
    snapshot: Snapshot, config: Config, channels: int, backbone: Backbone | None = None
) -> ClusterNetwork | None:
    """The network as it was before merging, with the head that was chosen; None before merging."""
    if snapshot.data["merged"] is None:
        return None
    outputs = len(snapshot.tensors["unmerged.head.bias"])  # as many as an earlier merge left, if there was one
    network = build_network(channels, config.network, outputs, 1, backbone)
    return _load(network, snapshot, "unmerged.", config)


def merged_of(snapshot: Snapshot) -> merge.MergeResult | None:
    """How clusters were merged, if they were."""
    data = snapshot.data["merged"]
    return merge.MergeResult.of(data) if data else None


def _load(network: ClusterNetwork, snapshot: Snapshot, prefix: str, config: Config) -> ClusterNetwork:
    state = {name.removeprefix(prefix): v for name, v in snapshot.tensors.items() if name.startswith(prefix)}
    network.load_state_dict(state)
    return network.to(torch.device(chosen(config.device)))
