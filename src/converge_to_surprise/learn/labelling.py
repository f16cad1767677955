"""The labels of images as the finished network gives them: un-augmented views, evaluation mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..config import Views
from ..core.views import make_views, to_float
from .network import ResNet9, channels_last

CHUNK = 250
"""Images labelled together: small enough to stay in a processor's cache."""


def over_views(
    network: ResNet9, images: Tensor, settings: Views, read: Callable[[Tensor], Tensor]
) -> Iterator[tuple[Tensor, Tensor]]:
    """What ``read`` makes of view i and view j of uint8 images (N, C, H, W), chunk by chunk, in evaluation mode."""
    device = next(network.parameters()).device
    training = network.training
    network.eval()
    try:
        for start in range(0, len(images), CHUNK):
            with torch.inference_mode():
                pixels = to_float(images[start : start + CHUNK].to(device))
                view_i, view_j = make_views(pixels, settings)
                yield read(channels_last(view_i)), read(channels_last(view_j))
    finally:
        network.train(training)


def label_views(network: ResNet9, images: Tensor, settings: Views) -> tuple[Tensor, Tensor]:
    """Clusters of view i and of view j, (N,) each, or (N, heads) for a network with several heads."""
    pairs = [(i.argmax(-1), j.argmax(-1)) for i, j in over_views(network, images, settings, network.logits)]
    return torch.cat([i for i, _ in pairs]).cpu(), torch.cat([j for _, j in pairs]).cpu()


def view_features(network: ResNet9, images: Tensor, settings: Views) -> Tensor:
    """The trunk's features, mean of both views. (N, 8 width)"""
    return torch.cat([((i + j) / 2).cpu() for i, j in over_views(network, images, settings, network.features)])


def label_with_both(network: ResNet9, images: Tensor, settings: Views) -> tuple[Tensor, Tensor, Tensor]:
    """Clusters of view i, of view j and of the mean of both views' outputs of length 1, (N,) each."""
    rows = [
        (i.argmax(-1), j.argmax(-1), (i + j).argmax(-1))
        for i, j in over_views(network, images, settings, network.forward)
    ]
    first, second, both = (torch.cat(labels).cpu() for labels in zip(*rows, strict=True))
    return first, second, both
