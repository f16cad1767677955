"""The labels that a parameter vector gives to a batch, fast, with exact batch statistics.

A member is scored in training mode: each batch-normalization layer uses the statistics of the whole batch of that
member and that view. Sending N views through the network at once would throw every activation out of the CPU's
cache; sending chunks through the network would change the statistics. So the network is walked layer by layer and each
layer chunk by chunk: while a chunk is in cache it is normalized, convolved and measured, and the statistics are
complete when the layer is.

Pooling comes before normalization: a maximum commutes with an increasing map, and a channel whose BatchNorm weight is
negative is made increasing by turning the signs of its filter and its weight, which leaves the output as it was. So
only a quarter of a pooled layer is stored, normalized and rectified.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..config import Precision
from ..distributed.group import SINGLE, ProcessGroup
from ..distributed.sync_batchnorm import stripes
from ..model.backbone import hold_still, whole_logits
from ..model.network import ClusterNetwork, ResNet9, Unit, channels_last, pooled_size, unflatten
from ..model.precision import lowered
from . import evolution
from .chunking import IN_CACHE


class Statistics(NamedTuple):
    """Mean and variance of one layer's convolution over a whole batch, (C,) each, and the number of values."""

    mean: Tensor
    variance: Tensor
    values: int


class _Normalization(NamedTuple):
    """How the stored activations of a layer become the next layer's input."""

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

    Equal to the network's own forward pass over the whole batch at once, whatever the chunk (0: what stays in cache).
    In 16 bits only the convolutions are computed; what they give is gathered and kept in float32.
    """
    chunk = chunk or IN_CACHE
    views = network.enter(views)
    current, normalization = channels_last(views), None
    kept: Tensor | None = None
    add: Tensor | None = None
    statistics = []
    for index, unit in enumerate(network.units):
        assert isinstance(unit, Unit)
        if unit.skip == "open":
            kept = _workspace.take("kept", current.shape, current)
        weight = parameters[f"units.{index}.norm.weight"]
        # A channel with a negative weight is turned round, so that normalization is increasing in every channel.
        sign = torch.where(weight < 0, -1.0, 1.0).to(weight.dtype)
        filters = channels_last(parameters[f"units.{index}.conv.weight"] * sign[:, None, None, None])
        gathered = _Gather()
        stored = current
        # Where pooling has shrunk the images, more of them fit into the cache.
        for part in _slices(len(views), chunk * (views[0, 0].numel() // current[0, 0].numel())):
            x = _activate(current[part], normalization, None if add is None else add[part])
            if unit.skip == "open" and kept is not None:
                kept[part] = x
            with lowered(precision, x.device):
                x = F.conv2d(x, filters, padding=unit.conv.padding)
            x = x.to(filters.dtype)
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
    features = torch.cat(
        [
            _activate(current[part], normalization, None if add is None else add[part]).mean((2, 3))
            for part in _slices(len(views), chunk)
        ]
    )
    return F.linear(features, parameters["head.weight"], parameters["head.bias"]), statistics


class _Workspace(threading.local):
    """Memory for the layers of one thread, used again for every member.

    Fresh memory of this size would be fetched from the operating system, page by page, for every layer of every member.
    """

    def __init__(self) -> None:
        self._flat: dict[str | int, Tensor] = {}

    def take(self, slot: str | int, shape: Sequence[int], like: Tensor) -> Tensor:
        """An uninitialized channels-last tensor; what the slot held before is overwritten."""
        count, channels, height, width = shape
        size = math.prod(shape)
        flat = self._flat.get(slot)
        if flat is None or len(flat) < size or flat.dtype != like.dtype or flat.device != like.device:
            flat = self._flat[slot] = torch.empty(size, dtype=like.dtype, device=like.device)
        return flat[:size].view(count, height, width, channels).permute(0, 3, 1, 2)


_workspace = _Workspace()


def keep_small_blocks() -> None:
    """Tell the C library's allocator to keep freed blocks of up to 32 MB instead of returning them to the system.

    glibc adapts to the largest block that was ever freed; once it has seen this one, the temporaries of a chunk are
    recycled. Elsewhere this does nothing of note.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def _pool_into(target: Tensor, x: Tensor) -> None:
    """``pool`` by two maxima, without the positions that torch's own pooling records."""
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
    x = F.batch_norm(x, mean, variance, weight, bias, training=False, eps=epsilon).relu_()
    return x if add is None else x.add_(add)


