"""Build networks: our own, or heads on the user's own module from a batch of views to feature vectors."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.dropout import _DropoutNd

from ..config import Config, Precision
from ..core import rng
from .network import ClusterNetwork, FeatureNetwork, PixelNetwork, ResNet9
from .precision import lowered


@dataclass(frozen=True)
class Backbone:
    """A module from views (B, C, H, W) with values in [0, 1] to features (B, D), and whether it is frozen."""

    module: nn.Module
    frozen: bool
    features: int

    @classmethod
    def probe(cls, module: nn.Module, frozen: bool, shape: tuple[int, int, int]) -> Backbone:
        """Run a module on two empty views of ``shape`` (C, H, W) to find its number of features."""
        if not isinstance(module, nn.Module):
            raise ValueError(f"backbone is {module!r}; it must be a torch.nn.Module")
        trial = copy.deepcopy(module).eval()
        device = next((p.device for p in trial.parameters()), torch.device("cpu"))
        try:
            with torch.no_grad():
                features = trial(torch.zeros(2, *shape, device=device))
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise ValueError(
                f"the backbone does not take views of shape (B, {', '.join(map(str, shape))}): {error}"
            ) from error
        if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != 2:
            found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise ValueError(
                f"the backbone gives {found} for two views; it must give one vector each, (2, D): pool and flatten"
            )
        return cls(module, frozen, features.shape[1])


class BackboneNetwork(ClusterNetwork):
    """Heads on a copy of the user's own module."""

    def __init__(self, backbone: Backbone, channels: int, n_outputs: int, heads: int = 1) -> None:
        super().__init__(channels, n_outputs, heads)
        self.backbone = copy.deepcopy(backbone.module)
        self.frozen = backbone.frozen
        if self.frozen:
            self.backbone.requires_grad_(False)
        self.add_head(backbone.features)

    def train(self, mode: bool = True) -> Self:
        """A frozen backbone stays in evaluation mode, so that its running statistics do not change."""
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        return self

    def features(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, D)"""
        found: Tensor = self.backbone(x)
        return found.float()


def train_without_dropout(network: ClusterNetwork) -> None:
    """Training mode without dropout, so that the members of a population are compared under equal conditions."""
    network.train()
    for module in network.modules():
        if isinstance(module, _DropoutNd):
            module.eval()


def whole_logits(
    network: ClusterNetwork, parameters: Mapping[str, Tensor], views: Tensor, precision: Precision = "float32"
) -> Tensor:
    """Outputs (N, n_outputs) of a batch in training mode under other parameters; the network is not changed."""
    buffers = {name: value.clone() for name, value in network.named_buffers()}
    with lowered(precision, views.device):
        outputs: Tensor = functional_call(network, (dict(parameters), buffers), (views,))
    return outputs


def build_network(
    channels: int, config: Config, n_outputs: int, heads: int, backbone: Backbone | None = None
) -> ClusterNetwork:
    """ResNet-9 or a hidden layer for views of images with so many channels, or heads on a backbone or stored features.

    Weights come from torch's global generator.
    """
    if backbone is not None:
        return BackboneNetwork(backbone, channels, n_outputs, heads)
    settings, seen = config.network, config.views.channels(channels)
    if settings.inputs:
        return FeatureNetwork(settings.inputs, n_outputs, heads, settings.hidden)
    if settings.pixels:
        return PixelNetwork(seen, settings.pixels, settings.hidden, n_outputs, heads)
    return ResNet9(seen, n_outputs, settings.width, heads, settings.space_to_depth, settings.padding)


def random_network(
    config: Config, channels: int, heads: int, attempt: int = 0, backbone: Backbone | None = None
) -> ClusterNetwork:
    """A network with torch's standard random weights, determined by (seed, attempt)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.torch_seed(config.seed, "start", attempt))
        return build_network(channels, config, config.max_clusters, heads, backbone)
