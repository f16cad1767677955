"""From several heads with merged outputs to one head with an output per cluster.

The heads that found nearly the same clusters vote on every image. Then subclusters that were merged into the wrong
cluster are moved: merging is greedy, and a subcluster (an output of some head, say the sevens with a bar) is joined for
good to the cluster it is confused with most, even if its nearest images, by edges or by pixels, belong elsewhere.
Finally one linear layer is fitted to the result, on the backbone that the heads share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from ..config import Config
from ..core import rng
from ..distributed.group import current
from ..model.inference import CHUNK, logits_of, map_augmented_views
from ..model.merge_tree import MergeResult, MergeTree
from ..model.network import ClusterNetwork
from .neighbors import pool_positions

SAMPLE = 10_000
"""Images to which the new head is fitted."""
VOTING_AGREEMENT = 0.9
"""Heads vote if their clusters have at least this adjusted Rand index with those of the selected head."""
RIDGE = 1e-3
"""Weight decay of the fit, so that boundaries follow the bulk of the votes and not single images."""
MIN_SUBCLUSTER = 0.002
"""Subclusters with a smaller fraction of the images are not moved."""
MOVE_RATIO = 1.75
"""A subcluster moves if its neighbors outside it are this many times more often in the other cluster ..."""
MOVE_SIGMAS = 3
"""... and if the difference is this many standard deviations."""

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Evidence(NamedTuple):
    """What the fusion is based on."""

    features: Tensor
    """Both views' features of the images of the pool. (n, 2, D)"""
    neighbors: Tensor
    """Neighbors of each of these images among them. (n, k)"""
    trees: list[MergeTree]
    result: MergeResult


def vote(pooled: Floats, result: MergeResult) -> Integers:
    """The cluster of every image by the votes of the heads that agree with the selected one.

    ``pooled``: for every image and head the weights of its clusters, one column each; NaN where a head has fewer
    clusters. (n, heads, n_clusters)
    """
    reference = pooled[:, result.head]
    total: Floats = reference.copy()
    for head in range(pooled.shape[1]):
        if head == result.head or result.agreement[head] < VOTING_AGREEMENT or np.isnan(pooled[:, head]).any():
            continue
        _, same = linear_sum_assignment(-(reference.T @ pooled[:, head]))
        total += pooled[:, head][:, same]
    winner: Integers = total.argmax(1)
    return winner


def move_subclusters(clusters: Integers, subclusters: Integers, neighbors: Integers) -> Integers:
    """Clusters (n,) after every subcluster moved to the cluster of its neighbors outside it.

    ``subclusters``: the un-merged output of every image under each head. (n, heads) ``neighbors``: positions of every
    image's neighbors. (n, k) Only the smaller half of a cluster moves: the larger one is the cluster.
    """
    clusters = clusters.copy()
    count = int(clusters.max()) + 1
    by_fineness = sorted(range(subclusters.shape[1]), key=lambda head: -len(np.unique(subclusters[:, head])))
    columns = ((subclusters[:, head], value) for head in by_fineness for value in np.unique(subclusters[:, head]))
    for column, value in columns:
        members = column == value
        home = int(np.bincount(clusters[members], minlength=count).argmax())
        members &= clusters == home
        size = int(members.sum())
        rest = int((clusters == home).sum()) - size
        if size < MIN_SUBCLUSTER * len(clusters) or size >= rest:
            continue
        linked = neighbors[members].ravel()
        linked = linked[~members[linked]]
        tally = np.bincount(clusters[linked], minlength=count)
        target = int(tally.argmax())
        clear = tally[target] - tally[home] > MOVE_SIGMAS * np.sqrt(tally[target] + tally[home])
        if clear and tally[target] > MOVE_RATIO * tally[home]:
            clusters[members] = target
    return clusters


@torch.no_grad()
def fuse_heads(
    network: ClusterNetwork, images: Tensor, evidence: Evidence, config: Config, step: int
) -> ClusterNetwork:
    """A network with the same backbone and one head with an output for every cluster."""
    result = evidence.result
    positions = pool_positions(len(images), config.seed)
    pooled, subclusters = _votes(network, evidence, config.relaxed.temperature)
    clusters = move_subclusters(vote(pooled, result), subclusters, evidence.neighbors.numpy())
    generator = rng.torch_generator(config.seed, "condense", step)
    sample = torch.randperm(len(positions), generator=generator)[:SAMPLE]
    chosen = images[positions[sample]]
    features = map_augmented_views(network, chosen, config, generator, network.features).double().numpy()
    weight, bias = fit_head(features, np.tile(clusters[sample.numpy()], 2), max(2, result.n_clusters))
    # Only the direction of the logits matters; this scale keeps Adam's first steps in proportion.
    scale = 0.05 / max(float(weight.std()), 1e-9)
    # Rounded here, because not every device has doubles.
    fused = network.with_head(torch.from_numpy(weight * scale).float(), torch.from_numpy(bias * scale).float())
    current().broadcast_tensors(fused.head.parameters())  # the fit may differ in the last bits between machines
    return fused


def _votes(network: ClusterNetwork, evidence: Evidence, temperature: float) -> tuple[Floats, Integers]:
    """Every head's weights of its clusters (n, heads, n_clusters) and its winning output (n, heads)."""
    n_clusters = evidence.result.n_clusters
    into = torch.full((network.heads, network.n_outputs, n_clusters), torch.nan)
    for head, tree in enumerate(evidence.trees):
        if tree.n_clusters >= n_clusters:
            groups = torch.tensor(tree.groups(n_clusters))
            into[head] = (groups[:, None] == torch.tensor(tree.representatives(n_clusters))).float()

    def soft(features: Tensor) -> Tensor:
        logits = logits_of(network, features).reshape(len(features), network.heads, network.n_outputs)
        return torch.softmax(F.normalize(logits, dim=-1) / temperature, -1)

    pooled, winners = [], []
    for part in torch.split(evidence.features, CHUNK):
        both = (soft(part[:, 0]) + soft(part[:, 1])) / 2
        pooled.append(torch.einsum("nhk,hkc->nhc", both, into))
        winners.append(both.argmax(-1))
    return torch.cat(pooled).double().numpy(), torch.cat(winners).numpy()


def fit_head(features: Floats, labels: Integers, n_outputs: int) -> tuple[Floats, Floats]:
    """Weight (n_outputs, D) and bias (n_outputs,) of the linear layer that separates the labels."""
    weight, bias = np.zeros((n_outputs, features.shape[1])), np.full(n_outputs, -1.0)
    present = np.unique(labels)
    if len(present) < 2:
        bias[present] = 1.0
        return weight, bias
    scaler = StandardScaler().fit(features)
    model = LogisticRegression(C=1 / (2 * RIDGE * len(features)), max_iter=200)
    model.fit(scaler.transform(features), labels)
    coefficients, intercept = model.coef_, model.intercept_
    if len(present) == 2:  # binary logistic regression returns one row; expand it to two
        coefficients, intercept = np.concatenate([-coefficients, coefficients]), np.concatenate([-intercept, intercept])
    weight[present] = coefficients / scaler.scale_
    bias[present] = intercept - weight[present] @ scaler.mean_
    if len(present) == 2:
        # Of two opposite logits normalization leaves only the sign, and every image would be as certain as every other.
        # A constant in both changes no cluster and keeps how far from the boundary an image is.
        bias[present] += np.abs(features @ weight[present[1]] + bias[present[1]]).mean()
    absent = np.setdiff1d(np.arange(n_outputs), present)
    bias[absent] = (features @ weight[present].T + bias[present]).min() - 1  # an output without images never wins
    return weight, bias