class _Gather:
    """Collects the statistics of chunks and joins them (Chan et al. 1979) in double precision, where there is one."""

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


class Views(NamedTuple):
    """The augmented views of one batch, shared by all members. (N, C, H, W) each"""

    first: Tensor
    second: Tensor


@torch.inference_mode()
def member_labels(
    network: ClusterNetwork, theta: Tensor, views: Views, chunk: int, precision: Precision = "float32"
) -> tuple[Tensor, Tensor] | None:
    """Labels (N,) of both views under θ, or None if the network's outputs are not finite."""
    parameters = unflatten(theta, network)
    labels = []
    for view in views:
        # Only of our own network is it known how to walk it layer by layer.
        if isinstance(network, ResNet9):
            logits, _ = batch_logits(network, parameters, view, chunk, precision)
        else:
            logits = whole_logits(network, parameters, view, precision)
        if not bool(logits.isfinite().all()):
            return None
        labels.append(logits.argmax(-1))
    return labels[0], labels[1]


def scores(
    network: ClusterNetwork,
    theta: Tensor,
    generation: evolution.Generation,
    views: Views,
    score: evolution.Score,
    workers: Executor,
    precision: Precision = "float32",
    world: ProcessGroup = SINGLE,
) -> Tensor:
    """The score of every member of a generation, (m,); NaN where the network's outputs are not finite.

    Several processes take some of the mirrored pairs each. Noise is made where it is needed: only scores travel.
    """

    def labels_of(member: int) -> tuple[Tensor, Tensor] | None:
        (parameters,) = evolution.ask(theta, generation, range(member, member + 1))
        labels = member_labels(network, parameters, views, generation.settings.chunk, precision)
        # Scores count in double precision, which not every device has.
        return labels and (labels[0].cpu(), labels[1].cpu())

    hold_still(network)
    # The score itself is called here, member by member in order: it may be the user's and need not be thread-safe.
    members = world.part(generation.settings.population, unit=2)
    values = [float("nan") if labels is None else float(score(*labels)) for labels in workers.map(labels_of, members)]
    return world.join_parts(torch.tensor(values, dtype=torch.double), generation.settings.population, unit=2)


@torch.no_grad()
def refresh(
    network: ClusterNetwork, views: Views, chunk: int, workers: Executor, precision: Precision = "float32"
) -> tuple[Tensor, Tensor]:
    """Label a batch with the network itself in training mode and move its running statistics once per view."""
    if not isinstance(network, ResNet9):
        hold_still(network)
        with lowered(precision, views.first.device):
            return network(views.first).argmax(-1), network(views.second).argmax(-1)
    parameters = {name: value.detach() for name, value in network.named_parameters()}

    def forward(view: Tensor) -> tuple[Tensor, list[Statistics]]:
        return batch_logits(network, parameters, view, chunk, precision)

    (logits_i, statistics_i), (logits_j, statistics_j) = workers.map(forward, views)
    for statistics in (statistics_i, statistics_j):
        for unit, seen in zip(network.units, statistics, strict=True):
            assert isinstance(unit, Unit)
            _move_running_statistics(unit.norm, seen)
    return logits_i.argmax(-1), logits_j.argmax(-1)


def _move_running_statistics(norm: torch.nn.BatchNorm2d, seen: Statistics) -> None:
    """What BatchNorm does in a training-mode forward pass; the running variance is the unbiased one."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.momentum is not None
    assert norm.num_batches_tracked is not None
    unbiased = seen.variance * (seen.values / max(1, seen.values - 1))
    norm.running_mean.lerp_(seen.mean, norm.momentum)
    norm.running_var.lerp_(unbiased, norm.momentum)
    norm.num_batches_tracked += 1
