"""Run a trained network on images: un-augmented views, evaluation mode.

Functions that go through all images split the work among the processes of the current group.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import Config, Views
from ..core import augment
from ..core.views import make_views, to_float
from ..distributed.group import current
from .network import ClusterNetwork, channels_last
from .novelty import Novelty, image_statistics
from .precision import exact

CHUNK = 250
"""Images processed at once: few enough that their activations stay in a CPU's cache."""
ENCODED = 32
"""Images that pass through a pre-trained backbone at once."""
MIN_BATCH = 16
"""Smaller batches are filled up by repetition: torch uses other kernels for tiny ones, which round differently."""
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Calibration(NamedTuple):
    """What turns the outputs of a network into confidence and novelty."""

    sharpness: float
    novelty: Novelty | None = None
    """None if the run is not finished."""


class Outputs(NamedTuple):
    """The outputs of a network with one head for some images."""

    view_i: Tensor
    """The winning output of view i. (n,)"""
    view_j: Tensor
    """The winning output of view j. (n,)"""
    winner: Tensor
    """The winning output of the mean of both views' normalized logits. (n,)"""
    probabilities: Tensor
    """Softmax of that mean times the sharpness. (n, n_outputs)"""
    features: Tensor
    """Mean of both views' backbone features. (n, D)"""
    novelty: Tensor
    """How unlike the training images they are, from 0 to 1; NaN where it is not known. (n,)"""

    @classmethod
    def of_labels(cls, winner: Tensor, n_outputs: int) -> Outputs:
        """Outputs of which only the labels are known. (n,)"""
        empty = torch.zeros(len(winner), n_outputs)
        return cls(winner, winner, winner, empty, empty[:, :0], torch.full((len(winner),), torch.nan))


class Known(NamedTuple):
    """What is known of images before a network is run on them, so that it is not computed again."""

    features: Tensor | None = None
    """The network's features of both views. (N, 2, D)"""
    statistics: Tensor | None = None
    """Statistics of the pixels, without which images that are stored as features have none. (N, statistics)"""


NOTHING = Known()


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Within the block a network is in evaluation mode."""
    training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(training)


def map_views(
    network: ClusterNetwork, images: Tensor, settings: Views, function: Callable[[Tensor], Tensor]
) -> Iterator[tuple[Tensor, Tensor]]:
    """``function`` of view i and of view j of uint8 images (N, C, H, W), chunk by chunk, in evaluation mode."""
    device = next(network.parameters()).device
    with evaluating(network):
        for start in range(0, len(images), CHUNK):
            with torch.inference_mode(), exact(device):
                part = images[start : start + CHUNK].to(device)
                count = len(part)
                pixels = to_float(part.repeat(-(-MIN_BATCH // count), 1, 1, 1) if count < MIN_BATCH else part)
                view_i, view_j = make_views(pixels, settings)
                yield function(channels_last(view_i))[:count], function(channels_last(view_j))[:count]


def map_augmented_views(
    network: ClusterNetwork,
    images: Tensor,
    config: Config,
    generator: torch.Generator,
    function: Callable[[Tensor], Tensor],
) -> Tensor:
    """``function`` of both views, augmented as in training, in evaluation mode: views i, then views j. (2N, ...)"""
    device = next(network.parameters()).device
    group = current()
    own = group.share(len(images), CHUNK)
    results: list[Tensor] = []
    with evaluating(network), torch.inference_mode(), exact(device):
        for start in range(0, len(images), CHUNK):
            part = images[start : start + CHUNK]
            if start not in own:
                augment.skip(images, (config.views, config.augmentation), len(part), generator)
                continue
            views = [
                augment.augment(view, config.augmentation, generator, signed=config.views.signed)
                for view in make_views(to_float(part.to(device)), config.views, generator)
            ]
            results.append(torch.stack([function(channels_last(view)).cpu() for view in views], 1))
    return torch.cat(group.gather(torch.cat(results), len(images), CHUNK).unbind(1))


def label_views(network: ClusterNetwork, images: Tensor, settings: Views) -> tuple[Tensor, Tensor]:
    """Clusters of view i and of view j, (N,) each, or (N, heads) for a network with several heads."""
    group = current()
    pairs = [
        (i.argmax(-1), j.argmax(-1)) for i, j in map_views(network, group.own(images, CHUNK), settings, network.logits)
    ]
    labels = torch.stack([torch.cat(side).cpu() for side in zip(*pairs, strict=True)], 1)
    labels_i, labels_j = group.gather(labels, len(images), CHUNK).unbind(1)
    return labels_i, labels_j


def view_features(network: ClusterNetwork, images: Tensor, settings: Views, positions: Tensor | None = None) -> Tensor:
    """Backbone features of view i and of view j, of all images or of those at some positions (n,). (n, 2, D)"""
    rows = images if positions is None else positions
    group = current()

    def one(part: Tensor) -> Tensor:
        pixels = part if positions is None else images[part]
        ((features_i, features_j),) = map_views(network, pixels, settings, network.features)
        return torch.stack([features_i, features_j], 1).cpu()

    return group.gather(torch.cat(list(_map_chunks(one, network, group.own(rows, CHUNK)))), len(rows), CHUNK)


def logits_of(network: ClusterNetwork, features: Tensor) -> Tensor:
    """The logits of features (N, D). (N, n_outputs), or (N, heads, n_outputs) with several heads"""
    device = next(network.parameters()).device
    with torch.inference_mode(), exact(device):
        return torch.cat([network.outputs(part.to(device)).cpu() for part in torch.split(features, CHUNK)])


def outputs_of(
    network: ClusterNetwork, features_i: Tensor, features_j: Tensor, calibration: Calibration, statistics: Tensor | None
) -> Outputs:
    """The outputs of a network with one head, from both views' features (n, D) and the statistics of the pixels."""
    sharpness, novelty = calibration
    logits_i, logits_j = (F.normalize(network.outputs(features), dim=-1) for features in (features_i, features_j))
    mean = (logits_i + logits_j) / 2
    return Outputs(
        logits_i.argmax(-1),
        logits_j.argmax(-1),
        mean.argmax(-1),
        torch.softmax(sharpness * mean, -1),
        (features_i + features_j) / 2,
        mean[:, 0] * torch.nan if novelty is None else novelty(features_i, features_j, statistics),
    )


