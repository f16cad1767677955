"""How fast one machine computes: measured views per second, multiply-accumulates, and what a GPU is assumed to do."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from converge_to_surprise.model.network import ResNet9

RESULTS = Path(__file__).parents[1] / "results"
PAPER_UPDATES, PAPER_MEMBERS, PAPER_BATCH = 60_000, 32, 3_000
PAPER_VIEWS = PAPER_UPDATES * PAPER_MEMBERS * 2 * PAPER_BATCH
PAPER_SECONDS = 5 * 3600.0
"""One run on MNIST (28x28) on one H200, as the paper gives it."""
PAPER_SIDE = 28


def result(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """A file of measured results."""
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return found


@cache
def macs(side: int, channels: int = 1, folded: bool = False, heads: int = 1) -> int:
    """Multiply-accumulates of the convolutions and of the head for one view, counted while the network runs."""
    total = 0

    def count(module: nn.Module, _: Any, output: Tensor) -> None:
        nonlocal total
        weight = module.weight
        assert isinstance(weight, Tensor)
        # Every output value is a product of one row of the weights.
        total += output[0].numel() * weight[0].numel()

    with torch.device("meta"):  # shapes only, nothing is computed
        network = ResNet9(channels, 64, heads=heads, folded=folded).eval()
        for module in network.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.register_forward_hook(count)
        network(torch.empty(1, channels, side, side))
    return total


def gpu_macs_per_second() -> float:
    """Assumption: what the paper's own figure says of an H200 with networks this small."""
    return PAPER_VIEWS / PAPER_SECONDS * macs(PAPER_SIDE)


def backward_factor() -> float:
    """How many forward passes a forward and backward pass costs: measured on the CPU, the paper's network."""
    forward: float = result("evolution_step")["bare"]
    both: float = result("relaxed_step_first")["other ways, views/s"]["not folded"]
    return forward / both


def forward_rate(side: int, channels: int = 1, folded: bool = False) -> float:
    """Assumption: views per second that a GPU labels."""
    return gpu_macs_per_second() / macs(side, channels, folded)


def training_rate(side: int, channels: int = 1) -> float:
    """Assumption: views per second of whole steps of the relaxed search on a GPU (folded network, 8 heads)."""
    whole_step: float = result("relaxed_step_first")["ratio"]
    return gpu_macs_per_second() * whole_step / (backward_factor() * macs(side, channels, True, 8))


def step_seconds(search: str, machine: str, batch: int) -> float:
    """Seconds of one step on ``batch`` images of 28x28 by one machine: ``cpu`` (two cores, measured) or ``gpu``."""
    if search == "evolution":
        rate = result("evolution_step")["update"] if machine == "cpu" else forward_rate(PAPER_SIDE)
        return PAPER_MEMBERS * 2 * batch / float(rate)
    rate = result("relaxed_step_first")["step"] if machine == "cpu" else training_rate(PAPER_SIDE)
    return 2 * batch / float(rate)
