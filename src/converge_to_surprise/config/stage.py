"""One stage of the schedule, as data and as text."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Literal

from .checks import MOST, SettingError, check

StageKind = Literal["evolution", "guided", "graph", "relaxed", "merge", "refine", "consolidate"]
EVOLVING = ("evolution", "guided")
"""Kinds of stages that score a population; they can be interleaved with consolidation."""
PARTIAL = ("graph", "relaxed", "refine")
"""Kinds of stages that may end within an epoch."""


@dataclass(frozen=True)
class Stage:
    """A part of the schedule: which search, for how long, and how often to consolidate.

    Written ``name=kind:epochs`` or ``name=kind:epochs:passes@every``, and with ``?`` at the end if it is optional.

    >>> Stage.parse("strong=evolution:1000:4@25")
    Stage(name='strong', kind='evolution', epochs=1000, passes=4, every=25, optional=False)
    >>> [str(Stage.parse(text)) for text in ("explore=evolution:2000", "search 4=relaxed:0.25?")]
    ['explore=evolution:2000', 'search 4=relaxed:0.25?']
    """

    name: str
    kind: StageKind
    epochs: float
    """Passes over the images; those of a population or of consolidation are whole ones."""
    passes: int = 0
    every: int = 0
    optional: bool = False
    """Whether the stage is skipped once the number of clusters that hold has stopped growing."""

    def __post_init__(self) -> None:
        kinds = typing.get_args(StageKind)
        check(self.kind in kinds, f"kind of stage {self.name}", self.kind, "one of " + ", ".join(kinds))
        if self.kind in PARTIAL:
            check(0 < self.epochs <= MOST, f"epochs of stage {self.name}", self.epochs, "above 0")
        else:
            whole = self.epochs >= 1 and float(self.epochs).is_integer()
            check(whole, f"epochs of stage {self.name}", self.epochs, "a whole number of at least 1")
        check(
            not self.optional or self.kind in ("graph", "relaxed"),
            f"stage {self.name}",
            str(self),
            "without ?: only graph and relaxed stages are optional",
        )
        paired = (1 <= self.passes <= MOST and 1 <= self.every <= MOST) or self.passes == self.every == 0
        check(paired, f"passes@every of stage {self.name}", f"{self.passes}@{self.every}", "two numbers of at least 1")
        check(
            self.passes == 0 or self.kind in EVOLVING,
            f"passes@every of stage {self.name}",
            f"{self.passes}@{self.every}",
            "absent: only a stage of evolution is interleaved with consolidation",
        )

    @classmethod
    def parse(cls, text: str) -> Stage:
        try:
            name, _, rest = text.rpartition("=")
            kind, epochs, *periodic = rest.removesuffix("?").split(":")
            passes, every = periodic[0].split("@") if periodic else ("0", "0")
            if len(periodic) > 1:
                raise ValueError
            length = float(epochs)
            consolidation = int(passes), int(every)
        except (ValueError, IndexError):
            raise SettingError(
                f"schedule stage {text!r} is not of the form name=kind:epochs or name=kind:epochs:passes@every, "
                "for example strong=evolution:1000:4@25"
            ) from None
        return cls(name or kind, typing.cast(StageKind, kind), _shortest(length), *consolidation, rest.endswith("?"))

    def __str__(self) -> str:
        periodic = f":{self.passes}@{self.every}" if self.passes else ""
        return f"{self.name}={self.kind}:{_shortest(self.epochs)}{periodic}{'?' if self.optional else ''}"


def _shortest(epochs: float) -> float:
    """Whole numbers without a decimal point."""
    return int(epochs) if float(epochs).is_integer() else epochs
