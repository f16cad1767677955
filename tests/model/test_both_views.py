"""The winner of both views by a slow loop over single images."""

from __future__ import annotations

import torch
from torch import Tensor

from converge_to_surprise.config import Config, Network
from converge_to_surprise.core.views import make_views, to_float
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.model.inference import Calibration, run_all


def test_both_views_by_a_slow_loop(bars: Tensor) -> None:
    config = Config(max_clusters=6, network=Network(width=2))
    network = random_network(config, 1, 1)
    with torch.no_grad():  # a head on centered features, so that every output wins somewhere
        for view in make_views(to_float(bars), config.views) * 30:
            features = network.features(view)
        network.head.bias.copy_(-(network.head.weight @ features.mean(0)))
    found = run_all(network, bars, config.views, Calibration(10.0))
    network.eval()
    with torch.no_grad():
        for index, image in enumerate(bars):
            views = make_views(to_float(image[None]), config.views)
            outputs = [network.logits(view)[0] for view in views]
            mean = sum((out / out.norm() for out in outputs), torch.zeros(6)) / 2
            expected = [*(int(out.argmax()) for out in outputs), int(mean.argmax())]
            assert [int(labels[index]) for labels in (found.view_i, found.view_j, found.winner)] == expected
    assert len({tuple(labels.tolist()) for labels in (found.view_i, found.view_j, found.winner)}) == 3
