"""The network that a search begins with."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..config import Config
from ..model.backbone import Backbone, fresh_network
from ..model.network import ClusterNetwork, draw_active_network, flatten
from . import population, relaxed


def random_network(
    images: Tensor, config: Config, backbone: Backbone | None, views: Callable[[], population.Views]
) -> ClusterNetwork:
    """Calibrated heads for the relaxed search; for evolution the paper's draw of which enough outputs win some of the
    ``views``.
    """
    settings, device = config.network, torch.device(config.device)
    channels = images.shape[1]
    if config.schedule[0].kind == "relaxed":
        network = fresh_network(channels, settings, config.relaxed.heads, config.seed, backbone=backbone).to(device)
        if config.relaxed.calibrate:
            relaxed.calibrate(network, images, config)
        return network
    seen = views()

    def draw(attempt: int) -> ClusterNetwork:
        return fresh_network(channels, settings, 1, config.seed, attempt, backbone).to(device)

    def alive(network: ClusterNetwork) -> int:
        labels = population.member_labels(network, flatten(network), seen, config.evolution.chunk)
        return 0 if labels is None else len(torch.cat(labels).bincount().nonzero())

    return draw_active_network(draw, alive, min(settings.alive, settings.clusters))
