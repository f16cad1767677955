"""Where heads start: clusterings of the neighbor graph at several granularities.

A clustering of the graph of nearest neighbors takes seconds and is right for most images of many collections. Each head
first imitates one of them, from coarse to fine, and then goes on by itself: it begins as the linear discriminant of the
clusters and is trained by cross-entropy. So the numbers of clusters with which a search begins come from the
collection, and a head that is made to hold too many clusters loses those that the views of an image do not agree on.
After some search the graph of the learned features is clustered again: it is far purer than that of pixels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from scipy import sparse
from sknetwork.clustering import Louvain
from torch import Tensor

from ..config import Config
from ..config.settings import MAX_OUTPUTS
from ..core import rng
from ..model.network import ClusterNetwork
from .copies import members

RIDGE = 1e-2
"""Fraction of the mean variance that is added to every direction in a discriminant."""
HEAD_SCALE = 0.04
"""Standard deviation of a discriminant's weights. Only the direction of the logits matters; this scale keeps Adam's
first steps in proportion."""
Floats = npt.NDArray[np.float64]
UNASSIGNED = -1
"""Target of images whose cluster has no output."""


def resolutions(config: Config) -> Floats:
    """The resolution of the clustering that each head starts from: equal ratios from the first to the last. (heads,)"""
    first, last = config.relaxed.resolutions
    heads = config.relaxed.heads
    return np.geomspace(first, last, heads) if heads > 1 else np.array([np.sqrt(first * last)])


def cluster_graph(neighbors: Tensor, copies: Tensor, config: Config, step: int, least: float = 0.0) -> Tensor:
    """Clusters of every image by modularity at the resolution of each head, the largest cluster first. (N, heads)

    ``neighbors``: (N, k); two images are linked if one is a neighbor of the other. ``copies``: the first image of each
    image's group of near-duplicates (N,); a group is one node of the graph and has the links of its first image.
    If the coarsest clustering has fewer than ``least`` clusters, all resolutions are raised by the same factor.
    """
    leaders, own = members(copies)
    linked = own[neighbors[leaders]].numpy()
    count, degree = linked.shape
    rows = np.repeat(np.arange(count), degree)
    links = sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, linked.ravel())), (count, count))
    links = links.maximum(links.T)
    # Another order of the images for every head: what depends on the order differs between heads.
    seeds = [
        int(torch.randint(2**31, (), generator=rng.torch_generator(config.seed, "graph", step, head)))
        for head in range(config.relaxed.heads)
    ]
    scale = resolutions(config)
    found = _by_modularity(links, scale, seeds)
    if (factor := finer(entropies(found).exp().double().numpy(), scale, least)) > 1:
        found = _by_modularity(links, factor * scale, seeds)
    return found[own]


def _by_modularity(links: sparse.csr_matrix, scale: Floats, seeds: Sequence[int]) -> Tensor:
    """The clustering of a graph at each resolution. (nodes, resolutions)"""
    found = []
    for resolution, seed in zip(scale, seeds, strict=True):
        clusters = Louvain(resolution, shuffle_nodes=True, random_state=seed).fit_predict(links)
        sizes = np.bincount(clusters)
        rank = np.empty_like(sizes)
        rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
        found.append(rank[clusters])
    return torch.from_numpy(np.stack(found, 1))


def finer(numbers: Floats, scale: Floats, least: float) -> float:
    """The factor by which to raise resolutions so that the first clustering has at least ``least`` clusters.

    ``numbers``: effective numbers of clusters at the resolutions ``scale``, between which they are interpolated.

    >>> scale = np.array([0.5, 1.0, 2.0, 4.0])
    >>> finer(np.array([10.0, 20.0, 40.0, 80.0]), scale, 15), finer(np.array([10.0, 20.0, 40.0, 80.0]), scale, 8)
    (1.5, 1.0)
    """
    if least <= numbers[0]:
        return 1.0
    grown = np.maximum.accumulate(numbers)
    distinct = np.concatenate([[True], np.diff(grown) > 0])
    wanted = np.interp(least, grown[distinct], scale[distinct])
    return float(wanted / scale[0])


def fit_outputs(network: ClusterNetwork, targets: Tensor, grow: bool) -> tuple[ClusterNetwork, Tensor]:
    """A network and targets (N, heads) that fit each other.

    If the finest clustering has more clusters than the heads have outputs, the network grows. Without ``grow`` the
    smallest clusters have no output.
    """
    needed = int(targets.max()) + 1
    if needed <= network.n_outputs:
        return network, targets
    if grow:
        network = network.grown(min(needed, MAX_OUTPUTS))
    return network, torch.where(targets < network.n_outputs, targets, UNASSIGNED)


def entropies(targets: Tensor) -> Tensor:
    """The entropy in nats of each clustering (N, heads). (heads,)"""
    found = []
    for column in targets.unbind(1):
        share = column[column != UNASSIGNED].bincount().double() / len(column)
        found.append(torch.special.entr(share).sum())
    return torch.stack(found).float()


@torch.no_grad()
def discriminant_heads(network: ClusterNetwork, features: Tensor, targets: Tensor) -> ClusterNetwork:
    """A copy of the network whose first heads are Fisher's linear discriminants of their targets.

    In closed form: gradient steps from other weights would first have to unlearn an earlier clustering, whose clusters
    had other numbers. ``features``: of augmented views (n, D); ``targets`` of their images (n, heads).
    """
    points = features.double().cpu()
    mean = points.mean(0)
    weight, bias = (value.detach().double().cpu().clone() for value in (network.head.weight, network.head.bias))
    for head, column in enumerate(targets.unbind(1)):
        rows = slice(head * network.n_outputs, (head + 1) * network.n_outputs)
        known = column != UNASSIGNED
        lines, offsets = _discriminant(points[known] - mean, column[known], network.n_outputs)
        scale = HEAD_SCALE / max(float(lines.std()), 1e-12)
        weight[rows] = scale * lines
        bias[rows] = scale * (offsets - lines @ mean)
    return network.with_heads(weight.float(), bias.float(), network.heads)  # rounded here: not every device has doubles


def _discriminant(points: Tensor, clusters: Tensor, n_outputs: int) -> tuple[Tensor, Tensor]:
    """Weights (n_outputs, D) and biases (n_outputs,) of the linear discriminant of points (n, D).

    The logits of the clusters that have points sum to 0 and those of the other outputs are 0, so that they never win.
    """
    members = F.one_hot(clusters, n_outputs).to(points)  # (n, K)
    sizes = members.sum(0)
    used = sizes > 0
    means = members.t() @ points / sizes.clamp(min=1)[:, None]
    within = points - means[clusters]
    scatter = within.t() @ within / len(points)
    ridge = RIDGE * scatter.diagonal().mean().clamp(min=1e-12)
    weight = torch.linalg.solve(scatter + ridge * torch.eye(len(scatter)).to(scatter), means.t()).t()
    bias = -(weight * means).sum(1) / 2
    weight, bias = (value - value[used].mean(0) for value in (weight, bias))
    weight[~used], bias[~used] = 0.0, 0.0
    return weight, bias


def imitation_loss(outputs: Tensor, targets: Tensor, scale: float, images: int) -> Tensor:
    """Cross-entropy of the normalized logits of both views to the clusters of their images, summed over the heads.

    ``outputs``: (2 B, heads, K), views i before views j; ``targets``: (B, heads); ``images``: B of the whole batch, of
    which these images may be a part.
    """
    both = torch.cat([targets, targets])
    loss = F.cross_entropy(scale * outputs.flatten(0, 1), both.flatten(), ignore_index=UNASSIGNED, reduction="sum")
    return loss / (2 * images)
