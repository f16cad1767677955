"""Messages between processes, with as few round trips as there can be.

On CPUs every process writes to every other at once and adds up what it gets, in the order of the processes, so
that all have the same bits. gloo's own gathering and summing pass messages on in a ring, which takes n - 1 or 2 (n - 1)
round trips: over a network with some delay that is what a step would wait for (``docs/scale.md``). GPUs, and more
processes than can all write to each other, do it the backend's way.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

MANY = 64
"""Processes up to which each writes to every other."""
LARGE = 16_384
"""Numbers from which on a sum is made in parts, one by each process: two round trips, but n times less to send."""


def all_gather(own: Tensor) -> Tensor:
    """What every process has, in their order. (n, *shape)"""
    processes = dist.get_world_size()
    found = own.new_empty(processes, *own.shape)
    if _directly(own, processes):
        dist.all_to_all_single(found.view(-1), own.reshape(-1).repeat(processes))
    else:
        dist.all_gather(list(found), own.contiguous())
    return found


def all_sum(own: Tensor) -> Tensor:
    """The sum of what every process has, the same bits everywhere."""
    processes, flat = dist.get_world_size(), own.reshape(-1)
    if not _directly(own, processes):
        total = own.contiguous().clone()
        dist.all_reduce(total)
        return total
    if len(flat) < LARGE:
        return all_gather(flat).sum(0).view(own.shape)
    padded = F.pad(flat, (0, -len(flat) % processes))
    pieces = torch.empty_like(padded)
    dist.all_to_all_single(pieces, padded)
    whole = all_gather(pieces.view(processes, -1).sum(0))
    return whole.view(-1)[: len(flat)].view(own.shape)


def _directly(own: Tensor, processes: int) -> bool:
    return own.device.type == "cpu" and processes <= MANY
