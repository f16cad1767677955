"""Confidence on stored features: what a head remembers of its training images does not count."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from converge_to_surprise.config import Config, Views
from converge_to_surprise.core.views import make_views
from converge_to_surprise.model.calibration import calibrate
from converge_to_surprise.model.confidence import fit_sharpness, mean_outputs
from converge_to_surprise.model.memorization import FEWEST, without_memory
from converge_to_surprise.model.network import FeatureNetwork

CONFIG = Config(views=Views(stored=True))
COPIES = 4


def stored(count: int, seed: int, spread: float, width: int = 60) -> Tensor:
    """Items with two sides and augmented copies, in three groups that lie ``spread`` apart."""
    generator = torch.Generator().manual_seed(seed)
    centers = spread * torch.eye(3, width)
    own = centers[torch.randint(3, (count,), generator=generator)] + torch.randn(count, width, generator=generator)
    return (own[:, None, None] + 0.7 * torch.randn(count, 2, 1 + COPIES, width, generator=generator)).half()


def fitted_network(items: Tensor, clusters: Tensor) -> FeatureNetwork:
    """A head that knows the clusters of its items by heart."""
    network = FeatureNetwork(items.shape[-1], 3)
    views = items.float().flatten(1, 2)
    mean, targets = views.mean(1), torch.nn.functional.one_hot(clusters, 3).float()
    with torch.no_grad():
        network.head.weight.copy_(torch.linalg.lstsq(mean - mean.mean(0), targets - targets.mean(0)).solution.t())
        network.head.bias.copy_(-network.head.weight @ mean.mean(0))
    return network


def test_confidence_holds_for_images_that_the_head_was_not_fitted_to() -> None:
    spread = 3.0
    items = stored(150, 3, spread)
    network = fitted_network(items, items.float().mean((1, 2))[:, :3].argmax(1))
    calibrated = calibrate(network, items, CONFIG).sharpness
    remembered = fit_sharpness(network, items, _clean(items), CONFIG, torch.Generator().manual_seed(0))
    gap, gap_remembered = (_gap(network, sharpness, spread) for sharpness in (calibrated, remembered))
    assert gap_remembered > 0.05, "the head knows its images by heart"
    assert gap < 0.7 * gap_remembered


def _clean(items: Tensor) -> Tensor:
    return torch.stack(make_views(items.float(), CONFIG.views), 1)


@torch.no_grad()
def _gap(network: FeatureNetwork, sharpness: float, spread: float) -> float:
    """By how much the mean confidence of new items differs from how often augmented views get their cluster."""
    items = stored(3000, 4, spread)
    outputs = mean_outputs(network, _clean(items))
    sure, winner = torch.softmax(sharpness * outputs, -1).max(-1)
    views = make_views(items.float(), CONFIG.views, torch.Generator().manual_seed(0))
    return abs(
        float(sure.mean() - torch.stack([(network(view).argmax(-1) == winner).float() for view in views]).mean())
    )


def test_the_sharpness_never_grows_and_is_the_same_again() -> None:
    items = stored(150, 0, 0)
    clusters = torch.arange(150) % 3
    assert without_memory(1.1, items, clusters, CONFIG) == 1.1
    found = without_memory(50, items, clusters, CONFIG)
    assert 1 < found < 50
    assert without_memory(50, items, clusters, CONFIG) == found
    assert without_memory(50, items, clusters, replace(CONFIG, seed=1)) != found


def test_few_images_or_one_cluster_say_nothing() -> None:
    items = stored(FEWEST, 2, 0)
    assert without_memory(50, items, torch.zeros(FEWEST, dtype=torch.long), CONFIG) == 50
    assert without_memory(50, items[1:], torch.arange(FEWEST - 1) % 3, CONFIG) == 50
    assert without_memory(50, items, torch.arange(FEWEST) % 3, CONFIG) < 50
