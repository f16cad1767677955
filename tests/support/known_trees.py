"""Items whose tree of clusters is known, as stored features, and a model of their clusters: rounds without training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from converge_to_surprise.config import Config, Network, Views
from converge_to_surprise.model.cluster_model import CalibratedNetwork, Model
from converge_to_surprise.model.hierarchy import Hierarchy, Node, Split
from converge_to_surprise.model.inference import Calibration
from converge_to_surprise.model.network import FeatureNetwork

FEATURES = 6
CENTERS = ((8.0, 0.0), (0.0, 8.0), (-8.0, -8.0))
"""Of the three clusters, in the first two features."""


def tree_items(count: int = 450, seed: int = 0, paired: bool = True) -> tuple[Tensor, np.ndarray]:
    """float16 (N, 2, 3, FEATURES), and the leaf of every item: cluster 0 has two parts, one of them two of its own;
    clusters 1 and 2 have none. Without ``paired`` the two views of an item share nothing but their cluster.
    """
    rng = np.random.default_rng(seed)
    cluster = np.sort(rng.integers(0, 3, count))
    parts = rng.integers(0, 2, (count, 2))
    views = np.zeros((count, 2, 3, FEATURES))
    for side in range(2):
        sub = parts if paired or side == 0 else rng.integers(0, 2, (count, 2))
        views[:, side, :, :2] = np.array(CENTERS)[cluster][:, None]
        views[:, side, :, 2] = np.where(cluster == 0, 4.0 * sub[:, 0] - 2, 0)[:, None]
        views[:, side, :, 3] = np.where((cluster == 0) & (sub[:, 0] == 1), 4.0 * sub[:, 1] - 2, 0)[:, None]
    views += rng.normal(0, 0.3, views.shape)
    leaf = np.where(cluster > 0, cluster + 2, np.where(parts[:, 0] == 0, 0, 1 + parts[:, 1]))
    return torch.from_numpy(views).half(), leaf


def tree_model(items: Tensor, seed: int = 0) -> Model:
    """A model whose clusters are the three of ``tree_items``, by their centers."""
    config = Config(seed=seed, threads=1, views=Views(stored=True), network=Network(inputs=FEATURES), max_clusters=3)
    network = FeatureNetwork(FEATURES, 3)
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.weight[:, :2] = torch.tensor(CENTERS)
        network.head.bias.copy_(-torch.tensor(CENTERS).square().sum(1) / 2)
    network.eval()
    winner = network.logits(items[:, :, 0].float().mean(1)).argmax(-1)
    sizes = tuple(winner.bincount(minlength=3).tolist())
    return Model(config, (2, 1, FEATURES), CalibratedNetwork(network, Calibration(10.0), sizes))


def halved(features: Tensor, path: tuple[int, ...]) -> Split:
    """A split of a node in the middle of the direction in which its features (n, D) vary most."""
    direction = torch.linalg.svd(features - features.mean(0))[2][0]
    along = (features @ direction).sort().values
    middle = along[len(along) // 2 :][:2].mean()  # between two images
    return Split(path, torch.stack([direction, -direction]), torch.stack([-middle, middle]), (0, 1), 20.0)


def with_tree(model: Model, images: Tensor) -> Model:
    """The model with its largest cluster split in two, and one of the halves again."""
    outputs = model.run_all(images, ("features",))
    features, numbers = outputs.features.float(), model.numbers[outputs.winner]
    first = halved(features[numbers == 0], (0,))
    inside = features[(numbers == 0) & (first.labels(features) == 1)]
    node = Node((0,), 1, 30, 10, "split", 2, -30.0, 0.9, 1.0, 20.0, 0.5, 1.9, 0.97, 0.52, 0.5)
    nodes = (node, node._replace(path=(1,), outcome="weak boundary"), node._replace(path=(0, 1), round=2))
    return replace(model, hierarchy=Hierarchy((first, halved(inside, (0, 1))), nodes, True))
