"""What the finished network says of images: un-augmented views, evaluation mode."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..config import Views
from ..core.views import make_views, to_float
from .network import ClusterNetwork, channels_last
from .precision import exact

CHUNK = 250
"""Images labelled together: small enough to stay in a processor's cache."""
FEWEST = 16
"""A batch with fewer images is filled up: for tiny ones other kernels are used, which round differently."""


class Reading(NamedTuple):
    """What a network with one head says of some images."""

    view_i: Tensor
    """Output that wins view i. (n,)"""
    view_j: Tensor
    """Output that wins view j. (n,)"""
    output: Tensor
    """Output that wins by the mean of both views' outputs of length 1. (n,)"""
    probabilities: Tensor
    """Softmax of that mean, sharpened. (n, clusters)"""
    features: Tensor
    """The trunk's features, mean of both views. (n, D)"""


def over_views(
    network: ClusterNetwork, images: Tensor, settings: Views, look: Callable[[Tensor], Tensor]
) -> Iterator[tuple[Tensor, Tensor]]:
    """What ``look`` makes of view i and view j of uint8 images (N, C, H, W), chunk by chunk, in evaluation mode."""
    device = next(network.parameters()).device
    training = network.training
    network.eval()
    try:
        for start in range(0, len(images), CHUNK):
            with torch.inference_mode(), exact(device):
                part = images[start : start + CHUNK].to(device)
                count = len(part)
                pixels = to_float(part.repeat(-(-FEWEST // count), 1, 1, 1) if count < FEWEST else part)
                view_i, view_j = make_views(pixels, settings)
                yield look(channels_last(view_i))[:count], look(channels_last(view_j))[:count]
    finally:
        network.train(training)


def label_views(network: ClusterNetwork, images: Tensor, settings: Views) -> tuple[Tensor, Tensor]:
    """Clusters of view i and of view j, (N,) each, or (N, heads) for a network with several heads."""
    pairs = [(i.argmax(-1), j.argmax(-1)) for i, j in over_views(network, images, settings, network.logits)]
    return torch.cat([i for i, _ in pairs]).cpu(), torch.cat([j for _, j in pairs]).cpu()


def view_features(network: ClusterNetwork, images: Tensor, settings: Views) -> Tensor:
    """The trunk's features, mean of both views. (N, D)"""
    return torch.cat([((i + j) / 2).cpu() for i, j in over_views(network, images, settings, network.features)])


def reading_of(network: ClusterNetwork, features_i: Tensor, features_j: Tensor, sharpness: float) -> Reading:
    """What a network with one head makes of both views' features (n, D)."""
    outputs_i, outputs_j = (F.normalize(network.outputs(features), dim=-1) for features in (features_i, features_j))
    mean = (outputs_i + outputs_j) / 2
    return Reading(
        outputs_i.argmax(-1),
        outputs_j.argmax(-1),
        mean.argmax(-1),
        torch.softmax(sharpness * mean, -1),
        (features_i + features_j) / 2,
    )


def read(network: ClusterNetwork, images: Tensor, settings: Views, sharpness: float) -> Iterator[Reading]:
    """Everything a network with one head says of uint8 images (N, C, H, W), chunk by chunk, in order.

    Chunks are read side by side, each by one thread: that is faster than all threads at one small chunk, and what is
    said of an image does not depend on their number.
    """

    def one(part: Tensor) -> Reading:
        ((features_i, features_j),) = over_views(network, part, settings, network.features)
        with torch.inference_mode(), exact(features_i.device):
            return Reading(*(value.cpu() for value in reading_of(network, features_i, features_j, sharpness)))

    training = network.training
    network.eval()
    threads = torch.get_num_threads() if next(network.parameters()).is_cpu else 1  # one keeps a GPU busy
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        starts = iter(range(0, len(images), CHUNK))
        ahead: deque[Future[Reading]] = deque()
        while True:
            for start in itertools.islice(starts, 2 * threads - len(ahead)):
                ahead.append(pool.submit(one, images[start : start + CHUNK]))
            if not ahead:
                return
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        network.train(training)


def read_whole(network: ClusterNetwork, images: Tensor, settings: Views, sharpness: float) -> Reading:
    """The same for all images at once; without features, which for a million images would not fit into memory."""
    parts = [
        reading._replace(features=reading.features[:, :0]) for reading in read(network, images, settings, sharpness)
    ]
    return Reading(*(torch.cat(column) for column in zip(*parts, strict=True)))
