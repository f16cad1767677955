from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.config import Config, Merge, Network
from converge_to_surprise.core.surprise import mutual_information
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.model.merge_tree import MergeResult, MergeTree
from converge_to_surprise.search import merge
from converge_to_surprise.search.co_assignment import CoAssignments


@given(st.integers(2, 7), st.integers(0, 999))
def test_a_lost_information_is_the_difference_before_and_after_the_merge(clusters: int, seed: int) -> None:
    table = np.random.default_rng(seed).integers(1, 30, (clusters, clusters)).astype(float)
    table += table.T
    losses, sizes = merge.information_losses(table), table.sum(1) / table.sum()
    for a, b in itertools.combinations(range(clusters), 2):
        groups = [a if k == b else k for k in range(clusters)]
        merged = merge.grouped(torch.from_numpy(table), groups)
        lost = mutual_information(torch.from_numpy(table)) - mutual_information(merged)
        assert losses[a, b] * np.sqrt(sizes[a] * sizes[b] / (sizes[a] + sizes[b])) == pytest.approx(float(lost))


def test_the_merge_that_loses_least_information_comes_first() -> None:
    """Two large clusters are confused most; merging the small one loses less information all the same."""
    table = np.array([[390.0, 10.0, 0.1], [10.0, 390.0, 0.1], [0.1, 0.1, 8.0]])
    assert 2 in merge.build_merge_tree(table, Merge(min_cluster_fraction=0)).steps[0][:2]


def three_classes_four_clusters() -> np.ndarray:
    """Clusters 0 and 3 are halves of one class and are confused with each other; 1 and 2 are clean; 4 is empty."""
    table = np.zeros((6, 6))
    table[0, 0] = table[3, 3] = 60
    table[0, 3] = table[3, 0] = 40
    table[1, 1], table[2, 2] = 200, 150
    table[1, 2] = table[2, 1] = 2
    table[5, 5], table[5, 2] = 0.5, 0.5
    return table


def test_tiny_clusters_are_merged_first_and_then_those_that_are_confused() -> None:
    tree = merge.build_merge_tree(three_classes_four_clusters(), Merge())
    assert tree.steps[0][:2] == (2, 5)
    assert set(tree.steps[1][:2]) == {0, 3}
    assert tree.n_clusters == 4
    assert len(tree.steps) == 4
    assert tree.groups(3)[0] == tree.groups(3)[3]
    assert len({tree.groups(3)[k] for k in (0, 1, 2, 3, 5)}) == 3
    assert len({tree.groups(1)[k] for k in (0, 1, 2, 3, 5)}) == 1


@given(st.integers(2, 8), st.integers(0, 999))
def test_a_tree_merges_every_active_output_once(clusters: int, seed: int) -> None:
    joint = np.random.default_rng(seed).integers(0, 30, (clusters, clusters)).astype(float)
    tree = merge.build_merge_tree(joint, Merge(min_cluster_fraction=0.01))
    active = int(((joint + joint.T).sum(1) > 0).sum())
    assert len(tree.steps) == max(0, active - 1)
    merged = [step.merged for step in tree.steps]
    assert len(set(merged)) == len(merged)
    for left in range(1, tree.n_clusters + 1):
        groups = tree.groups(left)
        present = {groups[k] for k in range(clusters) if (joint + joint.T).sum(1)[k] > 0}
        assert len(present) == left


def heads_that_agree_at_three() -> tuple[torch.Tensor, np.ndarray]:
    """Three heads find the same three classes; each has split a different one of them in two."""
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


def merge_and_select(joint: torch.Tensor, labels: np.ndarray, config: Config) -> MergeResult:
    trees = [merge.build_merge_tree(table.numpy(), config.merge) for table in joint]
    return select(trees, joint, labels, config)


def select(trees: list[MergeTree], neighbor_pairs: torch.Tensor, labels: np.ndarray, config: Config) -> MergeResult:
    counts = CoAssignments.of_one_width(neighbor_pairs.numpy())
    return merge.select_head(trees, counts, labels, config).result


def test_trees_are_cut_where_all_splits_hold() -> None:
    joint, labels = heads_that_agree_at_three()
    result = merge_and_select(joint, labels, Config())
    assert result.n_clusters == 3
    assert result.outputs == [0, 1, 2]
    assert result.strengths[3] == pytest.approx(1.0)
    assert result.strengths[4] < 0.3, "no other head has the fourth cluster"
    assert result.agreement == pytest.approx([1.0] * 3)
    assert result.levels[0].n_clusters == 3
    assert result.levels[0].agreement == pytest.approx(1.0)
    assert result.levels[0].evidence > 1


