from __future__ import annotations

import numpy as np
import pytest
import torch
from support.neighbor_table import nearest_neighbors

from converge_to_surprise.config import Config, Merge, Network
from converge_to_surprise.core.views import make_views, to_float
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.model.inference import label_views, view_features
from converge_to_surprise.model.merge_tree import MergeResult
from converge_to_surprise.search import merge
from converge_to_surprise.search.co_assignment import CoAssignments
from converge_to_surprise.search.head_fusion import Evidence, fit_head, fuse_heads, move_subclusters, vote


def result_of(head: int, agreement: list[float]) -> MergeResult:
    return MergeResult(2, head, [0, 1], [], {}, [], agreement)


def test_heads_that_agree_vote_and_others_do_not() -> None:
    sure, doubtful = [0.9, 0.1], [0.45, 0.55]
    swapped = [0.1, 0.9]  # the same cluster under another number
    far = [0.0, 1.0]
    # The first two images determine which numbers correspond; the third is the doubtful one.
    pooled = np.array([[sure, sure, swapped, far], [swapped, swapped, sure, far], [doubtful, sure, swapped, far]])
    assert vote(pooled, result_of(0, [1.0, 0.95, 0.95, 0.2])).tolist() == [0, 1, 0]
    assert vote(pooled, result_of(0, [1.0, 0.2, 0.2, 0.2])).tolist() == [0, 1, 1]


def test_a_head_with_fewer_clusters_has_no_vote() -> None:
    pooled = np.array([[[0.9, 0.1], [np.nan, np.nan]]])
    assert vote(pooled, result_of(0, [1.0, 1.0])).tolist() == [0]


def misplaced_subcluster(moved: int, stayed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clusters, subclusters and neighbors of 200 images.

    Each of the first 20 images of cluster 0, a subcluster, has ``moved`` neighbors in cluster 1 and ``stayed`` in the
    rest of cluster 0.
    """
    clusters = np.repeat([0, 1], [100, 100])
    subclusters = np.repeat([5, 6, 7], [20, 80, 100])[:, None]
    neighbors = np.arange(200)[:, None].repeat(moved + stayed, 1)
    neighbors[:20, :moved] = 150
    neighbors[:20, moved:] = 50
    return clusters, subclusters, neighbors


def test_a_subcluster_moves_to_the_cluster_of_its_neighbors() -> None:
    clusters, subclusters, neighbors = misplaced_subcluster(moved=3, stayed=1)
    result = move_subclusters(clusters, subclusters, neighbors)
    assert (result[:20] == 1).all()
    assert (result[20:] == clusters[20:]).all()
    assert (clusters[:20] == 0).all(), "the argument is not changed"


@pytest.mark.parametrize(("moved", "stayed"), [(3, 2), (30, 20), (1, 1), (1, 3)])
def test_a_subcluster_stays_unless_its_neighbors_are_clearly_elsewhere(moved: int, stayed: int) -> None:
    clusters, subclusters, neighbors = misplaced_subcluster(moved, stayed)
    assert (move_subclusters(clusters, subclusters, neighbors) == clusters).all()


def test_neighbors_within_a_subcluster_do_not_count() -> None:
    clusters, subclusters, neighbors = misplaced_subcluster(moved=3, stayed=1)
    within = np.arange(200)[:, None].repeat(10, 1)
    result = move_subclusters(clusters, subclusters, np.concatenate([neighbors, within], 1))
    assert (result[:20] == 1).all()


def test_few_neighbors_are_not_enough_evidence() -> None:
    clusters, subclusters, neighbors = misplaced_subcluster(moved=3, stayed=1)
    neighbors[:18] = np.arange(18)[:, None]
    assert (move_subclusters(clusters, subclusters, neighbors) == clusters).all()


def test_the_larger_half_of_a_cluster_does_not_move() -> None:
    clusters, subclusters, neighbors = misplaced_subcluster(moved=3, stayed=1)
    subclusters[:60] = 5
    neighbors[:60, :3], neighbors[:60, 3:] = 150, 90
    assert (move_subclusters(clusters, subclusters, neighbors) == clusters).all()


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_a_fitted_head_reproduces_the_labels_and_unused_outputs_never_win(classes: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, 300)
    centers = np.array([[6.0, 0], [0, 6], [-6, -6]])
    features = centers[labels] + rng.normal(size=(300, 2)) + 40
    weight, bias = fit_head(features, labels * 2, 6)
    assert ((features @ weight.T + bias).argmax(1) == labels * 2).mean() > 0.98


def test_the_fused_network_has_an_output_for_every_cluster_and_labels_like_the_head(small: Config) -> None:
    """Two clusters that are separated by a threshold on one feature; the other outputs of the head never win."""
    images, _ = striped_images(300)
    network = random_network(Config(seed=0, max_clusters=4, network=Network(width=4)), 1, 1).train()
    view, _ = make_views(to_float(images), small.views)
    with torch.no_grad():
        for _ in range(40):  # running statistics, as after a search
            features = network.features(view)
        feature = int(features.std(0).argmax())
        network.head.weight.zero_()
        network.head.weight[:2, feature] = torch.tensor([1.0, -1.0])
        middle = float(network.eval().features(view)[:, feature].median())
        network.head.bias.copy_(torch.tensor([-middle, middle, -99.0, -99.0]))
    labels, _ = label_views(network, images, small.views)
    assert 50 < int(labels.sum()) < 250
    trees = [merge.build_merge_tree(np.diag([5.0, 5.0, 0.0, 0.0]), Merge())]
    neighbor_pairs = torch.diag(torch.tensor([5.0, 5.0, 0.0, 0.0]))[None]
    counts = CoAssignments.of_one_width(neighbor_pairs.numpy())
    trees, result = merge.select_head(trees, counts, labels[:, None].numpy(), Config())
    assert result.n_clusters == 2
    features = view_features(network, images, small.views)
    evidence = Evidence(features, nearest_neighbors(images, small, 1), trees, result)
    fused = fuse_heads(network, images, evidence, small, 0)
    assert (fused.heads, fused.n_outputs) == (1, 2)
    weights = "units.0.conv.weight"
    assert torch.equal(fused.get_parameter(weights), network.get_parameter(weights))
    found, _ = label_views(fused, images, small.views)
    assert float((found == labels).double().mean()) > 0.8


def test_two_clusters_keep_the_distance_from_their_boundary() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    features = np.stack([6.0 * labels - 3, np.zeros(200)], 1) + rng.normal(size=(200, 2))
    weight, bias = fit_head(features, labels, 2)
    logits = features @ weight.T + bias
    normalized = logits / np.linalg.norm(logits, axis=1, keepdims=True)
    margins, certain = logits[:, 1] - logits[:, 0], normalized[:, 1] - normalized[:, 0]
    assert ((margins > 0) == (labels == 1)).mean() > 0.99
    near = np.abs(margins) < np.median(np.abs(margins))
    assert np.abs(certain[near]).mean() < 0.9 * np.abs(certain[~near]).mean()
