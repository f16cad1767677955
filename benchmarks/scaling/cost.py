"""The cost of very many images on n hosts with one GPU each: computing, waiting for messages, reading.

Every function returns seconds. Nothing here is measured: it is arithmetic on measured rates and on the assumptions
below, which ``docs/scale.md`` lists.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from simnet.traffic import messages, rounds

from . import rates

RELAXED_IMAGES_PER_PAIR = 1.5
"""View j comes from another image in half of the pairs."""


@dataclass(frozen=True)
class Images:
    """A collection."""

    count: int
    side: int
    channels: int = 3

    @property
    def bytes_each(self) -> int:
        return self.channels * self.side**2


@dataclass(frozen=True)
class Site:
    """Assumptions about what is around the GPUs."""

    delay: float = 0.001
    """Seconds one way between hosts."""
    bandwidth: float = 1e9
    """Bits per second that a host can send."""
    disk_bytes: float = 2e9
    """Bytes per second that a host reads in order."""
    disk_reads: float = 200_000
    """Images per second that a host reads in random order."""
    way: str = "direct"

    def random_read(self, images: Images) -> float:
        return max(1 / self.disk_reads, images.bytes_each / self.disk_bytes)


class Cost(NamedTuple):
    """Seconds that follow one another, as the program neither computes while it waits nor reads ahead."""

    computing: float
    messages: float
    reading: float

    @property
    def total(self) -> float:
        return sum(self)

    @property
    def bottleneck(self) -> str:
        """The largest of the three."""
        return max(zip(self, self._fields, strict=True))[1]

    def times(self, steps: float) -> Cost:
        return Cost(*(steps * part for part in self))


def shared_members(hosts: int, members: int = rates.PAPER_MEMBERS) -> float:
    """Shard of one machine's update that each of n hosts does: its members, and the refresh of the statistics again.

    Members are shared out in mirrored pairs; with more hosts than pairs nothing is shared.

    >>> shared_members(1), round(shared_members(8), 3)
    (1.0, 0.152)
    """
    pairs = members // 2
    own = 2 * math.ceil(pairs / hosts) if hosts <= pairs else members
    return (own + 1) / (members + 1)


def evolution_step(images: Images, hosts: int, site: Site, batch: int = rates.PAPER_BATCH) -> Cost:
    """One update of the evolution: members are shared out, every host makes the views of the whole batch."""
    alone = 2 * batch * rates.PAPER_MEMBERS / rates.forward_rate(images.side, images.channels)
    waits = rounds("evolution", site.way, hosts) * 2 * site.delay if hosts > 1 else 0.0
    return Cost(alone * shared_members(hosts), waits, batch * site.random_read(images))


def relaxed_step(images: Images, hosts: int, site: Site, batch: int) -> Cost:
    """One step of the relaxed search: the batch is shared out."""
    computing = 2 * batch / hosts / rates.training_rate(images.side, images.channels)
    waits = 0.0
    if hosts > 1:
        # A sum moves 2 (n - 1) / n times its size through each host's link.
        moved = 4 * sum(messages("relaxed", hosts)) * 2 * (hosts - 1) / hosts
        waits = rounds("relaxed", site.way, hosts) * 2 * site.delay + 8 * moved / site.bandwidth
    return Cost(computing, waits, RELAXED_IMAGES_PER_PAIR * batch / hosts * site.random_read(images))


def labeling(images: Images, hosts: int, site: Site) -> Cost:
    """Both views of every image through the folded network, images read in order; one label each is sent."""
    share = images.count / hosts
    computing = 2 * share / rates.forward_rate(images.side, images.channels, folded=True)
    waits = 8 * 4 * share / site.bandwidth if hosts > 1 else 0.0
    return Cost(computing, waits, share * images.bytes_each / site.disk_bytes)


def memory(images: Images, neighbors: int = 5) -> dict[str, float]:
    """Bytes of what a training process holds for all images at once, beside the mapped images themselves."""
    return {"neighbors": 8 * neighbors * images.count, "drawing the pool of neighbors": 8 * images.count}
