from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from converge_to_surprise.config import Evolution
from converge_to_surprise.model.network import Padding, ResNet9, flatten, unflatten
from converge_to_surprise.search import evolution, population
from converge_to_surprise.search.population import BatchLabeler, ViewPair


def network_with_all_signs(
    channels: int = 1, seed: int = 0, space_to_depth: bool = False, padding: Padding = "black"
) -> ResNet9:
    """Random BatchNorm weights and biases of both signs: the standard ones, 1 and 0, would hide errors."""
    generator = torch.Generator().manual_seed(seed)
    network = ResNet9(channels, 9, width=3, space_to_depth=space_to_depth, padding=padding).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return network


def batch(count: int, channels: int, side: int, seed: int = 0) -> Tensor:
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(seed))


@given(
    st.integers(2, 30),
    st.integers(1, 40),
    st.sampled_from([1, 3]),
    st.integers(2, 11),
    st.booleans(),
    st.sampled_from(["black", "background"]),
    st.integers(0, 99),
)
@settings(max_examples=30)
def test_chunks_give_the_same_logits_as_the_forward_pass_in_training_mode(
    count: int, chunk: int, channels: int, side: int, space_to_depth: bool, padding: Padding, seed: int
) -> None:
    network = network_with_all_signs(channels, seed, space_to_depth, padding).train()
    views = batch(count, channels, side, seed).double()
    with torch.no_grad():
        expected = network.logits(views)
        logits, statistics = population.batch_logits(network, dict(network.named_parameters()), views, chunk)
    torch.testing.assert_close(logits, expected, rtol=1e-8, atol=1e-8)
    assert len(statistics) == len(network.units)


@given(st.integers(1, 64), st.integers(0, 99))
@settings(max_examples=20)
def test_chunk_size_never_changes_a_label(chunk: int, seed: int) -> None:
    network = network_with_all_signs(seed=seed).float()
    views = ViewPair(batch(60, 1, 9, seed), batch(60, 1, 9, seed + 1))
    theta = flatten(network)
    whole = population.member_labels(BatchLabeler(network, views, 60), theta)
    parts = population.member_labels(BatchLabeler(network, views, chunk), theta)
    assert whole is not None
    assert parts is not None
    assert torch.equal(whole[0], parts[0])
    assert torch.equal(whole[1], parts[1])


def test_refresh_moves_running_statistics_as_two_training_passes_do() -> None:
    network, twin = (network_with_all_signs(seed=2).float().train() for _ in range(2))
    views = ViewPair(batch(40, 1, 8, 3), batch(40, 1, 8, 4))
    with ThreadPoolExecutor(2) as workers:
        labels_i, labels_j = population.refresh(BatchLabeler(network, views, 16, workers))
    with torch.no_grad():
        expected = [twin.logits(view).argmax(-1) for view in views]
    assert torch.equal(labels_i, expected[0])
    assert torch.equal(labels_j, expected[1])
    for name, buffer in twin.named_buffers():
        torch.testing.assert_close(network.get_buffer(name), buffer, rtol=1e-3, atol=1e-4)


def test_each_view_has_its_own_statistics() -> None:
    """Darkening all of view j must not change a label of view i: the views share no statistics."""
    network = network_with_all_signs(seed=5).float()
    first, second = batch(30, 1, 8, 1), batch(30, 1, 8, 2)
    theta = flatten(network)
    plain = population.member_labels(BatchLabeler(network, ViewPair(first, second), 10), theta)
    changed = population.member_labels(BatchLabeler(network, ViewPair(first, second**3), 10), theta)
    assert plain is not None
    assert changed is not None
    assert torch.equal(plain[0], changed[0])
    assert not torch.equal(plain[1], changed[1])


def scores_with(workers: int, score: evolution.Score) -> Tensor:
    network = network_with_all_signs(seed=1).float()
    generation = evolution.Generation(0, 0, 1.0, Evolution(population=6))
    views = ViewPair(batch(25, 1, 8, 1), batch(25, 1, 8, 2))
    with ThreadPoolExecutor(workers) as pool:
        return population.scores(BatchLabeler(network, views, 7, pool), flatten(network), generation, score)


def test_scores_are_those_of_the_members_one_by_one_and_do_not_depend_on_the_number_of_workers() -> None:
    score = evolution.named_score("surprise", 9)
    network = network_with_all_signs(seed=1).float()
    generation = evolution.Generation(0, 0, 1.0, Evolution(population=6))
    views = ViewPair(batch(25, 1, 8, 1), batch(25, 1, 8, 2))
    expected = []
    for theta in evolution.ask(flatten(network), generation, range(6)):
        labels = [population.batch_logits(network, unflatten(theta, network), view, 25)[0].argmax(-1) for view in views]
        expected.append(float(score(*labels)))
    assert scores_with(1, score).tolist() == pytest.approx(expected)
    assert torch.equal(scores_with(1, score), scores_with(3, score))


def test_any_function_of_two_label_sequences_is_a_score_and_is_called_in_order() -> None:
    seen: list[int] = []

    def distinct(labels_i: Tensor, labels_j: Tensor) -> float:
        assert labels_i.shape == labels_j.shape == (25,)
        seen.append(len(seen))
        return float(len(set(labels_i.tolist())))

    assert scores_with(3, distinct).shape == (6,)
    assert seen == list(range(6))


def test_a_member_whose_outputs_are_not_finite_scores_nan() -> None:
    network = network_with_all_signs().float()
    theta = flatten(network)
    theta[-1] = float("inf")
    labeler = BatchLabeler(network, ViewPair(batch(10, 1, 8), batch(10, 1, 8)), chunk_size=5)
    assert population.member_labels(labeler, theta) is None
    generation = evolution.Generation(0, 0, 1.0, Evolution(population=2))
    values = population.scores(labeler, theta, generation, lambda i, j: 1.0)
    assert bool(values.isnan().all())
