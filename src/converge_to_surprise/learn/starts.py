"""Several random starts of one run: what each came to, and which is taken.

From another start the same search may draw another border, and no class is there to say which is right. What merging
has swept together by mistake shows in the sizes: one cluster is then far larger than the others. So the start with the
most even clusters is taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from ..config import Config
from ..core.metrics import evenness
from .backbone import Backbone
from .labelling import read_whole
from .merge import Choice
from .network import ClusterNetwork
from .randomness import start_seeds
from .snapshot import Snapshot, merged_of, network_of, networks, searched_network_of
from .world import ALONE, World

PREFIX = "best."
"""What the names of the best start's tensors begin with."""


class Outcome(NamedTuple):
    """What a start came to."""

    start: int
    network: ClusterNetwork
    searched: ClusterNetwork | None
    """The network before merging, with the head that was chosen, if there was a merge."""
    merged: Choice | None


class Starts:
    """The starts of a run that are done."""

    def __init__(self, evenness: list[float] | None = None, best: Outcome | None = None) -> None:
        self.evenness = evenness or []
        """Of the clusters that each of them came to."""
        self.best = best
        """The one with the most even clusters, the first of them if there are several."""

    def add(self, outcome: Outcome, images: Tensor, config: Config, world: World = ALONE) -> None:
        """Judge a start by the clusters of the images, as they would be handed to the user."""
        reading = read_whole(outcome.network.single(), images, config.views, 1.0, probabilities=False, world=world)
        found = evenness(reading.output.bincount().tolist())
        if found > max(self.evenness, default=-1.0):
            self.best = outcome
        self.evenness.append(found)

    def pack(self) -> Snapshot:
        """Tensors and plain data, to be laid beside those of the start at work."""
        if self.best is None:
            return Snapshot({}, {"evenness": [], "best": None})
        tensors, data = networks(self.best.network, self.best.searched, self.best.merged)
        best = {"start": self.best.start, **data}
        return Snapshot(
            {f"{PREFIX}{name}": value for name, value in tensors.items()},
            {"evenness": list(self.evenness), "best": best},
        )

    @classmethod
    def of(cls, snapshot: Snapshot, config: Config, channels: int, backbone: Backbone | None = None) -> Starts:
        """The starts in a snapshot."""
        part = best_part(snapshot)
        if part is None:
            return cls()
        network = network_of(part, config, channels, backbone)
        searched = searched_network_of(part, config, channels, backbone)
        return cls(list(snapshot.data["evenness"]), Outcome(part.data["start"], network, searched, merged_of(part)))

    def summary(self, config: Config) -> dict[str, Any] | None:
        """As plain data for the result of a run; None if it had only one start."""
        if self.best is None:
            return None
        return {
            "seeds": start_seeds(config.seed, len(self.evenness)),
            "evenness": self.evenness,
            "taken": self.best.start,
        }


def best_part(snapshot: Snapshot) -> Snapshot | None:
    """The best start as a snapshot of its own, within that of a run; None before one is done."""
    data = snapshot.data.get("best")  # runs of earlier versions have one start
    if data is None:
        return None
    names = [name for name in snapshot.tensors if name.startswith(PREFIX)]
    return Snapshot({name.removeprefix(PREFIX): snapshot.tensors[name] for name in names}, data)
