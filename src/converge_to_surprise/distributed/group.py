"""The processes that work on one run together: who takes what, and how the parts come together.

Every process holds the whole network. What is random is drawn by all of them alike, so little has to travel: scores of
a population, sums of a batch, labels. Alone, every function here is the identity.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..core.views import Share
from .collectives import all_gather, all_sum


class _Sum(torch.autograd.Function):
    """The sum over all processes of a term that each of them has.

    What is made of the sum is the same everywhere and counts once, so the gradient of a process's own term is the
    gradient of the sum: nothing travels on the way back.
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
    local: int = 1
    """How many of the processes are on this machine."""

    @property
    def alone(self) -> bool:
        return self.size == 1

    def share(self, count: int, unit: int = 1) -> range:
        """Which of ``count`` things this process takes: whole units, in order, near-equal.

        If there are fewer units than processes, each of them takes all: what is so small need not travel.

        >>> [ProcessGroup(rank, 3).share(10) for rank in range(3)]
        [range(0, 3), range(3, 6), range(6, 10)]
        >>> [ProcessGroup(rank, 2).share(10, unit=4) for rank in range(2)]
        [range(0, 4), range(4, 10)]
        """
        return range(count) if -(-count // unit) < self.size else self.part(count, unit)

    def part(self, count: int, unit: int = 1, rank: int | None = None) -> range:
        """The same, of this process or another, for what is done once only: if there are fewer units than processes,
        some of them take none.
        """
        units, place = -(-count // unit), self.rank if rank is None else rank
        start, stop = (units * edge // self.size * unit for edge in (place, place + 1))
        return range(start, min(stop, count))

    def own(self, rows: Tensor, unit: int = 1) -> Tensor:
        """This process's share of some rows."""
        share = self.share(len(rows), unit)
        return rows[share.start : share.stop]

    def batch(self, count: int) -> tuple[ProcessGroup, Share | None]:
        """Who works on a batch, and the rows that this process takes; with too few rows each works alone on all."""
        return (SINGLE, None) if self.alone or count < self.size else (self, Share(self.share(count), count))

    def gather(self, part: Tensor, count: int, unit: int = 1) -> Tensor:
        """All ``count`` rows from the shares of all processes."""
        return part if -(-count // unit) < self.size else self.join_parts(part, count, unit)

    def join_parts(self, part: Tensor, count: int, unit: int = 1) -> Tensor:
        """All ``count`` rows from the parts of all processes."""
        if self.alone:
            return part
        if 0 in part.shape[1:]:
            return part.new_empty(count, *part.shape[1:])
        sizes = [len(self.part(count, unit, rank)) for rank in range(self.size)]
        padded = part.new_zeros(max(sizes), *part.shape[1:])
        padded[: len(part)] = part
        return torch.cat([whole[:size] for whole, size in zip(all_gather(padded), sizes, strict=True)])

    def sum(self, term: Tensor) -> Tensor:
        """The sum of every process's term, with its gradient."""
        return term if self.alone else cast(Tensor, _Sum.apply(term))  # type: ignore[no-untyped-call]

    def sum_gradients(self, network: nn.Module) -> None:
        """Add up what each process's share of a batch says about the parameters."""
        if self.alone:
            return
        gradients = [p.grad for p in network.parameters() if p.grad is not None]
        flat = all_sum(torch.cat([gradient.reshape(-1) for gradient in gradients]))
        pieces = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, piece in zip(gradients, pieces, strict=True):
            gradient.copy_(piece.view(gradient.shape))

    def broadcast(self, tensors: Iterable[Tensor], source: int = 0) -> None:
        """Overwrite tensors in place with those of one process."""
        for tensor in () if self.alone else tensors:
            whole = tensor.contiguous()
            dist.broadcast(whole, source)
            tensor.copy_(whole)

    def tell(self, message: bytes = b"") -> bytes:
        """What the first process says, to all."""
        if self.alone:
            return message
        size = torch.tensor([len(message)])
        dist.broadcast(size, 0)
        kind = torch.uint8
        received = torch.frombuffer(bytearray(message), dtype=kind) if message else torch.empty(int(size), dtype=kind)
        if len(received):
            dist.broadcast(received, 0)
        return received.numpy().tobytes()

    @torch.no_grad()
    def agree(self, tensors: Sequence[Tensor]) -> None:
        """Compare a checksum of what should be the same everywhere; who has drifted gets what most have, in place."""
        if self.alone:
            return
        own = torch.frombuffer(bytearray(_digest(tensors)), dtype=torch.int64)
        digests = self.gather(own, self.size).tolist()
        usual = Counter(digests).most_common(1)[0][0]
        strays = [rank for rank, digest in enumerate(digests) if digest != usual]
        if not strays:
            return
        if self.rank == 0:
            who = ", ".join(map(str, strays))
            warnings.warn(f"process {who} had other weights than the rest and was set right", stacklevel=2)
        self.broadcast(tensors, digests.index(usual))


SINGLE = ProcessGroup()


def _digest(tensors: Iterable[Tensor]) -> bytes:
    """Eight bytes that differ when any bit does."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.digest()[:8]
