"""Linear heads that count only within their node: the relaxed surprise conditional on the cluster of an image.

Every node has its own heads on its own half-whitened features: what separates the clusters from each other has little
variance within one of them. All nodes are trained in one step, each on images of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core import rng
from ..core.surprise import divergence
from ..model.encoder import Projection
from .graph_start import UNASSIGNED
from .node_bank import COPIES, ViewBank
from .relaxed import learning_rate

OUTPUTS = 8
"""Outputs of a head: the most sub-clusters that a node can be split into at once."""
COMPONENTS = 32
"""Principal components of a node's features that its heads take."""
BATCH = 128
"""Images of each node in a step."""
IMITATING, SEARCHING = 150, 350
"""Steps towards clusterings of the neighbor graph of each node, then on the surprise."""
TEMPERATURE = 0.1
"""Of the softmax: on features that are not trained any more a lower one finds sub-clusters that do not hold."""
LEARNING_RATE = 2e-2
LOGIT_SCALE = 10.0
"""Factor on the normalized logits in the imitation."""
SIDES = 2


class NodeImages(NamedTuple):
    """The images of one node on which its heads are trained."""

    rows: Tensor
    """Their places in the bank. (n,)"""
    neighbors: Tensor
    """Neighbors of each, as places in ``rows``. (n, k)"""
    targets: Tensor
    """The cluster of the node's neighbor graph that each head imitates. (n, heads)"""
    alike: Tensor
    """Images that look most alike and are no copies of each, as places in ``rows``. (n, k)"""


class NodeHeads(NamedTuple):
    """Heads of several nodes on the features of the bank."""

    weight: Tensor
    """(nodes, heads, OUTPUTS, D)"""
    bias: Tensor
    """(nodes, heads, OUTPUTS)"""

    def labels(self, node: int, features: Tensor) -> Tensor:
        """The winning outputs of the heads of a node for features (..., D). (..., heads)"""
        return (torch.einsum("...d,hkd->...hk", features, self.weight[node]) + self.bias[node]).argmax(-1)


def relaxed_surprise_by_node(soft_i: Tensor, soft_j: Tensor) -> Tensor:
    """S of soft assignments (nodes, heads, B, K) within each node. (nodes, heads)

    As ``relaxed.relaxed_surprise``, with all means taken over the images of one node.
    """
    matches = (soft_i * soft_j).mean(2)
    null = ((soft_i + soft_j) / 2).mean(2).square()
    over = matches > null
    # The unused branch must not produce 0/0 in the gradient.
    observed = torch.where(over, matches, 0.5).clamp(max=1 - 1e-6)
    expected = torch.where(over, null, 0.5).clamp(1e-12, 1 - 1e-6)
    return torch.where(over, divergence(observed, expected), 0.0).sum(-1)


def train_heads(bank: ViewBank, nodes: Sequence[NodeImages], neighbor_prob: float, seed: int) -> NodeHeads:
    """Heads of all nodes at once: first towards the clusterings of their graphs, then up the conditional surprise."""
    projections = [Projection.fit(bank.augmented[node.rows].flatten(0, 2), COMPONENTS) for node in nodes]
    width = max(projection.directions.shape[1] for projection in projections)
    heads = nodes[0].targets.shape[1]
    generator = rng.torch_generator(seed, "node heads")
    drawn = torch.randn(len(nodes), heads, OUTPUTS, width, generator=generator)
    weight = (0.1 * drawn).requires_grad_()
    bias = torch.zeros(len(nodes), heads, OUTPUTS, requires_grad=True)
    for stage, steps in enumerate((IMITATING, SEARCHING)):
        optimizer = torch.optim.Adam([weight, bias], lr=LEARNING_RATE)
        for step in range(steps):
            batch = _batch(bank, nodes, projections, neighbor_prob, rng.torch_generator(seed, "node step", stage, step))
            logits = torch.einsum("nbsd,nhkd->snhbk", batch.features, weight) + bias[:, :, None]
            outputs = F.normalize(logits, dim=-1)
            if stage == 0:
                loss = _imitation(outputs, batch.targets)
            else:
                soft_i, soft_j = torch.softmax(outputs / TEMPERATURE, -1)
                loss = -relaxed_surprise_by_node(soft_i, soft_j).sum()
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(LEARNING_RATE, step, step / steps)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return _unprojected(weight.detach(), bias.detach(), projections)


class _Batch(NamedTuple):
    features: Tensor
    """Projected features of view i and of view j. (nodes, B, 2, components)"""
    targets: Tensor
    """(nodes, B, heads)"""


def _batch(
    bank: ViewBank,
    nodes: Sequence[NodeImages],
    projections: Sequence[Projection],
    neighbor_prob: float,
    generator: torch.Generator,
) -> _Batch:
    """Two views of images of every node; view j may be that of a neighbor within the node."""
    features, targets = [], []
    width = max(projection.directions.shape[1] for projection in projections)
    for node, projection in zip(nodes, projections, strict=True):
        chosen = torch.randint(len(node.rows), (BATCH,), generator=generator)
        column = torch.randint(node.neighbors.shape[1], (BATCH,), generator=generator)
        nearby = torch.rand(BATCH, generator=generator) < neighbor_prob
        partner = torch.where(nearby, node.neighbors[chosen, column], chosen)
        # Which view is view i, and which of the copies for the search.
        side = torch.randint(SIDES, (BATCH,), generator=generator)
        copies = torch.randint(COPIES - 1, (2, BATCH), generator=generator)
        view_i = bank.augmented[node.rows[chosen], side, copies[0]]
        view_j = bank.augmented[node.rows[partner], 1 - side, copies[1]]
        both = (torch.stack([view_i, view_j], 1) - projection.mean) @ projection.directions
        features.append(F.pad(both, (0, width - both.shape[-1])))
        targets.append(node.targets[chosen])
    return _Batch(torch.stack(features), torch.stack(targets))


def _imitation(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of both views (2, nodes, heads, B, K) to the clusters of their images (nodes, B, heads), summed
    over nodes and heads.
    """
    wanted = targets.transpose(1, 2).expand(2, -1, -1, -1)
    loss = F.cross_entropy(
        LOGIT_SCALE * outputs.flatten(0, 3), wanted.flatten(), ignore_index=UNASSIGNED, reduction="sum"
    )
    return loss / (2 * BATCH)


def _unprojected(weight: Tensor, bias: Tensor, projections: Sequence[Projection]) -> NodeHeads:
    """The same heads on features before their projection."""
    weights, biases = [], []
    for rows, offsets, (mean, directions) in zip(weight, bias, projections, strict=True):
        full = rows[..., : directions.shape[1]] @ directions.t()
        weights.append(full)
        biases.append(offsets - full @ mean)
    return NodeHeads(torch.stack(weights), torch.stack(biases))
