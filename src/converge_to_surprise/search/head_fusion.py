"""From several heads with merged outputs to one head whose outputs are the clusters.

The heads that found nearly the same clusters vote on every image. Then parts that were merged into the wrong cluster
are moved: merging is greedy, and a part (an output of some head, say the sevens with a bar) is joined for good to what
it is confused with most, though the images next to it say otherwise. At last one linear layer is fitted to the result,
on the backbone that the heads share.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from ..config import Config
from ..core import rng as randomness
from ..distributed.group import SINGLE, ProcessGroup
from ..model.inference import CHUNK, outputs_of, over_augmented
from ..model.network import ClusterNetwork
from .merge import MergeResult, MergeTree
from .neighbors import pool_positions

SAMPLE = 10_000
"""Images to whose clusters the new head is fitted."""
LIKE_MINDED = 0.9
"""Heads whose clusters have this adjusted Rand index with the chosen head's have a vote."""
RIDGE = 1e-3
"""Weight decay of the fit: boundaries follow the bulk of the votes, not single images."""
SMALLEST_PART = 0.002
"""Parts with a smaller share of the images are not looked at."""
FAVOR = 1.75
"""A part moves if this many times as many of its neighbors outside it are in another cluster ..."""
SIGMAS = 3
"""... and if the difference is this many standard deviations."""

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


def vote(pooled: Floats, choice: MergeResult) -> Numbers:
    """The cluster of every image as the like-minded heads see it.

    ``pooled``: for every image and head the weights of its clusters, one column each; NaN where a head has fewer
    clusters. (n, heads, clusters)
    """
    reference = pooled[:, choice.head]
    total: Floats = reference.copy()
    for head in range(pooled.shape[1]):
        if head == choice.head or choice.agreement[head] < LIKE_MINDED or np.isnan(pooled[:, head]).any():
            continue
        _, same = linear_sum_assignment(-(reference.T @ pooled[:, head]))
        total += pooled[:, head][:, same]
    winner: Numbers = total.argmax(1)
    return winner


def move_subclusters(clusters: Numbers, parts: Numbers, links: Numbers) -> Numbers:
    """Clusters (n,) after every part went where its neighbors outside it are.

    ``parts``: the un-merged output of every image under each head. (n, heads) ``links``: positions of every image's
    neighbors. (n, k) A part moves only if it is the smaller half of its cluster: otherwise it is the cluster.
    """
    clusters = clusters.copy()
    count = int(clusters.max()) + 1
    by_fineness = sorted(range(parts.shape[1]), key=lambda head: -len(np.unique(parts[:, head])))
    for column, part in ((parts[:, head], part) for head in by_fineness for part in np.unique(parts[:, head])):
        members = column == part
        home = int(np.bincount(clusters[members], minlength=count).argmax())
        members &= clusters == home
        size = int(members.sum())
        rest = int((clusters == home).sum()) - size
        if size < SMALLEST_PART * len(clusters) or size >= rest:
            continue
        linked = links[members].ravel()
        linked = linked[~members[linked]]
        tally = np.bincount(clusters[linked], minlength=count)
        there = int(tally.argmax())
        clear = tally[there] - tally[home] > SIGMAS * np.sqrt(tally[there] + tally[home])
        if clear and tally[there] > FAVOR * tally[home]:
            clusters[members] = there
    return clusters


@torch.no_grad()
def condense(
    network: ClusterNetwork,
    images: Tensor,
    seen: Tensor,
    neighbors: Tensor,
    trees: list[MergeTree],
    choice: MergeResult,
    config: Config,
    step: int,
    world: ProcessGroup = SINGLE,
) -> ClusterNetwork:
    """A network with the same backbone and one head with an output for every cluster.

    ``seen``: both views' features of the images of the pool (n, 2, D).
    """
    positions = pool_positions(len(images), config.seed)
    place = torch.full((len(images),), -1)
    place[positions] = torch.arange(len(positions))
    pooled, parts = _votes(network, seen, trees, choice, config.relaxed.temperature)
    clusters = move_subclusters(vote(pooled, choice), parts, place[neighbors[positions]].numpy())
    generator = randomness.torch_generator(config.seed, "condense", step)
    sample = torch.randperm(len(positions), generator=generator)[:SAMPLE]
    chosen = images[positions[sample]]
    features = over_augmented(network, chosen, config, generator, network.features, world).double().numpy()
    weight, bias = fit_head(features, np.tile(clusters[sample.numpy()], 2), max(2, choice.clusters))
    # Only the direction of the logits counts; this size keeps Adam's first steps proportionate.
    size = 0.05 / max(float(weight.std()), 1e-9)
    # Rounded here: not every device knows doubles.
    single = network.with_head(torch.from_numpy(weight * size).float(), torch.from_numpy(bias * size).float())
    world.broadcast(single.head.parameters())  # a fit need not end the same on machines of two kinds
    return single


def _votes(
    network: ClusterNetwork, seen: Tensor, trees: list[MergeTree], choice: MergeResult, temperature: float
) -> tuple[Floats, Numbers]:
    """What every head says of images of which both views' features were seen (n, 2, D): weights of its clusters
    (n, heads, clusters) and its output (n, heads).
    """
    into = torch.full((network.heads, network.clusters, choice.clusters), torch.nan)
    for head, tree in enumerate(trees):
        if tree.clusters >= choice.clusters:
            groups = torch.tensor(tree.groups(choice.clusters))
            into[head] = (groups[:, None] == torch.tensor(tree.representatives(choice.clusters))).float()

    def soft(features: Tensor) -> Tensor:
        outputs = outputs_of(network, features).reshape(len(features), network.heads, network.clusters)
        return torch.softmax(F.normalize(outputs, dim=-1) / temperature, -1)

    pooled, parts = [], []
    for part in torch.split(seen, CHUNK):
        both = (soft(part[:, 0]) + soft(part[:, 1])) / 2
        pooled.append(torch.einsum("nhk,hkc->nhc", both, into))
        parts.append(both.argmax(-1))
    return torch.cat(pooled).double().numpy(), torch.cat(parts).numpy()


def fit_head(features: Floats, labels: Numbers, outputs: int) -> tuple[Floats, Floats]:
    """Weight (outputs, D) and bias (outputs,) of the linear layer that tells the labels apart."""
    weight, bias = np.zeros((outputs, features.shape[1])), np.full(outputs, -1.0)
    present = np.unique(labels)
    if len(present) < 2:
        bias[present] = 1.0
        return weight, bias
    scaler = StandardScaler().fit(features)
    model = LogisticRegression(C=1 / (2 * RIDGE * len(features)), max_iter=200)
    model.fit(scaler.transform(features), labels)
    coefficients, intercept = model.coef_, model.intercept_
    if len(present) == 2:  # one boundary is told by one row; give each side its own
        coefficients, intercept = np.concatenate([-coefficients, coefficients]), np.concatenate([-intercept, intercept])
    weight[present] = coefficients / scaler.scale_
    bias[present] = intercept - weight[present] @ scaler.mean_
    absent = np.setdiff1d(np.arange(outputs), present)
    bias[absent] = (features @ weight[present].T + bias[present]).min() - 1  # an output without images never wins
    return weight, bias
