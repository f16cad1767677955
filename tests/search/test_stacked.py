from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from converge_to_surprise.config import Evolution
from converge_to_surprise.model.backbone import Backbone, BackboneNetwork, whole_logits
from converge_to_surprise.model.network import (
    ClusterNetwork,
    FeatureNetwork,
    PixelNetwork,
    ResNet9,
    flatten,
    unflatten,
)
from converge_to_surprise.search import evolution, population, stacked
from converge_to_surprise.search.population import BatchLabeler, ViewPair

SHAPE = (1, 4, 4)


def on_pixels(*layers: nn.Module, frozen: bool = False) -> ClusterNetwork:
    return BackboneNetwork(Backbone.probe(nn.Sequential(*layers), frozen, SHAPE), 1, 7)


def networks() -> dict[str, ClusterNetwork]:
    """The same weights whatever ran before."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        hidden = nn.Linear(16, 9, bias=False), nn.BatchNorm1d(9), nn.ReLU()
        deep = nn.Linear(9, 5), nn.BatchNorm1d(5, affine=False), nn.ReLU()
        return {
            "linear": FeatureNetwork(16, 7),
            "hidden": FeatureNetwork(16, 7, hidden=9),
            "pixels": PixelNetwork(1, 16, 9, 7),
            "own module": on_pixels(nn.Flatten(), *hidden),
            "normalized pixels, two layers": on_pixels(nn.Flatten(), nn.BatchNorm1d(16, affine=False), *hidden, *deep),
        }


def thetas(network: ClusterNetwork, members: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(members, len(flatten(network)), generator=generator, dtype=torch.double)


def views(count: int, network: ClusterNetwork, seed: int = 0) -> Tensor:
    drawn = torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    return drawn.flatten(1) if isinstance(network, FeatureNetwork) else drawn


@pytest.mark.parametrize("name", list(networks()))
@pytest.mark.parametrize("members", [1, 5])
def test_stacked_members_have_the_outputs_of_each_on_its_own(name: str, members: int) -> None:
    network = networks()[name].double().train()
    layers = stacked.chain(network)
    assert layers is not None
    batch = views(11, network)
    found = stacked.stacked_logits(network, layers, (asked := thetas(network, members)), batch)
    assert found.shape == (members, 11, 7)
    for logits, theta in zip(found, asked, strict=True):
        # The forward pass normalizes the outputs to length one.
        alone = whole_logits(network, unflatten(theta, network), batch)
        torch.testing.assert_close(nn.functional.normalize(logits, dim=-1), alone)


@pytest.mark.parametrize(
    "network",
    [
        ResNet9(1, 7, width=2),
        on_pixels(nn.Flatten(), nn.Linear(16, 3), nn.Tanh()),
        on_pixels(nn.Conv2d(1, 2, 3), nn.Flatten()),
        on_pixels(nn.Flatten(), nn.Linear(16, 3), frozen=True),
    ],
    ids=["ResNet-9", "unknown layer", "convolution", "frozen"],
)
def test_other_networks_are_not_stacked(network: ClusterNetwork) -> None:
    assert stacked.chain(network) is None


@pytest.mark.parametrize("cached", [1, 200, 10**6])
@pytest.mark.parametrize("named", [True, False])
def test_scores_do_not_depend_on_how_many_members_are_labeled_together(
    cached: int, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = networks()["pixels"].double()
    labeler = BatchLabeler(network, ViewPair(views(40, network, 1), views(40, network, 2)), 0)
    generation = evolution.Generation(0, 3, 0.8, Evolution(population=8, sigma=0.3))
    surprise = evolution.named_score("surprise", 7)
    alone = [population.member_labels(labeler, t) for t in evolution.ask(flatten(network), generation, range(8))]
    expected = [float(surprise(*labels)) for labels in alone if labels is not None]
    monkeypatch.setattr(stacked, "CACHED", cached)
    found = population.scores(labeler, flatten(network), generation, surprise if named else lambda i, j: surprise(i, j))
    assert found.tolist() == pytest.approx(expected, abs=1e-12)
    assert len(set(expected)) > 4


def test_one_stacked_member_without_finite_outputs_scores_nan() -> None:
    network = networks()["hidden"].double()
    layers = stacked.chain(network)
    assert layers is not None
    asked = thetas(network, 3)
    asked[1, -1] = torch.inf
    labeler = BatchLabeler(network, ViewPair(views(9, network, 1), views(9, network, 2)), 0)
    found = population._labels_together(labeler, layers, asked)
    assert [labels is None for labels in found] == [False, True, False]
    scored = population._scores_of(found, evolution.named_score("surprise", 7))
    assert scored.isnan().tolist() == [False, True, False]
