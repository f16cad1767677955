"""Label a batch under many parameter vectors, fast and with exact batch statistics.

A member is scored in training mode: each batch-normalization layer uses the statistics of the whole batch under that
member. Passing all N views through the network at once would evict the activations from the CPU's cache; passing chunks
through the whole network would change the statistics. So the network is evaluated layer by layer, and each layer chunk
by chunk: a chunk is normalized, convolved and measured while it is in the cache, and the statistics are complete at the
end of the layer.

Pooling is done before normalization: a maximum commutes with an increasing map, and a channel with a negative BatchNorm
weight becomes increasing if the signs of its filter and its weight are flipped, which does not change the output. So
only a quarter of a pooled layer is stored, normalized and rectified.

In 16 bits the activations are stored, pooled and normalized in that format too, so that half as much memory is read and
written; the statistics of batch normalization and the head are in float32.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..config import Precision
from ..distributed.group import current
from ..distributed.sync_batchnorm import stripes
from ..model.backbone import train_without_dropout, whole_logits
from ..model.network import ClusterNetwork, ResNet9, Unit, channels_last, pooled_size, unflatten
from ..model.precision import SIXTEEN_BITS, lowered
from . import evolution, stacked
from .chunking import IN_CACHE

Labels = tuple[Tensor, Tensor]
"""The labels (N,) of both views."""
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Statistics(NamedTuple):
    """Mean and variance of one layer's convolution over a whole batch, (C,) each, and the number of values."""

    mean: Tensor
    variance: Tensor
    values: int


class _Normalization(NamedTuple):
    """The normalization that turns the stored activations of a layer into the next layer's input."""

    mean: Tensor
    variance: Tensor
    weight: Tensor
    bias: Tensor
    epsilon: float


