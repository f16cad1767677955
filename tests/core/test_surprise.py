from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import binom
from torch import Tensor

from converge_to_surprise.core import surprise

CLUSTERS = 5


@st.composite
def label_pairs(draw: st.DrawFn, clusters: int = CLUSTERS, longest: int = 40) -> tuple[list[int], list[int]]:
    """Two sequences that range from unrelated to equal, collapse included."""
    n = draw(st.integers(1, longest))
    label = st.integers(0, draw(st.integers(0, clusters - 1)))
    first = draw(st.lists(label, min_size=n, max_size=n))
    copied = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    other = draw(st.lists(label, min_size=n, max_size=n))
    return first, [a if same else b for a, b, same in zip(first, other, copied, strict=True)]


def score(pair: tuple[list[int], list[int]], clusters: int = CLUSTERS) -> float:
    return float(surprise.surprise(counts(pair, clusters)))


def counts(pair: tuple[list[int], list[int]], clusters: int = CLUSTERS) -> surprise.Counts:
    return surprise.count(torch.tensor(pair[0]), torch.tensor(pair[1]), clusters)


@given(label_pairs())
def test_surprise_agrees_with_the_paper(pair: tuple[list[int], list[int]]) -> None:
    expected = reference.cluster_surprises(*pair, CLUSTERS)
    np.testing.assert_allclose(surprise.cluster_surprise(counts(pair)), expected, rtol=1e-10, atol=1e-12)
    assert score(pair) == pytest.approx(reference.surprise(*pair, CLUSTERS), rel=1e-10, abs=1e-12)


@given(label_pairs(), st.sampled_from([0.0, 0.005, 0.1, 0.3]))
def test_contributing_positions_agree_with_the_paper(pair: tuple[list[int], list[int]], tau: float) -> None:
    flags = surprise.surprising(counts(pair), tau)
    chosen = surprise.contributing(torch.tensor(pair[0]), torch.tensor(pair[1]), flags)
    assert torch.nonzero(chosen)[:, 0].tolist() == reference.contributing(*pair, CLUSTERS, tau)


def test_hand_computed_score() -> None:
    # Two clusters, half each, perfect agreement: q = 1/4, observed 1/2, twice.
    pair = ([0, 0, 1, 1], [0, 0, 1, 1])
    each = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert score(pair, 2) == pytest.approx(2 * each)
    # No match at all: every cluster under-matches.
    assert score(([0, 0, 1, 1], [1, 1, 0, 0]), 2) == 0.0


def test_tau_alone_is_not_enough_without_over_matching() -> None:
    """With tau = 0 a cluster that matches less than by chance is still not surprising."""
    pair = ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    assert not bool(surprise.surprising(counts(pair), 0.0).any())


@given(label_pairs(), st.permutations(range(CLUSTERS)))
def test_relabeling_changes_nothing(pair: tuple[list[int], list[int]], names: list[int]) -> None:
    renamed = ([names[a] for a in pair[0]], [names[b] for b in pair[1]])
    assert score(renamed) == pytest.approx(score(pair), rel=1e-12, abs=1e-12)


@given(label_pairs(), st.randoms(use_true_random=False))
def test_the_order_of_samples_changes_nothing(pair: tuple[list[int], list[int]], rng: object) -> None:
    order = list(range(len(pair[0])))
    rng.shuffle(order)  # type: ignore[attr-defined]
    assert score(([pair[0][i] for i in order], [pair[1][i] for i in order])) == score(pair)


@given(label_pairs())
def test_swapping_the_views_changes_nothing(pair: tuple[list[int], list[int]]) -> None:
    assert score((pair[1], pair[0])) == score(pair)
    joint = surprise.joint_counts(torch.tensor(pair[0]), torch.tensor(pair[1]), CLUSTERS)
    assert float(surprise.orderliness(joint)) == pytest.approx(float(surprise.orderliness(joint.t())))


