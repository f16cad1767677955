"""The network: a backbone and a linear head. ResNet-9 (paper 4.1) as a chain of units; the flat parameter vector."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.views import background
from . import precision

Skip = Literal["", "open", "close"]
Border = Literal["black", "background"]


class Unit(nn.Module):
    """Convolution, batch normalization, ReLU and perhaps 2x2 max pooling.

    ``skip`` marks the residual blocks: the unit that is "open" keeps its input, the one that is "close" adds it to its
    output.
    """

    def __init__(self, inputs: int, outputs: int, pool: bool = False, skip: Skip = "", padding: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=padding, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.pool = pool
        self.skip = skip

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)), inplace=True)
        return pool(x) if self.pool else x


def pool(x: Tensor) -> Tensor:
    """2x2 max pooling; an axis that has shrunk to one pixel is left alone, so that any image size works."""
    return F.max_pool2d(x, (min(2, x.shape[2]), min(2, x.shape[3])))


def pooled_size(size: Sequence[int]) -> tuple[int, ...]:
    """Height and width after ``pool``."""
    return tuple(max(1, side // 2) for side in size)


def fold(x: Tensor) -> Tensor:
    """Each 2x2 block of pixels becomes one pixel with four times the channels; an odd edge is repeated."""
    height, width = x.shape[2:]
    if height % 2 or width % 2:
        x = F.pad(x, (0, width % 2, 0, height % 2), mode="replicate")
    return channels_last(F.pixel_unshuffle(x, 2))


def on_background(x: Tensor, margin: int, multiple: int) -> Tensor:
    """Each image with a margin of its own background, below and to the right wider where a side is no multiple."""
    height, width = x.shape[2:]
    beyond = background(x)
    padding = (margin, margin + -width % multiple, margin, margin + -height % multiple)
    return F.pad(x - beyond, padding) + beyond


class ClusterNetwork(nn.Module):
    """A backbone that makes a feature vector of a view, and a linear layer with ``heads`` x ``clusters`` outputs.

    Whoever derives from it builds its backbone first and then calls ``add_head``: the random start draws in that order.
    """

    head: nn.Linear

    def __init__(self, channels: int, clusters: int, heads: int) -> None:
        super().__init__()
        self.channels = channels
        self.clusters = clusters
        self.heads = heads

    def add_head(self, features: int) -> None:
        self.head = nn.Linear(features, self.heads * self.clusters)

    def features(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, D)"""
        raise NotImplementedError

    def logits(self, x: Tensor) -> Tensor:
        """Plain outputs, (B, clusters), or (B, heads, clusters) with several heads.

        The heads compute in float32, also where the backbone does not: a softmax will look at small differences.
        """
        features = self.features(x)
        with precision.full(features.device):
            return self.outputs(features.to(self.head.weight.dtype))

    def outputs(self, features: Tensor) -> Tensor:
        """The same from features (B, D)."""
        out: Tensor = self.head(features)
        return out if self.heads == 1 else out.reshape(len(out), self.heads, self.clusters)

    def forward(self, x: Tensor) -> Tensor:
        """The logits of each head with length 1, as in the paper; their argmax is the cluster."""
        return F.normalize(self.logits(x), dim=-1)

    @torch.no_grad()
    def with_head(self, weight: Tensor, bias: Tensor) -> Self:
        """A copy with one head that has these weights (clusters, D) and biases (clusters,)."""
        twin = copy.deepcopy(self)
        twin.clusters, twin.heads = len(bias), 1
        with torch.device("meta"):  # nothing is drawn for weights that are set at once
            twin.head = nn.Linear(weight.shape[1], len(bias))
        twin.head.to_empty(device=self.head.weight.device)
        twin.head.weight.copy_(weight)
        twin.head.bias.copy_(bias)
        return twin

    def single(self) -> Self:
        """The network itself, or with the head in the middle (which has the middle one of the floors) if not merged."""
        return self if self.heads == 1 else self.one_head(self.heads // 2)

    def one_head(self, head: int) -> Self:
        """A copy with only one of its heads."""
        rows = slice(head * self.clusters, (head + 1) * self.clusters)
        return self.with_head(self.head.weight[rows], self.head.bias[rows])


class ResNet9(ClusterNetwork):
    """Two stems, two residual blocks, global average pooling, a linear layer with ``heads`` x ``clusters`` outputs.

    ``folded`` replaces the two convolutions at full size by one on folded pixels: no pixel is lost, a third less time.
    ``boundary``: black beyond an image that is not black at its edge shows where it ends and so where in it a thing lies;
    its own background does not.
    """

    def __init__(
        self,
        channels: int,
        clusters: int,
        width: int = 8,
        heads: int = 1,
        folded: bool = False,
        boundary: Border = "black",
    ) -> None:
        w, padding = width, 0 if boundary == "background" else 1
        super().__init__(channels, clusters, heads)
        self.folded = folded
        self.boundary = boundary
        entrance = (
            [Unit(4 * channels, 2 * w, padding=padding)]
            if folded
            else [Unit(channels, w, padding=padding), Unit(w, 2 * w, pool=True)]
        )
        self.units = nn.ModuleList(
            [
                *entrance,
                Unit(2 * w, 2 * w, skip="open"),
                Unit(2 * w, 2 * w, skip="close"),
                Unit(2 * w, 4 * w, pool=True),
                Unit(4 * w, 8 * w, pool=True),
                Unit(8 * w, 8 * w, skip="open"),
                Unit(8 * w, 8 * w, skip="close"),
            ]
        )
        self.add_head(8 * w)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def enter(self, x: Tensor) -> Tensor:
        """What the first unit sees."""
        if self.boundary == "background":
            x = on_background(x, 2, 2) if self.folded else on_background(x, 1, 1)
        return fold(x) if self.folded else x

    def features(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, 8 width)"""
        kept = x = self.enter(x)
        for unit in self.units:
            assert isinstance(unit, Unit)
            if unit.skip == "open":
                kept = x
            x = unit(x)
            if unit.skip == "close":
                x = x + kept
        return x.mean((2, 3))


def channels_last(views: Tensor) -> Tensor:
    """The memory order in which small convolutions are fastest."""
    return views.contiguous(memory_format=torch.channels_last)


def flatten(network: nn.Module) -> Tensor:
    """θ: all parameters that are trained, as one vector. (D,)"""
    return torch.cat([p.detach().reshape(-1) for p in network.parameters() if p.requires_grad])


def unflatten(theta: Tensor, network: nn.Module) -> dict[str, Tensor]:
    """θ as named tensors of the network's shapes (views of θ)."""
    named = {name: p for name, p in network.named_parameters() if p.requires_grad}
    sizes = [p.numel() for p in named.values()]
    if theta.shape != (sum(sizes),):
        raise ValueError(f"the vector has shape {tuple(theta.shape)}; this network has {sum(sizes)} parameters")
    pieces = torch.split(theta, sizes)
    return {name: piece.view(p.shape) for (name, p), piece in zip(named.items(), pieces, strict=True)}


@torch.no_grad()
def load_flat(theta: Tensor, network: nn.Module) -> None:
    """Set the network's parameters from θ."""
    for name, value in unflatten(theta, network).items():
        network.get_parameter(name).copy_(value)


def draw_active_network(
    draw_network: Callable[[int], ClusterNetwork],
    outputs_alive: Callable[[ClusterNetwork], int],
    wanted: int,
    attempts: int = 100,
) -> ClusterNetwork:
    """The first random start in which at least ``wanted`` outputs win some view; the liveliest if none does."""
    best, most = draw_network(0), -1
    for attempt in range(attempts):
        network = draw_network(attempt)
        alive = outputs_alive(network)
        if alive >= wanted:
            return network
        if alive > most:
            best, most = network, alive
    return best
