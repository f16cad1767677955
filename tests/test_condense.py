from __future__ import annotations

import numpy as np
import pytest
import torch

from converge_to_surprise.config import Config, Merge, Network
from converge_to_surprise.learn import merge
from converge_to_surprise.learn.condense import condense, fit_head, vote
from converge_to_surprise.learn.network import fresh_network


def choice(clusters: int, head: int, outputs: list[int], agreement: list[float]) -> merge.Choice:
    return merge.Choice(clusters, head, outputs, [], {}, [], agreement)


def tree(tables: list[float]) -> merge.Tree:
    return merge.merge_tree(np.diag(tables), 0.005)


def test_like_minded_heads_vote_and_others_do_not() -> None:
    trees = [tree([5.0, 5.0, 0.0])] * 4
    sure, doubtful = [0.9, 0.1, 0.0], [0.45, 0.55, 0.0]
    swapped = [0.1, 0.9, 0.0]  # the same clusters under other numbers
    far = [0.0, 1.0, 0.0]
    # The first two images settle which numbers mean the same; the third is the one in doubt.
    soft = np.array(
        [[sure, sure, swapped, far], [swapped, swapped, sure, far], [doubtful, sure, swapped, far]], dtype=float
    )
    assert vote(soft, trees, choice(2, 0, [0, 1], [1.0, 0.95, 0.95, 0.2])).tolist() == [0, 1, 0]
    assert vote(soft, trees, choice(2, 0, [0, 1], [1.0, 0.2, 0.2, 0.2])).tolist() == [0, 1, 1]


def test_merged_outputs_vote_together() -> None:
    joint = np.diag([50.0, 50.0, 100.0])
    joint[0, 1] = joint[1, 0] = 40
    single = merge.merge_tree(joint, 0.005)
    soft = np.array([[[0.3, 0.3, 0.4]]])
    outputs = sorted({single.groups(2)[k] for k in (0, 1, 2)})
    assert vote(soft, [single], choice(2, 0, outputs, [1.0])).tolist() == [0]


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_a_fitted_head_repeats_the_labels_and_unused_outputs_never_win(classes: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, 300)
    centres = np.array([[6.0, 0], [0, 6], [-6, -6]])
    features = centres[labels] + rng.normal(size=(300, 2)) + 40
    weight, bias = fit_head(features, labels * 2, 6)
    assert ((features @ weight.T + bias).argmax(1) == labels * 2).mean() > 0.98


def test_the_condensed_network_has_an_output_for_every_cluster_and_labels_like_the_heads(
    bars: torch.Tensor, small: Config
) -> None:
    network = fresh_network(1, Network(clusters=4, width=4), heads=2, seed=0)
    trees = [tree([5.0] * 4)] * 2
    picked = merge.choose(trees, torch.eye(4)[None].expand(2, 4, 4) * 5, np.arange(4)[:, None].repeat(2, 1), Merge())
    single = condense(network, bars, trees, picked, small, 0)
    assert (single.heads, single.clusters) == (1, 4)
    assert torch.equal(single.units[0].conv.weight, network.units[0].conv.weight)
