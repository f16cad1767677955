"""The labels of images as the finished network gives them: un-augmented views, evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ..config import Views
from ..core.views import make_views, to_float
from .network import ResNet9, channels_last

CHUNK = 250
"""Images labelled together: small enough to stay in a processor's cache."""


def view_logits(network: ResNet9, images: Tensor, settings: Views) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits of view i and view j for uint8 images (N, C, H, W), chunk by chunk."""
    device = next(network.parameters()).device
    training = network.training
    network.eval()
    try:
        for start in range(0, len(images), CHUNK):
            with torch.inference_mode():
                pixels = to_float(images[start : start + CHUNK].to(device))
                view_i, view_j = make_views(pixels, settings)
                yield network.logits(channels_last(view_i)), network.logits(channels_last(view_j))
    finally:
        network.train(training)


def label_views(network: ResNet9, images: Tensor, settings: Views) -> tuple[Tensor, Tensor]:
    """Clusters of view i and of view j, (N,) each, or (N, heads) for a network with several heads."""
    pairs = [(network.label(i), network.label(j)) for i, j in view_logits(network, images, settings)]
    return torch.cat([i for i, _ in pairs]).cpu(), torch.cat([j for _, j in pairs]).cpu()


def label_with_both(network: ResNet9, images: Tensor, settings: Views) -> tuple[Tensor, Tensor, Tensor]:
    """Clusters of view i, of view j and of the mean of both views' outputs of length 1, (N,) each."""
    rows = [
        (network.label(i), network.label(j), network.label(F.normalize(i, dim=-1) + F.normalize(j, dim=-1)))
        for i, j in view_logits(network, images, settings)
    ]
    first, second, both = (torch.cat(labels).cpu() for labels in zip(*rows, strict=True))
    return first, second, both
