"""How much of the sharpness of a head on stored features is memory of its training images.

A head on the features of a frozen backbone was fitted to the images that confidence is calibrated on, and it tells
views of them apart better than views of other images. How much better is measured without classes: heads are fitted to
the clusters of two thirds of the images, and their sharpness on these is compared with that on the other third.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import Config
from ..core import rng
from ..core.views import make_views, to_float
from .confidence import DRAWS, sharpness_of

FOLDS = 3
STEPS = 300
BATCH = 500
LEARNING_RATE = 5e-3
TEMPERATURE = 0.15
"""Of the softmax of normalized outputs, as in the search on stored features."""
INITIAL = 0.05
"""Standard deviation of the initial weights."""
FEWEST = 30
"""Fewer images say nothing about others."""


def without_memory(sharpness: float, items: Tensor, clusters: Tensor, config: Config) -> float:
    """The sharpness for other images than those that it was fitted to, at most as large.

    ``items``: these images as stored features (n, sides, copies, D); ``clusters``: the cluster of each (n,).
    """
    found, numbered = np.unique(clusters.numpy(), return_inverse=True)
    if len(items) < FEWEST or len(found) < 2:
        return sharpness
    targets = torch.from_numpy(numbered)
    order = torch.randperm(len(items), generator=rng.torch_generator(config.seed, "folds"))
    fold = torch.arange(len(items)) % FOLDS
    known, others = [], []
    for number in range(FOLDS):
        generator = rng.torch_generator(config.seed, "memorization", number)
        fitted, held_out = order[fold != number], order[fold == number]
        head = _fit_head(items[fitted], targets[fitted], len(found), config, generator)
        known.append(_outputs(head, items[fitted], config, generator))
        others.append(_outputs(head, items[held_out], config, generator))
    on_known, on_others = (sharpness_of(*map(torch.cat, zip(*part, strict=True))) for part in (known, others))
    # The fitted heads can be less sharp than the network, and all of their sharpness can be memory.
    return min(sharpness, on_others * max(1.0, sharpness / on_known))


def _fit_head(items: Tensor, targets: Tensor, n_clusters: int, config: Config, generator: torch.Generator) -> nn.Linear:
    """A linear head that finds the targets (n,) of augmented views; some of the clusters may have no image here."""
    with torch.device("meta"):  # nothing is drawn for weights that are set at once
        head = nn.Linear(items.shape[-1], n_clusters)
    head.to_empty(device="cpu")
    with torch.no_grad():
        head.weight.copy_(INITIAL * torch.randn(head.weight.shape, generator=generator))
        head.bias.zero_()
    optimizer = torch.optim.Adam(head.parameters(), lr=LEARNING_RATE)
    with torch.inference_mode(False), torch.enable_grad():
        for _ in range(STEPS):
            rows = torch.randint(len(items), (min(BATCH, len(items)),), generator=generator)
            views = torch.cat(make_views(to_float(items[rows]), config.views, generator))
            loss = F.cross_entropy(F.normalize(head(views), dim=-1) / TEMPERATURE, targets[rows].repeat(2))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return head


@torch.no_grad()
def _outputs(head: nn.Linear, items: Tensor, config: Config, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Mean outputs of both un-augmented views, once for each augmented view, and the labels of these."""
    stored = to_float(items)
    clean = torch.stack([F.normalize(head(view), dim=-1) for view in make_views(stored, config.views)]).mean(0)
    views = [view for _ in range(DRAWS) for view in make_views(stored, config.views, generator)]
    return clean.repeat(2 * DRAWS, 1), torch.cat([head(view).argmax(-1) for view in views])
