"""Batch normalization over a batch that is split among several processes.

Each process holds some rows of the batch; mean, variance and gradient are those of all rows. ``torch.nn.SyncBatchNorm``
runs on CUDA only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .group import ProcessGroup, all_sum


def stripes(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and (biased) variance of every channel of x (B, C, ...), in equal stripes of its pixels. (n, C) each

    Adjacent pixels are joined into rows that are wide enough for vector instructions; each column block is a stripe.
    """
    channels = x.shape[1]
    rows = x.movedim(1, -1).reshape(-1, channels)
    count = math.gcd(len(rows), max(1, 64 // channels))
    wide = rows.reshape(-1, count * channels)
    if x.is_cpu:
        # Running statistics in float32 make the result float32 for 16-bit activations; they are not used.
        unused = wide.new_zeros(wide.shape[1], dtype=torch.float32) if x.element_size() == 2 else None
        mean, variance = torch.batch_norm_update_stats(wide, unused, unused, 0.0)
    else:  # not available on MPS
        variance, mean = torch.var_mean(wide.float() if x.element_size() == 2 else wide, 0, correction=0)
    return mean.view(count, channels), variance.view(count, channels)


def own_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and (biased) variance of every channel of x (B, C, ...), (C,) doubles each."""
    means, variances = (values.double() for values in stripes(x))
    whole = means.mean(0)
    return whole, (variances + (means - whole) ** 2).mean(0)


class _Normalize(torch.autograd.Function):
    """Normalize by the statistics of the whole batch; also returns those statistics and the number of values."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        values = x.numel() // x.shape[1]
        mean, variance = own_statistics(x)
        sums = all_sum(torch.cat([mean * values, (variance + mean**2) * values, mean.new_tensor([values])]))
        total = sums[-1]
        mean, square = (sums[:-1] / total).tensor_split(2)
        variance = (square - mean**2).clamp(min=0)
        # In the precision of the weights, also where the activations have fewer bits.
        mean, variance = mean.to(weight.dtype), variance.to(weight.dtype)
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.epsilon, ctx.total = epsilon, float(total)
        ctx.mark_non_differentiable(mean, variance, total)
        return F.batch_norm(x, mean, variance, weight, bias, training=False, eps=epsilon), mean, variance, total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weight, mean, variance = ctx.saved_tensors
        gradient = gradients[0].contiguous(memory_format=torch.channels_last) if x.ndim == 4 else gradients[0]
        spread = (variance + ctx.epsilon).rsqrt()
        # Sums over this process's rows; the gradients of weight and bias are summed over processes with all others
        # later.
        _, for_weight, for_bias = torch.ops.aten.native_batch_norm_backward(
            gradient, x, weight, mean, variance, mean, spread, False, ctx.epsilon, [False, True, True]
        )
        sums = all_sum(torch.cat([for_weight, for_bias]).double())
        along, level = (sums / ctx.total).to(weight.dtype).tensor_split(2)
        # dx = weight * spread * (dy - level - (x - mean) * spread * along): one affine map of x and dy per channel.
        scale = weight * spread
        slope = -scale * spread * along
        shift = -scale * level - slope * mean

        def wide(values: Tensor) -> Tensor:
            return values.view(1, -1, *(1,) * (x.ndim - 2))

        back = (x * wide(slope)).add_(wide(shift)).addcmul_(gradient, wide(scale))
        return back.to(x.dtype), for_weight, for_bias, None


def _forward(norm: _BatchNorm, x: Tensor) -> Tensor:
    if not norm.training:
        return type(norm).forward(norm, x)
    ones, zeros = (torch.full(x.shape[1:2], value, device=x.device) for value in (1.0, 0.0))
    weight, bias = ones if norm.weight is None else norm.weight, zeros if norm.bias is None else norm.bias
    normalized, mean, variance, total = _Normalize.apply(x, weight, bias, norm.eps)  # type: ignore[no-untyped-call]
    if norm.running_mean is not None and norm.running_var is not None:
        assert norm.num_batches_tracked is not None
        norm.num_batches_tracked += 1
        share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
        with torch.no_grad():
            norm.running_mean.lerp_(mean, share)
            norm.running_var.lerp_(variance * (total / (total - 1).clamp(min=1)).to(variance.dtype), share)
    return cast(Tensor, normalized)


@contextmanager
def synced_batchnorm(network: nn.Module, group: ProcessGroup) -> Iterator[None]:
    """Within the block, batch normalization in training mode uses the statistics of all processes' rows."""
    norms = [] if group.is_single else [module for module in network.modules() if isinstance(module, _BatchNorm)]
    for norm in norms:
        norm.forward = partial(_forward, norm)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward
