"""Searches in reduced precision."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

import pytest
import torch
from support.configs import CLIMBING
from torch import Tensor, nn

from converge_to_surprise.config import Config, Network, Precision, Relaxed, Stage
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.distributed.sync_batchnorm import own_statistics
from converge_to_surprise.model.backbone import Backbone, BackboneNetwork
from converge_to_surprise.model.network import ClusterNetwork, ResNet9, flatten
from converge_to_surprise.search import population
from converge_to_surprise.search.population import BatchLabeler, ViewPair
from converge_to_surprise.search.trainer import Trainer

SEARCH = Config(
    threads=1,
    schedule=(Stage("search", "relaxed", 30),),
    max_clusters=8,
    network=Network(width=4),
    relaxed=Relaxed(heads=1, batch_size=60, learning_rate=0.01, temperature=0.05, diversity_floor=(4.0, 4.0)),
)


def views() -> ViewPair:
    generator = torch.Generator().manual_seed(0)
    return ViewPair(*(torch.rand(60, 1, 8, 8, generator=generator) for _ in range(2)))


def network_on_backbone() -> ClusterNetwork:
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 12))
    return BackboneNetwork(Backbone.probe(module, False, (1, 8, 8)), 1, 6)


@pytest.mark.parametrize("own_backbone", [False, True])
def test_members_get_nearly_the_same_labels_in_16_bits(own_backbone: bool) -> None:
    torch.manual_seed(0)
    network = network_on_backbone() if own_backbone else ResNet9(1, 6, width=4)

    def labels(precision: Precision) -> Tensor:
        found = population.member_labels(BatchLabeler(network, views(), 20, precision=precision), flatten(network))
        assert found is not None
        return torch.cat(found)

    assert (labels("float32") == labels("bfloat16")).float().mean() > 0.8


def test_the_statistics_of_a_batch_are_gathered_in_32_bits() -> None:
    torch.manual_seed(0)
    network = ResNet9(1, 6, width=4)
    parameters = dict(network.named_parameters())
    exact, _ = population.batch_logits(network, parameters, views().i, 20)
    rounded, statistics = population.batch_logits(network, parameters, views().i, 20, "bfloat16")
    assert not torch.equal(exact, rounded)
    torch.testing.assert_close(exact, rounded, rtol=0.1, atol=0.05)
    assert {part.dtype for layer in statistics for part in (layer.mean, layer.variance)} == {torch.float32}


def test_the_statistics_of_16_bit_activations_are_not_rounded_to_16_bits() -> None:
    """Batch statistics with 8 bits would shift a whole channel."""
    rounded = (torch.rand(50, 6, 4, 4, generator=torch.Generator().manual_seed(0)) + 3).bfloat16()
    mean, variance = own_statistics(rounded)
    exact = rounded.double()
    torch.testing.assert_close(mean, exact.mean((0, 2, 3)), rtol=1e-5, atol=0)
    torch.testing.assert_close(variance, exact.var((0, 2, 3), correction=0), rtol=1e-4, atol=0)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, -math.nan])
def test_outputs_are_not_finite_if_an_activation_of_the_first_layer_is_not(precision: Precision, value: float) -> None:
    network = ResNet9(1, 6, width=4)
    theta = flatten(network)
    theta[0] = value
    assert population.member_labels(BatchLabeler(network, views(), 20, precision=precision), theta) is None


def test_an_unsupported_precision_is_refused_before_the_search_begins(bars: Tensor, small: Config) -> None:
    with pytest.raises(ValueError, match="precision is 'tf32', which needs device cuda; the device is 'cpu'"):
        Trainer(bars, replace(small, device="cpu", precision="tf32"))


@pytest.mark.slow
@pytest.mark.parametrize("config", [SEARCH, CLIMBING], ids=["relaxed", "evolution"])
def test_a_search_in_bfloat16_finds_structure_and_is_reproducible(config: Config) -> None:
    images = striped_images(200)[0]
    lowered = replace(config, precision="bfloat16")
    scores: list[float] = []

    def climbed() -> bool:
        start, end = sum(scores[:4]) / 4, sum(scores[-4:]) / 4
        return end > max(start + 0.1, 3 * start)

    for record in Trainer(images, lowered).run():
        scores.append(record.surprise)
        if len(scores) >= 10 and climbed():  # many processors emulate bfloat16, slowly: no more steps than are needed
            break
    assert climbed()
    assert [record.surprise for record in islice(Trainer(images, lowered).run(), 10)] == scores[:10]
    assert [record.surprise for record in islice(Trainer(images, config).run(), 10)] != scores[:10]
