"""The state of a search between two steps as tensors and plain data, and the networks in it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Self

import safetensors.torch
import torch
from torch import Tensor

from ..config import Config
from ..model import devices
from ..model.backbone import Backbone, build_network
from ..model.merge_tree import MergeResult
from ..model.network import ClusterNetwork


class Snapshot(NamedTuple):
    """Tensors by name, and plain data."""

    tensors: dict[str, Tensor]
    data: dict[str, Any]

    def part(self, prefix: str, data: dict[str, Any]) -> Snapshot:
        """The tensors whose names begin with ``prefix``, without it, together with ``data``."""
        return Snapshot({n.removeprefix(prefix): v for n, v in self.tensors.items() if n.startswith(prefix)}, data)

    def tensor_bytes(self) -> bytes:
        """The tensors in the safetensors format."""
        tensors = {key: value.cpu().contiguous() for key, value in self.tensors.items()}
        # Without memory safetensors panics and prints to the terminal: request the memory first.
        bytearray(2 * sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()))
        try:
            return safetensors.torch.save(tensors)
        except BaseException as error:
            if type(error).__name__ == "PanicException":  # raised by safetensors when it gets no memory
                raise MemoryError(str(error)) from None
            raise

    def to_bytes(self) -> bytes:
        """Everything as bytes, for another process."""
        data = json.dumps(self.data).encode()
        return len(data).to_bytes(8, "little") + data + self.tensor_bytes()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """The inverse of ``to_bytes``."""
        size = int.from_bytes(content[:8], "little")
        return cls(safetensors.torch.load(content[8 + size :]), json.loads(content[8 : 8 + size]))


class Networks(NamedTuple):
    """The networks of one initialization."""

    network: ClusterNetwork
    unmerged: ClusterNetwork | None = None
    """The network before merging, with the selected head; None before merging."""
    merge_result: MergeResult | None = None

    def snapshot(self) -> Snapshot:
        tensors = {f"network.{name}": value.clone() for name, value in self.network.state_dict().items()}
        if self.unmerged is not None:
            tensors |= {f"unmerged.{name}": value.clone() for name, value in self.unmerged.state_dict().items()}
        merged = self.merge_result and self.merge_result._asdict()
        data = {"heads": self.network.heads, "n_outputs": self.network.n_outputs, "merge": merged}
        return Snapshot(tensors, data)

    @classmethod
    def restore(cls, snapshot: Snapshot, config: Config, channels: int, backbone: Backbone | None = None) -> Networks:
        """The inverse of ``snapshot``."""
        tensors, data = snapshot
        network = build_network(channels, config, data["n_outputs"], data["heads"], backbone)
        unmerged = None
        if data["merge"] is not None:
            # The number of outputs that an earlier merge left, if there was one.
            n_outputs = len(tensors["unmerged.head.bias"])
            unmerged = _load(build_network(channels, config, n_outputs, 1, backbone), snapshot, "unmerged.", config)
        merge_result = MergeResult.of(data["merge"]) if data["merge"] else None
        return cls(_load(network, snapshot, "network.", config), unmerged, merge_result)


def _load(network: ClusterNetwork, snapshot: Snapshot, prefix: str, config: Config) -> ClusterNetwork:
    network.load_state_dict(snapshot.part(prefix, {}).tensors)
    return network.to(torch.device(devices.resolve(config.device)))
