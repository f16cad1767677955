"""Adam with loss scaling: one gradient step, and its state as tensors and plain data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..config import Precision
from ..model.network import ClusterNetwork

EPS, REFINE_EPS = 1e-8, 1e-5
"""Adam's ε in the search and in refining. A step of Adam has the size of the learning rate however small the gradient
is. Two clusters that are clearly apart have hardly any, and with the usual ε refining moved them at random until one
was left.
"""
PREFIX = "optimizer."
"""Prefix of the names of its tensors in a snapshot."""


class Optimizer:
    """Adam on a network's parameters. In float16 the loss is scaled, because small gradients would vanish."""

    def __init__(
        self, network: ClusterNetwork, precision: Precision, learning_rate: float = 1e-3, eps: float = EPS
    ) -> None:
        self.adam = torch.optim.Adam(network.parameters(), lr=learning_rate, eps=eps)
        device = next(network.parameters()).device.type
        self.scaler = torch.amp.GradScaler(device, enabled=precision == "float16")

    def set_learning_rate(self, value: float) -> None:
        for group in self.adam.param_groups:
            group["lr"] = value

    def minimize(self, loss: Tensor, finish_gradients: Callable[[], None] = lambda: None) -> None:
        """One step down the gradient of the loss. ``finish_gradients`` may add the shares of other processes."""
        self.adam.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        finish_gradients()
        self.scaler.step(self.adam)
        self.scaler.update()

    def tensors(self) -> dict[str, Tensor]:
        """Copies of its tensors by name."""
        state = self.adam.state_dict()["state"]
        return {
            f"{PREFIX}{index}.{slot}": value.clone() for index, slots in state.items() for slot, value in slots.items()
        }

    def data(self) -> dict[str, Any]:
        """Everything else, as plain data."""
        return {"param_groups": self.adam.state_dict()["param_groups"], "scaler": self.scaler.state_dict()}

    def load(self, tensors: dict[str, Tensor], data: dict[str, Any]) -> None:
        """The inverse of ``tensors`` and ``data``."""
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith(PREFIX):
                _, index, slot = name.split(".")
                state.setdefault(int(index), {})[slot] = value
        self.adam.load_state_dict({"state": state, "param_groups": data["param_groups"]})
        if data["scaler"]:
            self.scaler.load_state_dict(data["scaler"])
