"""What the finished network says of images: un-augmented views, evaluation mode."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..config import Config, Views
from ..core.augment import augment, pass_over
from ..core.views import make_views, to_float
from ..distributed.group import SINGLE, ProcessGroup
from .network import ClusterNetwork, channels_last
from .precision import exact

CHUNK = 250
"""Images labeled together: small enough to stay in a CPU's cache."""
_Found = TypeVar("_Found")
FEWEST = 16
"""A batch with fewer images is filled up: for tiny ones other kernels are used, which round differently."""


class Outputs(NamedTuple):
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
    """The backbone's features, mean of both views. (n, D)"""


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


def over_augmented(
    network: ClusterNetwork,
    images: Tensor,
    config: Config,
    generator: torch.Generator,
    look: Callable[[Tensor], Tensor],
    world: ProcessGroup = SINGLE,
) -> Tensor:
    """What ``look`` makes of both views, augmented as in training, in evaluation mode: of all views i, then of all
    views j. (2 N, ...)
    """
    device = next(network.parameters()).device
    training = network.training
    network.eval()
    own = world.share(len(images), CHUNK)
    seen: list[Tensor] = []
    for start in range(0, len(images), CHUNK):
        part = images[start : start + CHUNK]
        if start not in own:
            pass_over(config.augmentation, len(part), generator)
            continue
        with torch.inference_mode(), exact(device):
            views = make_views(to_float(part.to(device)), config.views, generator)
            sides = [
                look(channels_last(augment(view, config.augmentation, generator, signed=config.views.signed))).cpu()
                for view in views
            ]
        seen.append(torch.stack(sides, 1))
    network.train(training)
    return torch.cat(world.gather(torch.cat(seen), len(images), CHUNK).unbind(1))


def label_views(
    network: ClusterNetwork, images: Tensor, settings: Views, world: ProcessGroup = SINGLE
) -> tuple[Tensor, Tensor]:
    """Clusters of view i and of view j, (N,) each, or (N, heads) for a network with several heads."""
    mine = world.own(images, CHUNK)
    pairs = [(i.argmax(-1), j.argmax(-1)) for i, j in over_views(network, mine, settings, network.logits)]
    labels = torch.stack([torch.cat(side).cpu() for side in zip(*pairs, strict=True)], 1)
    labels_i, labels_j = world.gather(labels, len(images), CHUNK).unbind(1)
    return labels_i, labels_j


def view_features(
    network: ClusterNetwork,
    images: Tensor,
    settings: Views,
    world: ProcessGroup = SINGLE,
    positions: Tensor | None = None,
) -> Tensor:
    """The backbone's features of view i and of view j, of all images or of those at some positions (n,). (n, 2, D)"""
    rows = images if positions is None else positions

    def one(part: Tensor) -> Tensor:
        pixels = part if positions is None else images[part]
        ((features_i, features_j),) = over_views(network, pixels, settings, network.features)
        return torch.stack([features_i, features_j], 1).cpu()

    return world.gather(torch.cat(list(_side_by_side(one, network, world.own(rows, CHUNK)))), len(rows), CHUNK)


def outputs_of(network: ClusterNetwork, features: Tensor) -> Tensor:
    """The logits that belong to features (N, D). (N, clusters), or (N, heads, clusters) with several heads"""
    device = next(network.parameters()).device
    with torch.inference_mode(), exact(device):
        return torch.cat([network.outputs(part.to(device)).cpu() for part in torch.split(features, CHUNK)])


def reading_of(network: ClusterNetwork, features_i: Tensor, features_j: Tensor, sharpness: float) -> Outputs:
    """What a network with one head makes of both views' features (n, D)."""
    outputs_i, outputs_j = (F.normalize(network.outputs(features), dim=-1) for features in (features_i, features_j))
    mean = (outputs_i + outputs_j) / 2
    return Outputs(
        outputs_i.argmax(-1),
        outputs_j.argmax(-1),
        mean.argmax(-1),
        torch.softmax(sharpness * mean, -1),
        (features_i + features_j) / 2,
    )


def read(network: ClusterNetwork, images: Tensor, settings: Views, sharpness: float) -> Iterator[Outputs]:
    """Everything a network with one head says of uint8 images (N, C, H, W), chunk by chunk, in order."""

    def one(part: Tensor) -> Outputs:
        ((features_i, features_j),) = over_views(network, part, settings, network.features)
        with torch.inference_mode(), exact(features_i.device):
            return Outputs(*(value.cpu() for value in reading_of(network, features_i, features_j, sharpness)))

    return _side_by_side(one, network, images)


def _side_by_side(one: Callable[[Tensor], _Found], network: ClusterNetwork, rows: Tensor) -> Iterator[_Found]:
    """What ``one`` makes of each chunk of rows, in order, with the network in evaluation mode.

    Chunks are looked at side by side, each by one thread: that is faster than all threads at one small chunk, and what
    is said of an image does not depend on their number.
    """
    training = network.training
    network.eval()
    threads = torch.get_num_threads() if next(network.parameters()).is_cpu else 1  # one keeps a GPU busy
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        starts = iter(range(0, len(rows), CHUNK))
        ahead: deque[Future[_Found]] = deque()
        while True:
            for start in itertools.islice(starts, 2 * threads - len(ahead)):
                ahead.append(pool.submit(one, rows[start : start + CHUNK]))
            if not ahead:
                return
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        network.train(training)


def read_whole(
    network: ClusterNetwork,
    images: Tensor,
    settings: Views,
    sharpness: float,
    probabilities: bool = True,
    world: ProcessGroup = SINGLE,
) -> Outputs:
    """The same for all images at once; without features, which for a million images would not fit into memory.

    Without ``probabilities`` what is kept of an image does not grow with the number of clusters either.
    """
    mine = world.own(images, CHUNK)
    whole: Outputs | None = None
    done = 0
    for reading in read(network, mine, settings, sharpness):
        shares = reading.probabilities if probabilities else reading.probabilities[:, :0]
        kept = reading._replace(probabilities=shares, features=reading.features[:, :0])
        if whole is None:  # of its final size at once: collected parts would be held twice when they are joined
            whole = Outputs(*(value.new_empty(len(mine), *value.shape[1:]) for value in kept))
        for column, value in zip(whole, kept, strict=True):
            column[done : done + len(value)] = value
        done += len(reading.output)
    if whole is None:
        raise ValueError("there are no images to read")
    return Outputs(*(world.gather(column, len(images), CHUNK) for column in whole))
