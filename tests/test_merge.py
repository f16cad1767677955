from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.config import Config, Merge
from converge_to_surprise.learn import merge
from converge_to_surprise.learn.network import ResNet9, fresh_network


def test_phi_by_hand() -> None:
    table = np.array([[40.0, 10.0], [10.0, 40.0]])
    assert merge.phi(table, 0, 1) == pytest.approx((40 * 40 - 10 * 10) / (50 * 50))
    assert merge.phi(np.diag([5.0, 9.0]), 0, 1) == 1.0
    assert merge.phi(np.ones((2, 2)), 0, 1) == 0.0
    assert merge.phi(np.zeros((2, 2)), 0, 1) == 0.0


def three_classes_four_clusters() -> np.ndarray:
    """Clusters 0 and 3 are halves of one class and are confused with each other; 1 and 2 are clean; 4 is empty."""
    table = np.zeros((6, 6))
    table[0, 0] = table[3, 3] = 60
    table[0, 3] = table[3, 0] = 40
    table[1, 1], table[2, 2] = 200, 150
    table[1, 2] = table[2, 1] = 2
    table[5, 5], table[5, 2] = 0.5, 0.5
    return table


def test_the_weakest_border_goes_first_and_tiny_clusters_before_it() -> None:
    tree = merge.merge_tree(three_classes_four_clusters(), smallest=0.005)
    assert tree.joins[0][:2] == (2, 5)
    assert set(tree.joins[1][:2]) == {0, 3}
    assert tree.clusters == 4
    assert len(tree.joins) == 4
    assert tree.groups(3)[0] == tree.groups(3)[3]
    assert len({tree.groups(3)[k] for k in (0, 1, 2, 3, 5)}) == 3
    assert len({tree.groups(1)[k] for k in (0, 1, 2, 3, 5)}) == 1
    assert tree.border(4) == pytest.approx((60 * 60 - 40 * 40) / (100 * 100))
    assert tree.border(3) > 0.95


@given(st.integers(2, 8), st.integers(0, 999))
def test_a_tree_joins_everything_once(clusters: int, seed: int) -> None:
    joint = np.random.default_rng(seed).integers(0, 30, (clusters, clusters)).astype(float)
    tree = merge.merge_tree(joint, 0.01)
    alive = int(((joint + joint.T).sum(1) > 0).sum())
    assert len(tree.joins) == max(0, alive - 1)
    gone = [join.gone for join in tree.joins]
    assert len(set(gone)) == len(gone)
    for left in range(1, tree.clusters + 1):
        groups = tree.groups(left)
        present = {groups[k] for k in range(clusters) if (joint + joint.T).sum(1)[k] > 0}
        assert len(present) == left


def heads_that_agree_at_three() -> tuple[torch.Tensor, np.ndarray]:
    """Three heads see the same three classes; each has split a different one of them in two."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 3, 900)
    joints, columns = [], []
    for head in range(3):
        labels = classes.copy()
        labels[(classes == head) & (rng.random(900) < 0.5)] = 3
        table = np.zeros((8, 8))
        for k in range(4):
            table[k, k] = 100
        table[head, 3] = table[3, head] = 45
        joints.append(table)
        columns.append(labels)
    return torch.from_numpy(np.stack(joints)), np.stack(columns, 1)


def test_heads_are_cut_where_they_agree() -> None:
    joint, labels = heads_that_agree_at_three()
    choice = merge.choose(joint, labels, Config())
    assert choice.clusters == 3
    assert choice.agreement[3] == pytest.approx(1.0)
    assert choice.groups[3] == choice.groups[choice.head]


def test_a_border_below_the_weakest_is_given_up_even_if_heads_agree_on_it() -> None:
    table = np.diag([100.0] * 4)
    table[0, 3] = table[3, 0] = 80  # phi = 0.11
    joint = torch.from_numpy(np.stack([table] * 3))
    labels = np.tile(np.arange(4)[:, None], (50, 3))
    assert merge.choose(joint, labels, Config()).clusters == 3
    assert merge.choose(joint, labels, Config(merge=Merge(weakest=-1))).clusters in (2, 3, 4)


def test_a_single_head_is_cut_at_borders_that_hold() -> None:
    joint, labels = heads_that_agree_at_three()
    choice = merge.choose(joint[:1], labels[:, :1], Config())
    assert (choice.head, choice.clusters, choice.agreement) == (0, 3, {})


def test_one_cluster_everywhere_stays_one() -> None:
    table = np.zeros((4, 4))
    table[2, 2] = 50
    choice = merge.choose(torch.from_numpy(np.stack([table, table])), np.full((20, 2), 2), Config())
    assert choice.clusters == 1


def test_the_kept_head_labels_as_before_with_its_outputs_grouped() -> None:
    network = fresh_network(1, 5, 2, heads=3, seed=0).eval()
    choice = merge.Choice(head=1, clusters=2, groups=[0, 0, 2, 2, 2], joins=[], agreement={})
    single = merge.keep_head(network, choice).eval()
    images = torch.rand(20, 1, 8, 8)
    torch.testing.assert_close(single.logits(images), network.logits(images)[:, 1])
    winners = network.logits(images)[:, 1].argmax(-1)
    assert single.label(single.logits(images)).tolist() == [choice.groups[w] for w in winners.tolist()]


def test_co_assignments_count_every_pair_once(bars: torch.Tensor, small: Config) -> None:
    network: ResNet9 = fresh_network(1, 6, 2, heads=2, seed=0)
    joint = merge.co_assignments(network, bars, small, 0)
    assert joint.shape == (2, 6, 6)
    assert joint.sum((1, 2)).tolist() == [small.merge.pairs] * 2
    assert torch.equal(joint, merge.co_assignments(network, bars, small, 0))


def test_of_cuts_that_are_agreed_on_equally_well_the_finest_is_taken() -> None:
    joint, labels = heads_that_agree_at_three()
    agreement = merge.choose(joint, labels, Config()).agreement
    assert agreement[2] == pytest.approx(1.0), "two clusters are agreed on as well as three"
    assert merge.choose(joint, labels, Config(merge=Merge(tolerance=1.0, weakest=-1))).clusters == 4
