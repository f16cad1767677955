"""The processes that share one run: which part each of them takes, and how the parts are put together.

Every process holds the whole network. Random numbers are drawn identically by all of them, so little is transferred:
scores of a population, sums over a batch, labels. In a group of one process every method is the identity.

On CPUs every process sends to every other directly and adds what it receives in the order of the ranks, so that all
processes obtain the same bits. The ring algorithms of gloo need n - 1 (gather) or 2 (n - 1) (sum) round trips, which
dominates a step on a network with some latency. GPUs, and groups too large for all-to-all messages, use the backend's
own algorithms.

The group is active within ``with active(group):``, and ``current()`` returns it there. Threads started within the
block do not inherit it: a server thread that labels images must not take part in the collectives of the training.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.views import Shard

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


class _Sum(torch.autograd.Function):
    """The sum of one term per process.

    Everything computed from the sum is the same in every process and counts once, so the gradient with respect to a
    process's own term is the gradient with respect to the sum: nothing is transferred in the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, term: Tensor) -> Tensor:
        return all_sum(term)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


@dataclass(frozen=True)
class ProcessGroup:
    """This process among those that work on a run."""

    rank: int = 0
    size: int = 1
    local_size: int = 1
    """Number of the group's processes on this machine."""

    @property
    def is_single(self) -> bool:
        return self.size == 1

    def share(self, count: int, unit: int = 1) -> range:
        """The range of ``count`` items that this process takes: whole units, in order, nearly equal.

        If there are fewer units than processes, every process takes all of them: so little is not worth a transfer.

        >>> [ProcessGroup(rank, 3).share(10) for rank in range(3)]
        [range(0, 3), range(3, 6), range(6, 10)]
        >>> [ProcessGroup(rank, 2).share(10, unit=4) for rank in range(2)]
        [range(0, 4), range(4, 10)]
        """
        return range(count) if -(-count // unit) < self.size else self.part(count, unit)

    def part(self, count: int, unit: int = 1, rank: int | None = None) -> range:
        """The same for work that must be done exactly once: with fewer units than processes, some take none."""
        units, place = -(-count // unit), self.rank if rank is None else rank
        start, stop = (units * edge // self.size * unit for edge in (place, place + 1))
        return range(start, min(stop, count))

    def own(self, rows: Tensor, unit: int = 1) -> Tensor:
        """The rows that this process takes."""
        share = self.share(len(rows), unit)
        return rows[share.start : share.stop]

    def shard(self, count: int) -> tuple[ProcessGroup, Shard | None]:
        """The group for a batch of ``count`` rows, and the shard of this process; a small batch is not split."""
        return (SINGLE, None) if self.is_single or count < self.size else (self, Shard(self.share(count), count))

    def gather(self, part: Tensor, count: int, unit: int = 1) -> Tensor:
        """All ``count`` rows from what ``share`` gave to each process."""
        return part if -(-count // unit) < self.size else self.join_parts(part, count, unit)

    def join_parts(self, part: Tensor, count: int, unit: int = 1) -> Tensor:
        """All ``count`` rows from what ``part`` gave to each process."""
        if self.is_single:
            return part
        if 0 in part.shape[1:]:
            return part.new_empty(count, *part.shape[1:])
        sizes = [len(self.part(count, unit, rank)) for rank in range(self.size)]
        padded = part.new_zeros(max(sizes), *part.shape[1:])
        padded[: len(part)] = part
        return torch.cat([whole[:size] for whole, size in zip(all_gather(padded), sizes, strict=True)])

    def sum(self, term: Tensor) -> Tensor:
        """The sum over all processes, differentiable."""
        return term if self.is_single else cast(Tensor, _Sum.apply(term))  # type: ignore[no-untyped-call]

    def sum_gradients(self, network: nn.Module) -> None:
        """Add the gradients of all processes, in place."""
        if self.is_single:
            return
        gradients = [p.grad for p in network.parameters() if p.grad is not None]
        flat = all_sum(torch.cat([gradient.reshape(-1) for gradient in gradients]))
        pieces = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, piece in zip(gradients, pieces, strict=True):
            gradient.copy_(piece.view(gradient.shape))

    @torch.no_grad()
    def broadcast_tensors(self, tensors: Iterable[Tensor], source: int = 0) -> None:
        """Overwrite tensors in place with those of one process."""
        for tensor in () if self.is_single else tensors:
            whole = tensor.contiguous()
            dist.broadcast(whole, source)
            tensor.copy_(whole)

    def broadcast(self, message: bytes = b"") -> bytes:
        """The message of the first process, in every process."""
        if self.is_single:
            return message
        size = torch.tensor([len(message)])
        dist.broadcast(size, 0)
        kind = torch.uint8
        received = torch.frombuffer(bytearray(message), dtype=kind) if message else torch.empty(int(size), dtype=kind)
        if len(received):
            dist.broadcast(received, 0)
        return received.numpy().tobytes()

    def barrier(self) -> None:
        """Wait for every process."""
        self.gather(torch.zeros(1), self.size)

    @torch.no_grad()
    def check_sync(self, tensors: Sequence[Tensor]) -> None:
        """Compare checksums of tensors that must be equal in every process; correct, in place, those that differ."""
        if self.is_single:
            return
        own = torch.frombuffer(bytearray(_digest(tensors)), dtype=torch.int64)
        digests = self.gather(own, self.size).tolist()
        majority = Counter(digests).most_common(1)[0][0]
        differing = [rank for rank, digest in enumerate(digests) if digest != majority]
        if not differing:
            return
        if self.rank == 0:
            ranks = ", ".join(map(str, differing))
            warnings.warn(f"the weights of process {ranks} differed from the others and were corrected", stacklevel=2)
        self.broadcast_tensors(tensors, digests.index(majority))


SINGLE = ProcessGroup()
_current: ContextVar[ProcessGroup] = ContextVar("process group", default=SINGLE)


def current() -> ProcessGroup:
    """The active process group; a group of this process alone if none is active."""
    return _current.get()


@contextmanager
def active(group: ProcessGroup) -> Iterator[ProcessGroup]:
    """Make a group the current one within the block."""
    token = _current.set(group)
    try:
        yield group
    finally:
        _current.reset(token)


def _digest(tensors: Iterable[Tensor]) -> bytes:
    """The first eight bytes of a SHA-256 over all tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.digest()[:8]
