from __future__ import annotations

import math

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from converge_to_surprise.core import conditional, surprise

LABELS = 3

Nested = tuple[list[int], list[int], list[int]]


@st.composite
def nested_labels(draw: st.DrawFn, longest: int = 30, nodes: int = 3) -> Nested:
    """Sub-labels of two views, from unrelated to equal, and the node of each image."""
    n = draw(st.integers(1, longest))
    numbers = st.lists(st.integers(0, LABELS - 1), min_size=n, max_size=n)
    first, other = draw(numbers), draw(numbers)
    same = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    inside = draw(st.lists(st.integers(0, nodes - 1), min_size=n, max_size=n))
    return first, [a if equal else b for a, b, equal in zip(first, other, same, strict=True)], inside


def split(labels: Nested) -> dict[int, conditional.NodeLabels]:
    return conditional.by_node(*map(torch.tensor, labels))


def explained(labels: Nested) -> float:
    return sum(conditional.explained(sides, LABELS) for sides in split(labels).values())


@given(nested_labels())
def test_conditional_surprise_and_orderliness_agree_with_slow_loops(labels: Nested) -> None:
    found = split(labels)
    counts = conditional.counts_by_node(found, LABELS)
    assert conditional.conditional_surprise(counts) == pytest.approx(
        reference.conditional_surprise(*labels, LABELS), rel=1e-10, abs=1e-12
    )
    assert conditional.conditional_orderliness(found, LABELS, 0.01) == pytest.approx(
        reference.conditional_orderliness(*labels, 0.01), rel=1e-9
    )


@given(nested_labels())
def test_each_node_counts_only_its_own_images(labels: Nested) -> None:
    for node, counts in conditional.counts_by_node(split(labels), LABELS).items():
        inside = [n for n, other in enumerate(labels[2]) if other == node]
        alone = [[side[n] for n in inside] for side in labels[:2]]
        expected = reference.cluster_surprises(*alone, LABELS)
        np.testing.assert_allclose(surprise.cluster_surprise(counts), expected, rtol=1e-10, atol=1e-12)
        assert counts.total == len(inside)


@given(nested_labels())
def test_explained_nats_are_the_log_likelihood_ratio(labels: Nested) -> None:
    assert explained(labels) == pytest.approx(reference.likelihood_ratio(*labels), rel=1e-9, abs=1e-9)


@given(nested_labels(longest=20), st.data())
def test_the_nats_of_rounds_add_up(labels: Nested, data: st.DataObject) -> None:
    """Chain rule: three rounds, each within the nodes of the one before, explain as much as the whole tree at once.

    If an image's node is part of both labels, the labels share all of H(node), and then what they share within it.
    """
    first, second, nodes = labels
    n = len(nodes)
    pair = (
        [a * LABELS + b for a, b in zip(first, nodes, strict=True)],
        [a * LABELS + b for a, b in zip(second, nodes, strict=True)],
    )
    whole = conditional.explained(conditional.NodeLabels(*map(torch.tensor, pair)), LABELS * LABELS)
    assert whole == pytest.approx(n * reference.entropy(nodes) + explained(labels), rel=1e-9, abs=1e-9)
    deeper = [LABELS * node + label for node, label in zip(nodes, first, strict=True)]
    third = [data.draw(st.integers(0, LABELS - 1)) for _ in range(n)]
    in_all = [label * LABELS + sub for label, sub in zip(deeper, third, strict=True)]
    deepest = conditional.explained(conditional.NodeLabels(torch.tensor(in_all), torch.tensor(in_all)), LABELS**3)
    steps = n * reference.entropy(nodes) + explained((first, first, nodes)) + explained((third, third, deeper))
    assert deepest == pytest.approx(steps, rel=1e-9, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(nested_labels(longest=6, nodes=1))
def test_the_p_value_is_that_of_all_permutations(labels: Nested) -> None:
    first, second, _ = labels
    used = sorted({*first, *second})
    tails = [float(reference.permutation_p_value(first, second, label)) for label in used]
    expected = 1.0 if len(used) < 2 else min(1.0, min(tails) * (len(used) if len(used) > 2 else 1))
    counts = surprise.count(torch.tensor(first), torch.tensor(second), LABELS)
    assert math.exp(conditional.log_p_value(counts)) == pytest.approx(expected, rel=1e-9)


def test_two_sub_labels_are_fishers_exact_test() -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 2, 200)
    second = np.where(rng.random(200) < 0.3, first, rng.integers(0, 2, 200))
    joint = np.zeros((2, 2), int)
    np.add.at(joint, (first, second), 1)
    found = conditional.log_p_value(surprise.count(torch.tensor(first), torch.tensor(second), 2))
    assert found == pytest.approx(math.log(fisher_exact(joint, alternative="greater").pvalue), rel=1e-9)


def test_the_p_value_of_many_images_does_not_underflow() -> None:
    labels = torch.arange(20_000) % 4
    found = conditional.log_p_value(surprise.count(labels, labels, 4))
    assert -math.inf < found < -10_000


def test_independent_sub_labels_are_rarely_rejected() -> None:
    """The level holds: over 2,000 trials in which H1 is true no more p-values are small than there should be."""
    rng = np.random.default_rng(1)
    logs = []
    for _ in range(2000):
        shares = rng.dirichlet(np.ones(3))
        labels = [torch.tensor(rng.choice(3, 80, p=shares)) for _ in range(2)]
        logs.append(conditional.log_p_value(surprise.count(*labels, 3)))
    for level in (0.01, 0.05, 0.2):
        assert np.mean(np.array(logs) <= math.log(level)) <= level + 3 * math.sqrt(level / 2000)


@given(st.lists(st.floats(-30, 0), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_lies_between_one_test_and_bonferroni(logs: list[float]) -> None:
    adjusted = conditional.holm(logs)
    for one, after in zip(logs, adjusted, strict=True):
        assert one <= after <= min(0.0, max(logs) + math.log(len(logs))) + 1e-12 or after == max(adjusted)
        assert after <= 0
    assert adjusted[int(np.argmin(logs))] == pytest.approx(min(0.0, min(logs) + math.log(len(logs))))
    order = np.argsort(logs, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()
