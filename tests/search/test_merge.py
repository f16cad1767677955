from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.config import Config, Merge, Network
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.search import merge
from converge_to_surprise.search.neighbors import alike


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
    tree = merge.build_merge_tree(three_classes_four_clusters(), smallest=0.005)
    assert tree.joins[0][:2] == (2, 5)
    assert set(tree.joins[1][:2]) == {0, 3}
    assert tree.clusters == 4
    assert len(tree.joins) == 4
    assert tree.groups(3)[0] == tree.groups(3)[3]
    assert len({tree.groups(3)[k] for k in (0, 1, 2, 3, 5)}) == 3
    assert len({tree.groups(1)[k] for k in (0, 1, 2, 3, 5)}) == 1
    assert tree.boundary(4) == pytest.approx((60 * 60 - 40 * 40) / (100 * 100))
    assert tree.boundary(3) > 0.95


@given(st.integers(2, 8), st.integers(0, 999))
def test_a_tree_joins_everything_once(clusters: int, seed: int) -> None:
    joint = np.random.default_rng(seed).integers(0, 30, (clusters, clusters)).astype(float)
    tree = merge.build_merge_tree(joint, 0.01)
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


def choose(joint: torch.Tensor, labels: np.ndarray, settings: Merge) -> merge.MergeResult:
    trees = [merge.build_merge_tree(table.numpy(), settings.smallest) for table in joint]
    return merge.choose(trees, joint, labels, settings)


def test_trees_are_cut_where_the_weakest_border_falls() -> None:
    joint, labels = heads_that_agree_at_three()
    choice = choose(joint, labels, Merge())
    assert choice.clusters == 3
    assert choice.outputs == [0, 1, 2] or len(choice.outputs) == 3
    assert choice.boundaries[3] == pytest.approx(1.0)
    assert choice.boundaries[4] < 0.9
    assert choice.agreement == pytest.approx([1.0] * 3)


@pytest.mark.parametrize("clusters", [2, 4])
def test_the_user_can_say_where_to_cut(clusters: int) -> None:
    joint, labels = heads_that_agree_at_three()
    assert choose(joint, labels, Merge(clusters=clusters)).clusters == clusters


def test_more_clusters_than_there_are_means_no_merging() -> None:
    joint, labels = heads_that_agree_at_three()
    choice = choose(joint, labels, Merge(clusters=64))
    assert (choice.clusters, choice.outputs) == (4, [0, 1, 2, 3])


def test_a_late_rise_of_the_curve_does_not_move_the_cut() -> None:
    curve = dict.fromkeys(range(2, 11), 0.95) | {k: 0.84 - 0.01 * (k - 11) for k in range(11, 22)}
    assert merge.cut(curve, 0.075) == 10
    assert merge.cut(curve | {22: 0.80}, 0.075) == 10


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0, 1))
def test_a_cut_is_one_of_the_numbers_on_the_curve(values: list[float], drop: float) -> None:
    curve = dict(enumerate(values, start=2))
    assert merge.cut(curve, drop) in curve


def test_without_borders_there_is_one_cluster() -> None:
    assert merge.cut({}, 0.1) == 1


def test_the_head_that_keeps_neighbors_together_and_that_others_confirm_is_taken() -> None:
    rng = np.random.default_rng(1)
    classes = rng.integers(0, 3, 600)
    lonely = rng.integers(0, 3, 600)
    labels = np.stack([lonely, classes, classes], 1)
    strong, weak = np.diag([100.0, 100.0, 100.0]), np.full((3, 3), 10.0) + np.diag([70.0] * 3)
    trees = [merge.build_merge_tree(np.diag([100.0] * 3), 0.005)] * 3
    informed = merge.choose(trees, torch.from_numpy(np.stack([strong, weak, strong])), labels, Merge())
    assert informed.head == 2
    assert informed.information[2] == pytest.approx(np.log(3))
    assert informed.agreement[1] == pytest.approx(1.0)
    alone = merge.choose(trees, torch.from_numpy(np.stack([strong] * 3)), labels, Merge())
    assert alone.head == 1, "all know as much; head 0 stands alone"


def test_a_head_with_too_few_clusters_is_not_taken() -> None:
    joint, labels = heads_that_agree_at_three()
    poor = np.zeros((8, 8))
    poor[0, 0] = poor[1, 1] = 200
    both = torch.cat([torch.from_numpy(poor)[None], joint])
    assert choose(both, np.concatenate([np.minimum(labels[:, :1], 1), labels], 1), Merge(clusters=3)).head != 0


def test_nor_is_it_if_no_head_knows_anything() -> None:
    trees = [merge.build_merge_tree(np.diag(counts), 0.005) for counts in ([9.0, 9.0, 0.0], [9.0, 9.0, 9.0])]
    labels = np.stack([np.arange(30) % 2, np.arange(30) % 3], 1)
    assert merge.choose(trees, torch.ones(2, 3, 3), labels, Merge(clusters=3)).head == 1


def test_one_cluster_everywhere_stays_one() -> None:
    table = np.zeros((4, 4))
    table[2, 2] = 50
    choice = choose(torch.from_numpy(np.stack([table, table])), np.full((20, 2), 2), Merge())
    assert choice.clusters == 1


def test_grouped_counts_keep_their_sum() -> None:
    joint = torch.arange(16).reshape(4, 4)
    result = merge.grouped(joint, [0, 0, 2, 0])
    assert result[0, 0] == joint[[0, 1, 3]][:, [0, 1, 3]].sum()
    assert result[2, 2] == joint[2, 2]
    assert result[0, 2] == joint[[0, 1, 3], 2].sum()
    assert result.sum() == joint.sum()


def test_one_head_labels_as_it_did_among_the_others() -> None:
    network = random_network(Config(seed=0, max_clusters=5, network=Network(width=2, space_to_depth=True)), 1, 3).eval()
    images = torch.rand(20, 1, 8, 8)
    torch.testing.assert_close(network.select_head(1).eval().logits(images), network.logits(images)[:, 1])


def test_trials_count_every_pair_once(bars: torch.Tensor, small: Config) -> None:
    network = random_network(Config(seed=0, max_clusters=6, network=Network(width=2)), 1, 2)
    neighbors = alike(None, bars, small, 1)
    trial = merge.count_boundary_pairs(network, bars, neighbors, small, 0)
    most = merge.PAIRS_PER_IMAGE * len(bars)
    wide, neighbor_pairs = (min(most, pairs) for pairs in (small.merge.augmented_pairs, small.merge.neighbor_pairs))
    for counts, pairs in zip(trial, (wide, neighbor_pairs), strict=True):
        assert counts.shape == (2, 6, 6)
        assert counts.sum((1, 2)).tolist() == [pairs] * 2
    again = merge.count_boundary_pairs(network, bars, neighbors, small, 0)
    assert all(torch.equal(a, b) for a, b in zip(trial, again, strict=True))