@pytest.mark.parametrize("n_clusters", [2, 4])
def test_the_user_can_choose_the_number_of_clusters(n_clusters: int) -> None:
    joint, labels = heads_that_agree_at_three()
    assert merge_and_select(joint, labels, Config(n_clusters=n_clusters)).n_clusters == n_clusters


def test_nothing_is_merged_if_more_clusters_are_requested_than_found() -> None:
    joint, labels = heads_that_agree_at_three()
    result = merge_and_select(joint, labels, Config(n_clusters=64))
    assert (result.n_clusters, result.outputs) == (4, [0, 1, 2, 3])


def test_the_head_that_keeps_neighbors_together_and_agrees_with_the_others_is_selected() -> None:
    rng = np.random.default_rng(1)
    classes = rng.integers(0, 3, 600)
    unrelated = rng.integers(0, 3, 600)
    labels = np.stack([unrelated, classes, classes], 1)
    strong, weak = np.diag([100.0, 100.0, 100.0]), np.full((3, 3), 10.0) + np.diag([70.0] * 3)
    trees = [merge.build_merge_tree(np.diag([100.0] * 3), Merge())] * 3
    informed = select(trees, torch.from_numpy(np.stack([strong, weak, strong])), labels, Config(n_clusters=3))
    assert informed.head == 2
    assert informed.information[2] == pytest.approx(np.log(3))
    assert informed.agreement[1] == pytest.approx(1.0)
    equal = select(trees, torch.from_numpy(np.stack([strong] * 3)), labels, Config(n_clusters=3))
    assert equal.head == 1, "all have the same information; head 0 agrees with no other"


def test_a_head_with_too_few_clusters_is_not_selected() -> None:
    joint, labels = heads_that_agree_at_three()
    poor = np.zeros((8, 8))
    poor[0, 0] = poor[1, 1] = 200
    both = torch.cat([torch.from_numpy(poor)[None], joint])
    result = merge_and_select(both, np.concatenate([np.minimum(labels[:, :1], 1), labels], 1), Config(n_clusters=3))
    assert result.head != 0


def test_it_is_not_selected_even_if_no_head_has_any_information() -> None:
    trees = [merge.build_merge_tree(np.diag(counts), Merge()) for counts in ([9.0, 9.0, 0.0], [9.0, 9.0, 9.0])]
    labels = np.stack([np.arange(30) % 2, np.arange(30) % 3], 1)
    assert select(trees, torch.ones(2, 3, 3), labels, Config(n_clusters=3)).head == 1


def test_a_single_cluster_stays_one() -> None:
    table = np.zeros((4, 4))
    table[2, 2] = 50
    result = merge_and_select(torch.from_numpy(np.stack([table, table])), np.full((20, 2), 2), Config())
    assert (result.n_clusters, result.outputs) == (1, [0])


def test_the_kind_of_heads_that_tells_more_about_neighbors_is_selected() -> None:
    """Two heads with four clusters that neighbors confuse, and two with three clear ones, compared at four clusters."""
    rng = np.random.default_rng(2)
    classes = rng.integers(0, 4, 800)
    unclear, clear = np.full((4, 4), 15.0) + np.diag([100.0] * 4), np.diag([100.0] * 4)
    pairs = torch.from_numpy(np.stack([unclear, unclear, clear, clear]))
    counts = CoAssignments.of_one_width(pairs.numpy())
    labels, kinds = np.stack([classes] * 4, 1), [range(2), range(2, 4)]
    assert merge.select_kind(counts, labels, kinds, Config(n_clusters=4)).heads == range(2, 4)
    swapped = CoAssignments.of_one_width(pairs.flip(0).numpy())
    assert merge.select_kind(swapped, labels, kinds, Config(n_clusters=4)).heads == range(2)
    same = CoAssignments.of_one_width(np.stack([clear] * 4))
    assert merge.select_kind(same, labels, kinds, Config(n_clusters=4)).heads == range(2), "of equal ones the first"
    # Where neighbors mislead, the heads that did not start from them are selected.
    by_agreement = Config(n_clusters=4, merge=Merge(number_by="agreement"))
    assert merge.select_kind(swapped, labels, kinds, by_agreement).heads == range(2, 4)
    # With either, only if not even two clusters hold.
    either = Config(n_clusters=4, merge=Merge(number_by="either"))
    assert merge.select_kind(swapped, labels, kinds, either).heads == range(2)
    weak = np.full((4, 4), 40.0) + np.diag([60.0] * 4)
    doubtful = CoAssignments.of_one_width(np.stack([unclear, unclear, weak, weak]))
    assert merge.select_kind(doubtful, labels, kinds, Config(n_clusters=4)).heads == range(2)
    assert merge.select_kind(doubtful, labels, kinds, either).heads == range(2, 4)


