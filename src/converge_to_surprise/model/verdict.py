"""The verdict on a run; ``judgment.py`` makes it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Strength = Literal["strong", "weak", "nothing found"]


@dataclass(frozen=True)
class Verdict:
    """How far the clusters of a run can be trusted, why, and what to try next."""

    strength: Strength
    reasons: list[str]
    advice: list[str]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def text(self) -> str:
        """One line.

        >>> Verdict("weak", ["heads agree in 62 %"], ["try a backbone"]).text
        'verdict: weak (heads agree in 62 %); try a backbone'
        """
        advice = f"; {', or '.join(self.advice)}" if self.advice else ""
        return f"verdict: {self.strength} ({'; '.join(self.reasons)}){advice}"