def run(
    network: ClusterNetwork,
    images: Tensor,
    settings: Views,
    calibration: Calibration,
    known: Known = NOTHING,
) -> Iterator[Outputs]:
    """The outputs of a network with one head for uint8 images (N, C, H, W), chunk by chunk, in order."""

    def one(rows: Tensor) -> Outputs:
        part = slice(int(rows[0]), int(rows[-1]) + 1)
        if known.features is None:
            ((features_i, features_j),) = map_views(network, images[part], settings, network.features)
        else:
            device = next(network.parameters()).device
            features_i, features_j = known.features[part].to(device).unbind(1)
        with torch.inference_mode(), exact(features_i.device):
            statistics = None if known.statistics is None else known.statistics[part]
            if statistics is None and not settings.stored:
                statistics = image_statistics(images[part])
            found = outputs_of(network, features_i, features_j, calibration, statistics)
            return Outputs(*(value.cpu() for value in found))

    return _map_chunks(one, network, torch.arange(len(images)))


def map_ordered(function: Callable[[_Item], _Result], items: Iterable[_Item], threads: int) -> Iterator[_Result]:
    """``function`` of every item, in order, several at a time, each by one thread of its own.

    So the result does not depend on the number of threads.
    """
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        waiting, ahead = iter(items), deque[Future[_Result]]()
        while True:
            for item in itertools.islice(waiting, 2 * threads - len(ahead)):
                ahead.append(pool.submit(function, item))
            if not ahead:
                return
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _map_chunks(one: Callable[[Tensor], _Result], network: ClusterNetwork, rows: Tensor) -> Iterator[_Result]:
    """``one`` of each chunk of rows, in order, with the network in evaluation mode.

    Several chunks are processed at once, each by one thread: this is faster than all threads on one small chunk, and
    the result does not depend on the number of threads.
    """
    threads = torch.get_num_threads() if next(network.parameters()).is_cpu else 1  # one thread keeps a GPU busy
    with evaluating(network):
        yield from map_ordered(one, (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)), threads)


def encoded(network: ClusterNetwork, images: Tensor, encode: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
    """A network's features of both views of images, chunk by chunk, in order, computed by all threads. (n, 2, D)"""
    device = next(network.parameters()).device

    def one(part: Tensor) -> Tensor:
        with torch.inference_mode(), exact(device):
            return network.features(encode(part).to(device).flatten(0, 1)).reshape(len(part), 2, -1).cpu()

    parts = (images[start : start + ENCODED] for start in range(0, len(images), ENCODED))
    return map_ordered(one, parts, torch.get_num_threads())


def run_all(
    network: ClusterNetwork,
    images: Tensor,
    settings: Views,
    calibration: Calibration,
    keep: tuple[str, ...] = (),
    known: Known = NOTHING,
) -> Outputs:
    """The outputs for all images at once.

    Labels and novelty are always kept. "probabilities" and "features" (as float16) are kept if ``keep`` names them and
    have no columns otherwise: for a million images they may not fit into memory.
    """
    group = current()
    mine = group.own(images, CHUNK)
    chunks = run(network, mine, settings, calibration, Known(*(v if v is None else group.own(v, CHUNK) for v in known)))
    whole: Outputs | None = None
    done = 0
    dropped = [name for name in ("probabilities", "features") if name not in keep]
    for outputs in chunks:
        kept = outputs._replace(features=outputs.features.half())
        kept = kept._replace(**{name: getattr(kept, name)[:, :0] for name in dropped})
        if whole is None:  # allocated once: joining a list of chunks would need twice the memory
            whole = Outputs(*(value.new_empty(len(mine), *value.shape[1:]) for value in kept))
        for column, value in zip(whole, kept, strict=True):
            column[done : done + len(value)] = value
        done += len(outputs.winner)
    if whole is None:
        raise ValueError("there are no images to label")
    return Outputs(*(group.gather(column, len(images), CHUNK) for column in whole))