def test_a_kind_is_cut_by_its_own_heads_and_compared_at_the_larger_number() -> None:
    """Heads of chance do not count against those of the other kind; fewer clusters are no advantage."""
    rng = np.random.default_rng(3)
    classes = rng.integers(0, 4, 800)
    chance = [rng.integers(0, 4, 800) for _ in range(2)]
    coarse = np.kron(np.eye(2), np.full((2, 2), 50.0))  # as clear as the others at two clusters, and not beyond
    fine = np.diag([100.0] * 4)
    pairs = torch.from_numpy(np.stack([coarse, coarse, fine, fine]))
    counts = CoAssignments.of_one_width(pairs.numpy())
    kind = merge.select_kind(counts, np.stack([*chance, classes, classes], 1), [range(2), range(2, 4)], Config())
    assert kind.heads == range(2, 4)
    assert kind.selection.result.n_clusters == 4
    assert kind.selection.result.agreement == pytest.approx([1.0, 1.0]), "of the heads of its kind"


@pytest.mark.parametrize(("disorder", "selected"), [(0.06, range(2, 4)), (0.5, range(2))])
def test_a_later_kind_is_not_cut_to_fewer_clusters_than_the_first(disorder: float, selected: range) -> None:
    """Heads that tell more about neighbors, but hold two clusters only by themselves, beside heads that hold four: they
    are cut to four, unless that splits them as noise would.
    """
    rng = np.random.default_rng(4)
    classes = rng.integers(0, 4, 800)
    halves = [np.where(rng.random(800) < disorder, classes ^ 1, classes) for _ in range(2)]
    plain, more = np.full((4, 4), 2.0) + np.diag([100.0] * 4), np.diag([100.0] * 4)
    pairs = torch.from_numpy(np.stack([plain, plain, more, more]))
    counts = CoAssignments.of_one_width(pairs.numpy())
    labels, kinds = np.stack([classes, classes, *halves], 1), [range(2), range(2, 4)]
    alone = merge.select_kind(counts, labels, kinds[1:], Config()).selection.result
    assert alone.n_clusters == 2
    kind = merge.select_kind(counts, labels, kinds, Config())
    assert kind.heads == selected
    assert kind.selection.result.n_clusters == kind.selection.result.levels[0].n_clusters == 4
    assert (2 in [level.n_clusters for level in kind.selection.result.levels]) == (selected == range(2, 4))


def test_grouped_counts_keep_their_sum() -> None:
    joint = torch.arange(16).reshape(4, 4)
    result = merge.grouped(joint, [0, 0, 2, 0])
    assert result[0, 0] == joint[[0, 1, 3]][:, [0, 1, 3]].sum()
    assert result[2, 2] == joint[2, 2]
    assert result[0, 2] == joint[[0, 1, 3], 2].sum()
    assert result.sum() == joint.sum()


@pytest.mark.parametrize(("crossing", "small_apart"), [(16, False), (40, True), (160, True)])
def test_a_boundary_between_large_classes_is_given_up_only_if_it_is_weak(crossing: int, small_apart: bool) -> None:
    """At three clusters either the two large classes are apart, which some pairs cross, or a few images, whose boundary
    none crosses. That of the large ones tells more up to about 100 pairs, but must hold nearly as well.
    """
    sizes = np.array([400, 400, 380, 20])
    table = np.diag(sizes.astype(float))
    table[0, 1] = table[1, 0] = crossing
    table[[0, 1], [0, 1]] -= crossing
    counts = CoAssignments.of_one_width(np.stack([table] * 2))
    labels = np.stack([np.repeat(np.arange(4), sizes)] * 2, 1)
    result = merge.select_kind(counts, labels, [range(2)], Config(n_clusters=3)).selection
    groups = result.trees[0].groups(3)
    assert (groups[0] == groups[1], groups[2] == groups[3]) == (small_apart, not small_apart)


def test_a_selected_head_has_the_same_logits_as_among_the_others() -> None:
    network = random_network(Config(seed=0, max_clusters=5, network=Network(width=2, space_to_depth=True)), 1, 3).eval()
    images = torch.rand(20, 1, 8, 8)
    torch.testing.assert_close(network.select_head(1).eval().logits(images), network.logits(images)[:, 1])
