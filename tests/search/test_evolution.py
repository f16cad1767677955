from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.config import Evolution
from converge_to_surprise.core import surprise
from converge_to_surprise.search import evolution

numbers = st.one_of(st.floats(-1e6, 1e6), st.just(math.nan), st.just(math.inf), st.just(-math.inf))


def generation(fraction: float = 1.0, seed: int = 0, step: int = 0, population: int = 6) -> evolution.Generation:
    return evolution.Generation(seed, step, fraction, Evolution(population=population))


@given(st.lists(numbers, min_size=2, max_size=12))
def test_centered_ranks_agree_with_the_oracle(scores: list[float]) -> None:
    ranks = evolution.centered_ranks(torch.tensor(scores, dtype=torch.double))
    np.testing.assert_allclose(ranks, reference.centered_ranks(scores), atol=1e-12)
    assert float(ranks.sum()) == pytest.approx(0, abs=1e-9)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=12))
def test_ranks_ignore_monotone_transforms_and_average_ties(scores: list[int]) -> None:
    ranks = evolution.centered_ranks(torch.tensor(scores, dtype=torch.double))
    stretched = evolution.centered_ranks(torch.tensor([math.exp(score / 10) - 3 for score in scores]))
    assert torch.equal(ranks, stretched)
    for a in range(len(scores)):
        for b in range(len(scores)):
            assert (ranks[a] == ranks[b]) == (scores[a] == scores[b])


def test_ranks_by_hand() -> None:
    ranks = evolution.centered_ranks(torch.tensor([3.0, math.nan, 1.0, 3.0, 2.0]))
    assert ranks.tolist() == [0.375, -0.5, -0.25, 0.375, 0.0]


@pytest.mark.parametrize("fraction", [1.0, 0.3])
def test_mirrored_members_sum_to_twice_the_center(fraction: float) -> None:
    theta = torch.randn(50)
    asked = list(evolution.ask(theta, generation(fraction), range(6)))
    for pair in range(3):
        epsilon = evolution.noise(generation(fraction), pair, 50)
        torch.testing.assert_close(asked[2 * pair] - theta, epsilon, atol=1e-6, rtol=0)
        torch.testing.assert_close(theta - asked[2 * pair + 1], epsilon, atol=1e-6, rtol=0)


def test_noise_is_a_function_of_seed_step_and_pair() -> None:
    one = evolution.noise(generation(), 1, 40)
    assert torch.equal(one, evolution.noise(generation(), 1, 40))
    for other in (
        evolution.noise(generation(seed=1), 1, 40),
        evolution.noise(generation(step=1), 1, 40),
        evolution.noise(generation(), 2, 40),
    ):
        assert not torch.equal(one, other)


def test_noise_has_the_deviation_sigma() -> None:
    drawn = evolution.noise(generation(), 0, 200_000)
    assert float(drawn.std()) == pytest.approx(0.02, rel=0.01)
    assert float(drawn.mean()) == pytest.approx(0, abs=2e-4)


@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_the_update_is_equation_8(fraction: float) -> None:
    theta = torch.randn(30, generator=torch.Generator().manual_seed(0))
    now = generation(fraction)
    scores = torch.tensor([0.3, 0.1, 0.3, math.nan, 0.9, 0.2], dtype=torch.double)
    updated = evolution.tell(theta, scores, now)
    epsilons = [evolution.noise(now, pair, 30) for pair in range(3)]
    members = [sign * e for e in epsilons for sign in (1, -1)]
    ranks = reference.centered_ranks(scores.tolist())
    expected = reference.es_update(
        theta.tolist(),
        [m.tolist() for m in members],
        ranks,
        now.settings.learning_rate,
        now.settings.weight_decay,
        0.02,
    )
    moved = torch.stack(epsilons).abs().sum(0) > 0
    torch.testing.assert_close(updated[moved], torch.tensor(expected)[moved])
    # What is not perturbed is neither moved nor decayed.
    assert torch.equal(updated[~moved], theta[~moved])
    assert int(moved.sum()) == math.ceil(fraction * 30)


def test_equal_scores_only_decay() -> None:
    theta = torch.ones(10)
    decayed = evolution.tell(theta, torch.zeros(6), generation())
    torch.testing.assert_close(decayed, theta * (1 - 0.005 * 0.005))


def test_the_ramp_perturbs_one_percent_first_and_all_from_epoch_99() -> None:
    settings = Evolution()
    ramp = [evolution.fraction_perturbed(epoch, settings) for epoch in range(120)]
    assert ramp[0] == 0.01
    assert ramp[99:] == [1.0] * 21
    np.testing.assert_allclose(np.diff(ramp[:100]), 0.01)
    assert evolution.fraction_perturbed(0, replace(settings, ramp_epochs=1)) == 1.0


def test_all_pairs_of_a_step_share_the_perturbed_positions_and_steps_differ() -> None:
    where = [evolution.noise(generation(0.2), pair, 100) != 0 for pair in range(3)]
    assert torch.equal(where[0], where[1])
    assert torch.equal(where[0], where[2])
    assert not torch.equal(where[0], evolution.noise(generation(0.2, step=1), 0, 100) != 0)


def test_named_scores_are_the_core_functions() -> None:
    labels = torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([0, 1, 2, 0, 2, 1])
    counted = surprise.count(*labels, 3)
    assert float(evolution.named_score("surprise", 3)(*labels)) == float(surprise.surprise(counted))
    joint = surprise.joint_counts(*labels, 3)
    assert float(evolution.named_score("orderliness", 3)(*labels)) == float(surprise.orderliness(joint))
    with pytest.raises(ValueError, match="unknown score 'luck'"):
        evolution.named_score("luck", 3)


def test_a_wrong_number_of_scores_is_refused() -> None:
    with pytest.raises(ValueError, match="population of 6"):
        evolution.tell(torch.zeros(3), torch.zeros(5), generation())


def test_evolution_finds_the_top_of_a_hill() -> None:
    """The update itself, on a problem with a known answer: -|x - 3|² over five dimensions."""
    settings = Evolution(population=20, sigma=0.1, learning_rate=0.5, weight_decay=0.0)
    theta = torch.zeros(5)
    for step in range(150):
        now = evolution.Generation(0, step, 1.0, settings)
        scores = torch.tensor([-float(((m - 3) ** 2).sum()) for m in evolution.ask(theta, now, range(20))])
        theta = evolution.tell(theta, scores, now)
    torch.testing.assert_close(theta, torch.full((5,), 3.0), atol=0.3, rtol=0)
