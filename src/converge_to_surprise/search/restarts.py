"""Several random starts of one run: what each came to, and which is taken.

From another start the same search may draw another boundary, and no class is there to say which is right. What merging
has swept together by mistake shows in the sizes: one cluster is then far larger than the others. So the start with the
best balanced clusters is taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from ..config import Config
from ..core.metrics import balance
from ..core.rng import start_seeds
from ..distributed.group import SINGLE, ProcessGroup
from ..model.backbone import Backbone
from ..model.inference import read_whole
from ..model.network import ClusterNetwork
from .merge import MergeResult
from .snapshot import Snapshot, merged_of, network_of, networks, unmerged_network_of

PREFIX = "best."
"""What the names of the best start's tensors begin with."""


class Outcome(NamedTuple):
    """What a start came to."""

    start: int
    network: ClusterNetwork
    unmerged: ClusterNetwork | None
    """The network before merging, with the head that was chosen, if there was a merge."""
    merged: MergeResult | None


class Starts:
    """The starts of a run that are done."""

    def __init__(self, balance: list[float] | None = None, best: Outcome | None = None) -> None:
        self.balance = balance or []
        """Of the clusters that each of them came to."""
        self.best = best
        """The one with the best balanced clusters, the first of them if there are several."""

    def add(self, outcome: Outcome, images: Tensor, config: Config, world: ProcessGroup = SINGLE) -> None:
        """Judge a start by the clusters of the images, as they would be handed to the user."""
        reading = read_whole(outcome.network.single(), images, config.views, 1.0, probabilities=False, world=world)
        found = balance(reading.output.bincount().tolist())
        if found > max(self.balance, default=-1.0):
            self.best = outcome
        self.balance.append(found)

    def pack(self) -> Snapshot:
        """Tensors and plain data, to be laid beside those of the start at work."""
        if self.best is None:
            return Snapshot({}, {"balance": [], "best": None})
        tensors, data = networks(self.best.network, self.best.unmerged, self.best.merged)
        best = {"start": self.best.start, **data}
        return Snapshot(
            {f"{PREFIX}{name}": value for name, value in tensors.items()},
            {"balance": list(self.balance), "best": best},
        )

    @classmethod
    def of(cls, snapshot: Snapshot, config: Config, channels: int, backbone: Backbone | None = None) -> Starts:
        """The starts in a snapshot."""
        part = best_part(snapshot)
        if part is None:
            return cls()
        network = network_of(part, config, channels, backbone)
        unmerged = unmerged_network_of(part, config, channels, backbone)
        return cls(list(snapshot.data["balance"]), Outcome(part.data["start"], network, unmerged, merged_of(part)))

    def summary(self, config: Config) -> dict[str, Any] | None:
        """As plain data for the result of a run; None if it had only one start."""
        if self.best is None:
            return None
        return {
            "seeds": start_seeds(config.seed, len(self.balance)),
            "balance": self.balance,
            "taken": self.best.start,
        }


def best_part(snapshot: Snapshot) -> Snapshot | None:
    """The best start as a snapshot of its own, within that of a run; None before one is done."""
    data = snapshot.data.get("best")  # runs of earlier versions have one start
    if data is None:
        return None
    names = [name for name in snapshot.tensors if name.startswith(PREFIX)]
    return Snapshot({name.removeprefix(PREFIX): snapshot.tensors[name] for name in names}, data)
