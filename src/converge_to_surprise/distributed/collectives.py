"""Collective operations with as few round trips as possible.

On CPUs every process sends to every other directly and adds what it receives in the order of the ranks, so that all
processes obtain the same bits. The ring algorithms of gloo need n - 1 (gather) or 2 (n - 1) (sum) round trips, which
dominates a step on a network with some latency. GPUs, and groups too large for all-to-all messages, use the backend's
own algorithms.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

MAX_DIRECT = 64
"""Largest group in which every process sends to every other."""
LARGE = 16_384
"""Numbers from which on a sum is split among the processes: two round trips, but n times less to send."""


def all_gather(own: Tensor) -> Tensor:
    """The tensor of every process, by rank. (n, *shape)"""
    processes = dist.get_world_size()
    found = own.new_empty(processes, *own.shape)
    if _direct(own, processes):
        dist.all_to_all_single(found.view(-1), own.reshape(-1).repeat(processes))
    else:
        dist.all_gather(list(found), own.contiguous())
    return found


def all_sum(own: Tensor) -> Tensor:
    """The sum of the tensors of all processes, with the same bits in every process."""
    processes, flat = dist.get_world_size(), own.reshape(-1)
    if not _direct(own, processes):
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


def _direct(own: Tensor, processes: int) -> bool:
    return own.device.type == "cpu" and processes <= MAX_DIRECT
