"""The network with which a search starts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..config import Config
from ..model.backbone import Backbone, random_network
from ..model.network import ClusterNetwork, draw_active_network, flatten
from . import population, relaxed


def initial_network(
    images: Tensor, config: Config, backbone: Backbone | None, views: Callable[[], population.ViewPair]
) -> ClusterNetwork:
    """Calibrated heads for the relaxed search; for evolution the first random network with enough active outputs on
    the ``views``, as in the paper.
    """
    device, channels = torch.device(config.device), images.shape[1]
    if config.schedule[0].kind in ("graph", "relaxed"):
        network = random_network(config, channels, config.heads, backbone=backbone).to(device)
        if config.relaxed.calibrate:
            relaxed.calibrate(network, images, config)
        return network
    pair = views()

    def draw(attempt: int) -> ClusterNetwork:
        return random_network(config, channels, 1, attempt, backbone).to(device)

    def active_outputs(network: ClusterNetwork) -> int:
        labeler = population.BatchLabeler(network, pair, config.evolution.chunk_size)
        labels = population.member_labels(labeler, flatten(network))
        return 0 if labels is None else len(torch.cat(labels).bincount().nonzero())

    return draw_active_network(draw, active_outputs, min(config.network.min_active_outputs, config.max_clusters))
