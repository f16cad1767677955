from __future__ import annotations

from dataclasses import replace

import pytest
import reference
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from converge_to_surprise.config import Config, Consolidation, Network
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.model.inference import label_views
from converge_to_surprise.model.network import ClusterNetwork, flatten
from converge_to_surprise.search import consolidate
from converge_to_surprise.search.sampler import BLOCK, WINDOW


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.integers(0, 99))
def test_median_balance_agrees_with_the_paper(labels: list[int], seed: int) -> None:
    chosen = consolidate.median_balance(torch.tensor(labels), torch.Generator().manual_seed(seed))
    taken = [labels[position] for position in chosen.tolist()]
    assert {k: taken.count(k) for k in set(taken)} == {k: n for k, n in reference.balanced_sizes(labels).items() if n}
    assert len(set(chosen.tolist())) == len(chosen), "drawn without replacement"


def test_median_balance_by_hand() -> None:
    labels = torch.tensor([0] * 10 + [1] * 4 + [2] * 2)
    chosen = labels[consolidate.median_balance(labels, torch.Generator())]
    assert torch.bincount(chosen).tolist() == [4, 4, 2]


def test_large_clusters_are_sub_sampled_uniformly() -> None:
    labels = torch.tensor([0] * 40 + [1] * 10 + [2] * 10)
    drawn = torch.zeros(60)
    for seed in range(400):
        drawn[consolidate.median_balance(labels, torch.Generator().manual_seed(seed))] += 1
    assert float(drawn[:40].min()) > 60
    assert float(drawn[:40].max()) < 145
    assert bool((drawn[40:] == 400).all())


def test_many_images_are_read_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an epoch of the search: shuffled, but only a few blocks of a large file at a time."""
    labels = torch.arange(200_000) % 5
    monkeypatch.setattr(consolidate, "LIMIT", 100_000)
    chosen = consolidate.median_balance(labels, torch.Generator().manual_seed(0))
    assert torch.equal(chosen.sort().values, torch.arange(200_000))
    assert len(torch.unique(chosen[:20_000] // BLOCK)) <= WINDOW
    assert float((chosen[1:] < chosen[:-1]).float().mean()) > 0.4
    other = consolidate.median_balance(labels, torch.Generator().manual_seed(1))
    assert not torch.equal(chosen, other)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=50), st.integers(0, 9))
def test_the_surrogate_set_holds_contributing_images_with_their_cluster(
    pairs: list[tuple[int, int]], seed: int
) -> None:
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    positions, labels = consolidate.surrogate_set(
        torch.tensor(first), torch.tensor(second), 4, 0.005, torch.Generator().manual_seed(seed)
    )
    allowed = reference.contributing(first, second, 4, 0.005)
    assert set(positions.tolist()) <= set(allowed)
    assert labels.tolist() == [first[position] for position in positions.tolist()]
    expected = reference.balanced_sizes([first[position] for position in allowed]) if allowed else {}
    assert sum(expected.values()) == len(positions)


def consolidated(scale: float = 1.0, passes: int = 6) -> tuple[ClusterNetwork, ClusterNetwork, Tensor, Config]:
    """A network that distinguishes stripes a little, before and after consolidation."""
    images, _ = striped_images(200)
    config = Config(threads=1, consolidation=Consolidation(batch_size=50, logit_scale=scale, learning_rate=5e-3))
    for seed in range(50):
        network = random_network(Config(seed=seed, max_clusters=6, network=Network(width=4)), 1, 1)
        network.train()
        with torch.no_grad():
            for _ in range(20):
                network(images.float() / 255)
        labels_i, labels_j = label_views(network, images, config.views)
        generator = torch.Generator()
        if len(consolidate.surrogate_set(labels_i, labels_j, 6, config.consolidation.tau, generator)[0]) > 40:
            break
    before = random_network(Config(seed=0, max_clusters=6, network=Network(width=4)), 1, 1)
    before.load_state_dict(network.state_dict())
    optimizer = consolidate.new_optimizer(network, config)
    for step in range(passes):
        consolidate.consolidation_pass(network, optimizer, images, config, step)
    return before, network, images, config


def test_consolidation_raises_the_agreement_of_the_views() -> None:
    before, after, images, config = consolidated(scale=10)

    def agreement(network: ClusterNetwork) -> float:
        labels_i, labels_j = label_views(network, images, config.views)
        return float((labels_i == labels_j).double().mean())

    assert agreement(after) > agreement(before) + 0.02


def test_the_logit_scale_changes_the_gradient() -> None:
    assert not torch.equal(flatten(consolidated(1, 1)[1]), flatten(consolidated(10, 1)[1]))


def test_a_pass_is_reproducible_and_differs_from_step_to_step(small: Config) -> None:
    def after_one_pass(step: int) -> tuple[Tensor, int]:
        network = consolidated(passes=0)[0]
        images, _ = striped_images(200)
        config = replace(small, consolidation=Consolidation(batch_size=50))
        _, _, views = consolidate.consolidation_pass(
            network, consolidate.new_optimizer(network, config), images, config, step
        )
        return flatten(network), views

    first, views = after_one_pass(0)
    assert views > 0
    assert torch.equal(first, after_one_pass(0)[0])
    assert not torch.equal(first, after_one_pass(1)[0])


def test_without_surprising_clusters_nothing_is_trained(bars: Tensor, small: Config) -> None:
    network = random_network(Config(seed=0, max_clusters=6, network=Network(width=2)), 1, 1)
    with torch.no_grad():
        network.head.bias[3] = 100.0  # collapse: every view goes to output 3
    before = flatten(network)
    labels_i, labels_j, views = consolidate.consolidation_pass(
        network, consolidate.new_optimizer(network, small), bars, small, 0
    )
    assert views == 0
    assert bool((labels_i == 3).all() and (labels_j == 3).all())
    assert torch.equal(flatten(network), before)


def test_cross_entropy_on_normalized_logits_has_the_floor_of_the_paper() -> None:
    """With K = 64 and scale 1 the loss cannot fall below log(1 + 63/e) = 3.18: therefore the scale is a setting."""
    perfect = F.normalize(torch.eye(64), dim=1)
    assert float(F.cross_entropy(perfect, torch.arange(64))) == pytest.approx(3.18, abs=0.01)
