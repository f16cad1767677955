"""From several heads with merged outputs to one head whose outputs are the clusters.

The heads that found nearly the same clusters vote on every image, and one linear layer is fitted to their votes on the
trunk that they share.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from ..config import Config
from ..core.augment import augment
from ..core.views import make_views, to_float
from . import randomness
from .labelling import CHUNK, over_views
from .merge import Choice, Tree
from .network import ResNet9, channels_last

SAMPLE = 10_000
"""Images to whose votes the new head is fitted."""
LIKE_MINDED = 0.9
"""Heads whose clusters have this adjusted Rand index with the chosen head's have a vote."""
RIDGE = 1e-3
"""Weight decay of the fit: borders follow the bulk of the votes, not single images."""

Votes = npt.NDArray[np.float64]


def vote(soft: Votes, trees: list[Tree], choice: Choice) -> npt.NDArray[np.int64]:
    """The cluster of every image, 0 to choice.clusters - 1, as the like-minded heads see it.

    ``soft``: the softmax of every head's outputs. (n, heads, K)
    """
    reference = _pooled(soft[:, choice.head], trees[choice.head], choice.clusters, choice.outputs)
    total: Votes = reference.copy()
    for head, tree in enumerate(trees):
        if head == choice.head or choice.agreement[head] < LIKE_MINDED or tree.clusters < choice.clusters:
            continue
        pooled = _pooled(soft[:, head], tree, choice.clusters)
        _, same = linear_sum_assignment(-(reference.T @ pooled))
        total += pooled[:, same]
    winner: npt.NDArray[np.int64] = total.argmax(1)
    return winner


def _pooled(soft: Votes, tree: Tree, clusters: int, outputs: list[int] | None = None) -> Votes:
    """Softmax over outputs as one over clusters. (n, clusters)"""
    groups = np.array(tree.groups(clusters))
    outputs = outputs or sorted(set(groups[tree.alive]))
    return np.stack([soft[:, groups == output].sum(1) for output in outputs], axis=1)


@torch.no_grad()
def condense(network: ResNet9, images: Tensor, trees: list[Tree], choice: Choice, config: Config, step: int) -> ResNet9:
    """A network with the same trunk and one head with an output for every cluster."""
    generator = randomness.torch_generator(config.seed, "condense", step)
    sample = images[torch.randperm(len(images), generator=generator)[:SAMPLE]]

    def soft(views: Tensor) -> Tensor:
        outputs = network(views).reshape(len(views), network.heads, network.clusters)
        return torch.softmax(outputs / config.relaxed.temperature, -1)

    votes = torch.cat([((i + j) / 2).cpu() for i, j in over_views(network, sample, config.views, soft)])
    labels = vote(votes.double().numpy(), trees, choice)
    features = _augmented_features(network, sample, config, generator)
    single = ResNet9(network.channels, max(2, choice.clusters), network.width, folded=network.folded)
    trunk = {name: value for name, value in network.state_dict().items() if not name.startswith("head.")}
    single.load_state_dict(trunk, strict=False)
    weight, bias = fit_head(features, np.concatenate([labels, labels]), single.clusters)
    # Only the direction of the logits counts; this size keeps Adam's first steps proportionate.
    size = 0.05 / max(float(weight.std()), 1e-9)
    single.head.weight.copy_(torch.from_numpy(weight * size))
    single.head.bias.copy_(torch.from_numpy(bias * size))
    return single.to(network.head.weight.device)


def _augmented_features(network: ResNet9, images: Tensor, config: Config, generator: torch.Generator) -> Votes:
    """Features of view i of all images, then of view j, augmented as in training. (2 n, 8 width)"""
    device = next(network.parameters()).device
    network.eval()
    gathered: list[list[Tensor]] = [[], []]
    for part in torch.split(images, CHUNK):
        for side, view in enumerate(make_views(to_float(part.to(device)), config.views, generator)):
            features = network.features(channels_last(augment(view, config.augmentation, generator)))
            gathered[side].append(features.cpu())
    network.train()
    return torch.cat([*gathered[0], *gathered[1]]).double().numpy()


def fit_head(features: Votes, labels: npt.NDArray[np.int64], outputs: int) -> tuple[Votes, Votes]:
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
    if len(present) == 2:  # one border is told by one row; give each side its own
        coefficients, intercept = np.concatenate([-coefficients, coefficients]), np.concatenate([-intercept, intercept])
    weight[present] = coefficients / scaler.scale_
    bias[present] = intercept - weight[present] @ scaler.mean_
    absent = np.setdiff1d(np.arange(outputs), present)
    bias[absent] = (features @ weight[present].T + bias[present]).min() - 1  # an output without images never wins
    return weight, bias