@given(st.integers(1, 50), st.integers(0, CLUSTERS - 1))
def test_collapse_is_not_surprising(n: int, cluster: int) -> None:
    pair = ([cluster] * n, [cluster] * n)
    assert score(pair) == 0.0
    joint = surprise.joint_counts(torch.tensor(pair[0]), torch.tensor(pair[1]), CLUSTERS)
    assert float(surprise.orderliness(joint)) == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_independent_labels_are_hardly_surprising(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    first, second = (torch.randint(0, 8, (20_000,), generator=generator) for _ in range(2))
    assert float(surprise.surprise(surprise.count(first, second, 8))) < 1e-3
    assert float(surprise.orderliness(surprise.joint_counts(first, second, 8))) < 1.01


@given(label_pairs(), st.sampled_from([1e-6, 1e-3, 0.5]))
def test_orderliness_agrees_with_the_paper_and_is_at_least_one(
    pair: tuple[list[int], list[int]], smoothing: float
) -> None:
    joint = surprise.joint_counts(torch.tensor(pair[0]), torch.tensor(pair[1]), CLUSTERS)
    value = float(surprise.orderliness(joint, smoothing))
    assert value >= 1
    assert value == pytest.approx(max(1.0, reference.orderliness(*pair, smoothing)), rel=1e-6)


@given(label_pairs(longest=25))
@settings(max_examples=40)
def test_exact_tail_agrees_with_fractions_and_respects_the_chernoff_bound(pair: tuple[list[int], list[int]]) -> None:
    counted = counts(pair)
    nats = surprise.surprise_in_nats(counted)
    for k in range(CLUSTERS):
        null = Fraction(int(counted.first[k] + counted.second[k]), 2 * counted.total) ** 2
        expected = reference.tail_in_nats(int(counted.matches[k]), counted.total, null)
        assert float(nats[k]) == pytest.approx(expected, rel=1e-8, abs=1e-9)
    bound = counted.total * surprise.cluster_surprise(counted)
    assert bool((nats >= bound - 1e-9).all())


@pytest.mark.parametrize("matches", [1, 400, 2_490, 2_500, 2_510, 3_000, 9_000, 10_000])
def test_terms_far_from_the_bulk_of_a_tail_do_not_matter(matches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 images, each a match with probability 1/4: 600 terms on either side are 14 standard deviations."""
    half = torch.tensor([5_000])
    counted = surprise.Counts(half, half, torch.tensor([matches]), 10_000)
    whole = max(0.0, -logsumexp(binom.logpmf(np.arange(matches, 10_001), 10_000, 0.25)))
    assert float(surprise.surprise_in_nats(counted)) == whole
    monkeypatch.setattr(surprise, "REACH", 600)
    assert float(surprise.surprise_in_nats(counted)) == pytest.approx(whole, rel=1e-12, abs=1e-12)


def test_the_tail_of_a_billion_images_takes_little_memory() -> None:
    tenth = torch.tensor([10**8])
    counted = surprise.Counts(tenth, tenth, torch.tensor([10**7 + 30_000]), 10**9)
    deviations = 30_000 / (10**9 * 0.01 * 0.99) ** 0.5
    assert float(surprise.surprise_in_nats(counted)) == pytest.approx(deviations**2 / 2, rel=0.1)


def test_the_exact_tail_does_not_underflow() -> None:
    labels = torch.arange(60_000) % 10
    nats = surprise.surprise_in_nats(surprise.count(labels, labels, 10))
    counted = surprise.count(labels, labels, 10)
    assert bool(nats.isfinite().all())
    assert bool((nats > 745).all()), "the probability itself is 0 in floating point"
    assert bool((nats >= counted.total * surprise.cluster_surprise(counted)).all())


@given(st.lists(label_pairs(longest=12), min_size=1, max_size=4))
def test_a_population_is_counted_at_once(pairs: list[tuple[list[int], list[int]]]) -> None:
    n = min(len(first) for first, _ in pairs)
    first = torch.tensor([a[:n] for a, _ in pairs])
    second = torch.tensor([b[:n] for _, b in pairs])
    together = surprise.count(first, second, CLUSTERS)
    joint = surprise.joint_counts(first, second, CLUSTERS)
    for index, (a, b) in enumerate(pairs):
        alone = counts((a[:n], b[:n]))
        for field in ("first", "second", "matches"):
            assert torch.equal(getattr(together, field)[index], getattr(alone, field))
        assert float(surprise.surprise(together)[index]) == float(surprise.surprise(alone))
        assert int(surprise.active(together)[index]) == int(surprise.active(alone))
        assert float(surprise.agreement(together)[index]) == pytest.approx(np.mean(np.equal(a[:n], b[:n])))
        assert torch.equal(joint[index].sum(1), alone.first)
        assert torch.equal(joint[index].diagonal(), alone.matches)


def test_marginal_is_the_share_of_all_views() -> None:
    assert surprise.marginal(counts(([0, 0, 1], [0, 2, 1]), 3)).tolist() == pytest.approx([1 / 2, 1 / 3, 1 / 6])


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (torch.zeros(3, dtype=torch.long), torch.zeros(4, dtype=torch.long), "differ in shape"),
        (torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long), "empty"),
        (torch.tensor([0, 9]), torch.tensor([0, 1]), "from 0 to 9"),
        (torch.tensor([0, -1]), torch.tensor([0, 1]), "from -1"),
    ],
)
def test_wrong_labels_are_refused(first: Tensor, second: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        surprise.count(first, second, CLUSTERS)
    with pytest.raises(ValueError, match=message):
        surprise.joint_counts(first, second, CLUSTERS)
