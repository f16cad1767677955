"""The network: a backbone with linear heads. ResNet-9 (paper 4.1) as a chain of units; the flat parameter vector."""

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
Padding = Literal["black", "background"]


class Unit(nn.Module):
    """Convolution, batch normalization, ReLU and optionally 2x2 max pooling.

    ``skip`` marks residual blocks: the input of the "open" unit is added to the output of the "close" unit.
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
    """2x2 max pooling; an axis of one pixel is not pooled, so that any image size works."""
    return F.max_pool2d(x, (min(2, x.shape[2]), min(2, x.shape[3])))


def pooled_size(size: Sequence[int]) -> tuple[int, ...]:
    """Height and width after ``pool``."""
    return tuple(max(1, side // 2) for side in size)


def space_to_depth(x: Tensor) -> Tensor:
    """Rearrange each 2x2 block of pixels into one pixel with four times the channels; an odd edge is repeated."""
    height, width = x.shape[2:]
    if height % 2 or width % 2:
        x = F.pad(x, (0, width % 2, 0, height % 2), mode="replicate")
    return channels_last(F.pixel_unshuffle(x, 2))


def pad_with_background(x: Tensor, margin: int, multiple: int) -> Tensor:
    """Pad each image with its background color: by ``margin``, and below and right up to a multiple of ``multiple``."""
    height, width = x.shape[2:]
    color = background(x)
    padding = (margin, margin + -width % multiple, margin, margin + -height % multiple)
    return F.pad(x - color, padding) + color


class ClusterNetwork(nn.Module):
    """A backbone from views to feature vectors, and one linear layer with ``heads`` x ``n_outputs`` outputs.

    Subclasses build the backbone first and then call ``add_head``, so that the random weights are drawn in that order.
    """

    head: nn.Linear

    def __init__(self, channels: int, n_outputs: int, heads: int) -> None:
        super().__init__()
        self.channels = channels
        self.n_outputs = n_outputs
        self.heads = heads

    def add_head(self, features: int) -> None:
        self.head = nn.Linear(features, self.heads * self.n_outputs)

    def features(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, D)"""
        raise NotImplementedError

    def logits(self, x: Tensor) -> Tensor:
        """Outputs before normalization, (B, n_outputs), or (B, heads, n_outputs) with several heads.

        The heads compute in float32 even where the backbone does not, because the softmax amplifies small differences.
        """
        features = self.features(x)
        with precision.full(features.device):
            return self.outputs(features.to(self.head.weight.dtype))

    def outputs(self, features: Tensor) -> Tensor:
        """``logits`` from features (B, D)."""
        out: Tensor = self.head(features)
        return out if self.heads == 1 else out.reshape(len(out), self.heads, self.n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The l2-normalized logits of each head, as in the paper; their argmax is the cluster."""
        return F.normalize(self.logits(x), dim=-1)

    def with_head(self, weight: Tensor, bias: Tensor) -> Self:
        """A copy with one head of these weights (n_outputs, D) and biases (n_outputs,)."""
        return self.with_heads(weight, bias, 1)

    @torch.no_grad()
    def with_heads(self, weight: Tensor, bias: Tensor, heads: int) -> Self:
        """A copy with so many heads, whose weights (heads * n_outputs, D) and biases follow one another."""
        twin = copy.deepcopy(self)
        twin.n_outputs, twin.heads = len(bias) // heads, heads
        with torch.device("meta"):  # nothing is drawn for weights that are set at once
            twin.head = nn.Linear(weight.shape[1], len(bias))
        twin.head.to_empty(device=self.head.weight.device)
        twin.head.weight.copy_(weight)
        twin.head.bias.copy_(bias)
        return twin

    @torch.no_grad()
    def grown(self, n_outputs: int) -> Self:
        """A copy whose heads have this many outputs; the new ones never win until they are trained."""
        rows = torch.cat([self.head.weight, self.head.bias[:, None]], 1).reshape(self.heads, self.n_outputs, -1)
        added = rows.new_zeros(self.heads, n_outputs - self.n_outputs, rows.shape[2])
        added[..., -1] = rows[..., -1].amin() - 1  # the bias
        grown = torch.cat([rows, added], 1).flatten(0, 1)
        return self.with_heads(grown[:, :-1], grown[:, -1], self.heads)

    def single(self) -> Self:
        """The network if it has one head; otherwise a copy with its middle head."""
        return self if self.heads == 1 else self.select_head(self.heads // 2)

    def select_heads(self, heads: range) -> Self:
        """A copy with only some of its heads, which follow one another."""
        rows = slice(heads.start * self.n_outputs, heads.stop * self.n_outputs)
        return self.with_heads(self.head.weight[rows], self.head.bias[rows], len(heads))

    def select_head(self, head: int) -> Self:
        """A copy with only one of its heads."""
        return self.select_heads(range(head, head + 1))


class ResNet9(ClusterNetwork):
    """Stem, two residual blocks, global average pooling, a linear layer with ``heads`` x ``n_outputs`` outputs.

    ``space_to_depth`` replaces the two convolutions at full resolution by one on rearranged pixels: a third less time.
    ``padding``: black padding around an image that is not black at its edge reveals where the edge is, and with it the
    position of the object; padding with the background color does not.
    """

    def __init__(
        self,
        channels: int,
        n_outputs: int,
        width: int = 8,
        heads: int = 1,
        space_to_depth: bool = False,
        padding: Padding = "black",
    ) -> None:
        w, pixels = width, 0 if padding == "background" else 1
        super().__init__(channels, n_outputs, heads)
        self.space_to_depth = space_to_depth
        self.padding = padding
        stem = (
            [Unit(4 * channels, 2 * w, padding=pixels)]
            if space_to_depth
            else [Unit(channels, w, padding=pixels), Unit(w, 2 * w, pool=True)]
        )
        self.units = nn.ModuleList(
            [
                *stem,
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

    def prepare(self, x: Tensor) -> Tensor:
        """The input of the first unit: padded and rearranged as configured."""
        if self.padding == "background":
            x = pad_with_background(x, 2, 2) if self.space_to_depth else pad_with_background(x, 1, 1)
        return space_to_depth(x) if self.space_to_depth else x

    def features(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, 8 width)"""
        residual = x = self.prepare(x)
        for unit in self.units:
            assert isinstance(unit, Unit)
            if unit.skip == "open":
                residual = x
            x = unit(x)
            if unit.skip == "close":
                x = x + residual
        return x.mean((2, 3))


class FeatureNetwork(ClusterNetwork):
    """Heads on stored features of views (B, inputs), with a hidden layer between them or without one."""

    def __init__(self, inputs: int, n_outputs: int, heads: int = 1, hidden: int = 0) -> None:
        super().__init__(inputs, n_outputs, heads)
        self.hidden = nn.Linear(inputs, hidden) if hidden else None
        self.add_head(hidden or inputs)

    def features(self, x: Tensor) -> Tensor:
        """(B, inputs) -> (B, D)"""
        return x if self.hidden is None else F.relu(self.hidden(x))


class PixelNetwork(ClusterNetwork):
    """Heads on a hidden layer that takes the pixels of small views, for searches whose cost grows with the number of
    parameters.

    The hidden units are normalized once more after the rectifier. Positive features favor outputs with a large sum of
    weights; with centered ones more outputs win some view at the beginning.
    """

    def __init__(self, channels: int, pixels: int, hidden: int, n_outputs: int, heads: int = 1) -> None:
        super().__init__(channels, n_outputs, heads)
        self.hidden = nn.Linear(pixels, hidden, bias=False)
        self.norm = nn.BatchNorm1d(hidden)
        self.center = nn.BatchNorm1d(hidden)
        self.add_head(hidden)

    def features(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, hidden)"""
        found: Tensor = self.center(F.relu(self.norm(self.hidden(x.flatten(1)))))
        return found


def channels_last(views: Tensor) -> Tensor:
    """The memory layout in which small convolutions are fastest on a CPU; stored features stay as they are."""
    return views.contiguous(memory_format=torch.channels_last) if views.ndim == 4 else views


def flatten(network: nn.Module) -> Tensor:
    """θ: all trainable parameters as one vector. (D,)"""
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
    active_outputs: Callable[[ClusterNetwork], int],
    wanted: int,
    attempts: int = 100,
) -> ClusterNetwork:
    """The first random network with at least ``wanted`` active outputs; the one with most if none has so many."""
    best, most = draw_network(0), -1
    for attempt in range(attempts):
        network = draw_network(attempt)
        active = active_outputs(network)
        if active >= wanted:
            return network
        if active > most:
            best, most = network, active
    return best
