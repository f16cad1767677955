"""Label a batch under several parameter vectors at once, for networks that are a chain of small layers.

Such a network takes less time to compute than to call, layer by layer and member by member. So the weights of several
members are stacked: to batch normalization they are the columns of one layer, and the first multiplication is one for
all of them. As many members are taken together as fit the cache.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..model.backbone import BackboneNetwork
from ..model.network import ClusterNetwork, FeatureNetwork, PixelNetwork

CACHED = 2**17
"""Numbers of a layer's output that fit a CPU's cache."""
STACKABLE = (nn.Linear, nn.ReLU, nn.BatchNorm1d)
Layer = tuple[str, nn.Module]
"""The prefix of its parameters' names, and a layer."""


def chain(network: ClusterNetwork) -> list[Layer] | None:
    """The layers after flattening the views if every one of them can be stacked, else None."""
    if isinstance(network, FeatureNetwork):
        hidden = [] if network.hidden is None else [("hidden.", network.hidden), ("", nn.ReLU())]
        return [*hidden, ("head.", network.head)]
    if isinstance(network, PixelNetwork):
        rectified = [("hidden.", network.hidden), ("norm.", network.norm), ("", nn.ReLU())]
        return [*rectified, ("center.", network.center), ("head.", network.head)]
    if not isinstance(network, BackboneNetwork) or network.frozen or type(network.backbone) is not nn.Sequential:
        return None
    (_, first), *layers = [(f"backbone.{name}.", layer) for name, layer in network.backbone.named_children()]
    if type(first) is not nn.Flatten or any(type(layer) not in STACKABLE for _, layer in layers):
        return None
    return [*layers, ("head.", network.head)]


def members_together(layers: list[Layer], views: int) -> int:
    """How many members are labeled at once."""
    widest = max(layer.out_features for _, layer in layers if isinstance(layer, nn.Linear))
    return max(1, CACHED // (views * widest))


@torch.inference_mode()
def stacked_logits(network: ClusterNetwork, layers: list[Layer], thetas: Tensor, views: Tensor) -> Tensor:
    """Outputs (m, N, n_outputs) of a batch in training mode under parameter vectors (m, D)."""
    parameters = _stacked_parameters(network, thetas)
    x = views.flatten(1)[None]  # (1 or m, N, columns), where the columns of all members lie side by side in memory
    for name, layer in layers:
        weight, bias = parameters.get(f"{name}weight"), parameters.get(f"{name}bias")
        if isinstance(layer, nn.Linear):
            assert weight is not None
            x = _linear(x, weight, bias)
        elif isinstance(layer, nn.BatchNorm1d):
            scale, shift = (None if value is None else value.flatten() for value in (weight, bias))
            columns = F.batch_norm(_side_by_side(x), None, None, scale, shift, training=True, eps=layer.eps)
            x = _apart(columns, len(x))
        else:
            x = F.relu(x)
    return x


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Inputs (1 or m, N, I) times weights (m, O, I), as (m, N, O)."""
    if len(x) < len(weight):
        columns = F.linear(x[0], weight.flatten(0, 1), None if bias is None else bias.flatten())
        return _apart(columns, len(weight))
    return torch.bmm(x, weight.mT) if bias is None else torch.baddbmm(bias[:, None], x, weight.mT)


def _side_by_side(x: Tensor) -> Tensor:
    """(m, N, O) as (N, m * O)."""
    return x.transpose(0, 1).flatten(1)


def _apart(columns: Tensor, members: int) -> Tensor:
    """The inverse of ``_side_by_side``."""
    return columns.reshape(len(columns), members, -1).transpose(0, 1)


def _stacked_parameters(network: nn.Module, thetas: Tensor) -> dict[str, Tensor]:
    """Parameter vectors (m, D) as named tensors with a leading dimension."""
    named = {name: p for name, p in network.named_parameters() if p.requires_grad}
    pieces = torch.split(thetas, [p.numel() for p in named.values()], dim=1)
    return {name: piece.reshape(-1, *p.shape) for (name, p), piece in zip(named.items(), pieces, strict=True)}