@torch.inference_mode()
def batch_logits(
    network: ResNet9, parameters: Mapping[str, Tensor], views: Tensor, chunk: int, precision: Precision = "float32"
) -> tuple[Tensor, list[Statistics]]:
    """Logits (N, heads * clusters) of a batch (N, C, H, W) in training mode and the statistics of every layer.

    Equal to the network's own forward pass over the whole batch for any chunk size (0: what fits the cache). NaN if
    an activation is not finite.
    """
    chunk = chunk or IN_CACHE
    views = network.prepare(views)
    dtype = SIXTEEN_BITS.get(precision, views.dtype)
    current, normalization = _one_layout(views.to(dtype)), None
    kept: Tensor | None = None
    add: Tensor | None = None
    statistics = []
    for index, unit in enumerate(network.units):
        assert isinstance(unit, Unit)
        if unit.skip == "open":
            kept = _workspace.take("kept", current.shape, current)
        weight = parameters[f"units.{index}.norm.weight"]
        # Flip channels with a negative weight, so that the normalization is increasing in every channel.
        sign = torch.where(weight < 0, -1.0, 1.0).to(weight.dtype)
        filters = _one_layout((parameters[f"units.{index}.conv.weight"] * sign[:, None, None, None]).to(dtype))
        gathered = _Gather()
        stored = current
        # After pooling, more images fit into the cache.
        for part in _slices(len(views), chunk * (views[0, 0].numel() // current[0, 0].numel())):
            x = _activate(current[part], normalization, None if add is None else add[part])
            if unit.skip == "open" and kept is not None:
                kept[part] = x
            x = F.conv2d(x, filters, padding=unit.conv.padding)
            gathered.add(x)
            if part.start == 0:
                size = pooled_size(x.shape[2:]) if unit.pool else x.shape[2:]
                stored = _workspace.take(index % 2, (len(views), x.shape[1], *size), x)
            if unit.pool:
                _pool_into(stored[part], x)
            else:
                stored[part] = x
        seen = gathered.whole()
        statistics.append(seen._replace(mean=seen.mean * sign))
        bias = parameters[f"units.{index}.norm.bias"]
        normalization = _Normalization(seen.mean, seen.variance, weight * sign, bias, unit.norm.eps)
        current, add = stored, kept if unit.skip == "close" else None
    head = parameters["head.weight"]
    features = torch.cat(
        [
            _activate(current[part], normalization, None if add is None else add[part]).to(head.dtype).mean((2, 3))
            for part in _slices(len(views), chunk)
        ]
    )
    # A rectifier may turn NaN into 0, but the statistics of its layer are NaN then.
    finite = torch.stack([seen.variance.isfinite().all() for seen in statistics]).all()
    return F.linear(features, head, parameters["head.bias"]).where(finite, math.nan), statistics


def _one_layout(x: Tensor) -> Tensor:
    """``channels_last`` also where one channel leaves the layout open: torch would then choose another one."""
    return channels_last(x).as_strided(x.shape, (x[0].numel(), 1, x.shape[1] * x.shape[3], x.shape[1]))


class _Workspace(threading.local):
    """Memory for the layers of one thread, reused for every member.

    Fresh memory of this size would be requested from the operating system for every layer of every member.
    """

    def __init__(self) -> None:
        self._flat: dict[str | int, Tensor] = {}

    def take(self, slot: str | int, shape: Sequence[int], like: Tensor) -> Tensor:
        """An uninitialized channels-last tensor; the previous content of the slot is overwritten."""
        count, channels, height, width = shape
        size = math.prod(shape)
        flat = self._flat.get(slot)
        if flat is None or len(flat) < size or flat.dtype != like.dtype or flat.device != like.device:
            flat = self._flat[slot] = torch.empty(size, dtype=like.dtype, device=like.device)
        return flat[:size].view(count, height, width, channels).permute(0, 3, 1, 2)


_workspace = _Workspace()


def keep_small_blocks() -> None:
    """Make the C library's allocator keep freed blocks of up to 32 MB instead of returning them to the system.

    glibc adapts its threshold to the largest block that was freed; after this one, the temporaries of a chunk are
    reused. On other systems this has no effect.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def _pool_into(target: Tensor, x: Tensor) -> None:
    """``pool`` by two maxima, without the positions that torch's pooling records."""
    height, width = target.shape[2:]
    if x.shape[2] > 1:
        x = torch.maximum(x[:, :, 0 : 2 * height : 2], x[:, :, 1 : 2 * height : 2])
    if x.shape[3] > 1:
        torch.maximum(x[..., 0 : 2 * width : 2], x[..., 1 : 2 * width : 2], out=target)
    else:
        target.copy_(x)


def _slices(total: int, chunk: int) -> Iterator[slice]:
    return (slice(start, min(start + chunk, total)) for start in range(0, total, chunk))


def _activate(x: Tensor, normalization: _Normalization | None, add: Tensor | None) -> Tensor:
    if normalization is None:
        return x
    mean, variance, weight, bias, epsilon = normalization
    x = F.batch_norm(x, mean, variance, weight, bias, training=False, eps=epsilon)
    if x.element_size() == 2:  # the sign is the first bit in both formats, and whole numbers are compared faster
        x.view(torch.int16).clamp_min_(0)
    else:
        x.relu_()
    return x if add is None else x.add_(add)


class _Gather:
    """Combines the statistics of chunks (Chan et al. 1979), in double precision where the device has it."""

    def __init__(self) -> None:
        self.means: list[Tensor] = []
        self.variances: list[Tensor] = []
        self.values: list[int] = []

    def add(self, x: Tensor) -> None:
        means, variances = stripes(x)
        self.means.extend(means)
        self.variances.extend(variances)
        self.values.extend([x.numel() // means.numel()] * len(means))

    def whole(self) -> Statistics:
        wide = torch.float32 if self.means[0].device.type == "mps" else torch.float64
        means, variances = torch.stack(self.means).to(wide), torch.stack(self.variances).to(wide)
        total = sum(self.values)
        share = torch.tensor(self.values, dtype=wide, device=means.device)[:, None] / total
        mean = (share * means).sum(0)
        variance = (share * (variances + (means - mean) ** 2)).sum(0)
        dtype = self.means[0].dtype
        return Statistics(mean.to(dtype), variance.to(dtype), total)


class ViewPair(NamedTuple):
    """The augmented views of one batch. (N, C, H, W) each"""

    i: Tensor
    j: Tensor


class BatchLabeler(NamedTuple):
    """A network, the batch on which the members of a population are compared, and how it is computed."""

    network: ClusterNetwork
    views: ViewPair
    chunk_size: int
    workers: Executor | None = None
    """Threads, each of which labels the batch for one member at a time; None: the calling thread."""
    precision: Precision = "float32"

    def map(self, function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
        """``function`` of every item, in order."""
        return map(function, items) if self.workers is None else self.workers.map(function, items)


@torch.inference_mode()
def member_labels(labeler: BatchLabeler, theta: Tensor) -> Labels | None:
    """Labels (N,) of both views under θ, or None if the network's outputs are not finite."""
    network, views, chunk_size, _, precision = labeler
    parameters = unflatten(theta, network)
    labels = []
    for view in views:
        # Only ResNet-9 can be evaluated layer by layer.
        if isinstance(network, ResNet9):
            logits, _ = batch_logits(network, parameters, view, chunk_size, precision)
        else:
            logits = whole_logits(network, parameters, view, precision)
        if not bool(logits.isfinite().all()):
            return None
        labels.append(logits.argmax(-1))
    return labels[0], labels[1]


def scores(labeler: BatchLabeler, theta: Tensor, generation: evolution.Generation, score: evolution.Score) -> Tensor:
    """The score of every member of a generation, (m,); NaN where the network's outputs are not finite.

    The processes of the current group split the mirrored pairs. Each generates the noise of its members, so only scores
    are transferred.
    """

    layers = stacked.chain(labeler.network) if labeler.precision == "float32" else None
    together = 1 if layers is None else stacked.members_together(layers, len(labeler.views.i))

    def labels_of(block: range) -> list[Labels | None]:
        asked = evolution.ask(theta, generation, block)
        if layers is None:
            return [member_labels(labeler, parameters) for parameters in asked]
        return _labels_together(labeler, layers, torch.stack(list(asked)))

    train_without_dropout(labeler.network)
    group, population = current(), generation.settings.population
    members = group.part(population, unit=2)
    blocks = [members[start : start + together] for start in range(0, len(members), together)]
    labels = itertools.chain.from_iterable(labeler.map(labels_of, blocks))
    return group.join_parts(_scores_of(labels, score), population, unit=2)


@torch.inference_mode()
def _labels_together(labeler: BatchLabeler, layers: list[stacked.Layer], thetas: Tensor) -> list[Labels | None]:
    """``member_labels`` of several parameter vectors (m, D)."""
    logits = [stacked.stacked_logits(labeler.network, layers, thetas, view) for view in labeler.views]
    finite = [side.isfinite().flatten(1).all(1) for side in logits]
    labels = [side.argmax(-1) for side in logits]
    return [(i, j) if bool(good) else None for i, j, good in zip(*labels, finite[0] & finite[1], strict=True)]


def _scores_of(labels: Iterable[Labels | None], score: evolution.Score) -> Tensor:
    """Scores (m,) of the members' labels; NaN where there are none."""
    # Scores are computed in double precision, which not every device has.
    found = [pair and (pair[0].cpu(), pair[1].cpu()) for pair in labels]
    values = torch.full((len(found),), math.nan, dtype=torch.double)
    valid = [member for member, pair in enumerate(found) if pair is not None]
    pairs = [pair for pair in found if pair is not None]
    if isinstance(score, evolution.NamedScore) and pairs:
        values[valid] = score(*(torch.stack(side) for side in zip(*pairs, strict=True)))
    else:
        # Called by this thread, member by member in order: the user's score need not be thread-safe.
        values[valid] = torch.tensor([float(score(*pair)) for pair in pairs], dtype=torch.double)
    return values


@torch.no_grad()
def refresh(labeler: BatchLabeler) -> tuple[Tensor, Tensor]:
    """Label the batch with the network itself in training mode and update its running statistics once per view."""
    network, views, chunk_size, _, precision = labeler
    if not isinstance(network, ResNet9):
        train_without_dropout(network)
        with lowered(precision, views.i.device):
            return network(views.i).argmax(-1), network(views.j).argmax(-1)
    parameters = {name: value.detach() for name, value in network.named_parameters()}

    def forward(view: Tensor) -> tuple[Tensor, list[Statistics]]:
        return batch_logits(network, parameters, view, chunk_size, precision)

    (logits_i, statistics_i), (logits_j, statistics_j) = labeler.map(forward, views)
    for statistics in (statistics_i, statistics_j):
        for unit, seen in zip(network.units, statistics, strict=True):
            assert isinstance(unit, Unit)
            _update_running_statistics(unit.norm, seen)
    return logits_i.argmax(-1), logits_j.argmax(-1)


def _update_running_statistics(norm: torch.nn.BatchNorm2d, seen: Statistics) -> None:
    """Update the running statistics as a forward pass in training mode does, with the unbiased variance."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.momentum is not None
    assert norm.num_batches_tracked is not None
    unbiased = seen.variance * (seen.values / max(1, seen.values - 1))
    norm.running_mean.lerp_(seen.mean, norm.momentum)
    norm.running_var.lerp_(unbiased, norm.momentum)
    norm.num_batches_tracked += 1
