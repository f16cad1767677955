"""The record of a run's backbone: its source, its checksum and its preprocessing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from ...config.checks import is_number

Resample = Literal["bilinear", "bicubic", "nearest", "lanczos"]
Triple = tuple[float, float, float]

SMALLEST, LARGEST = 8, 1024
"""Sides of an input in pixels."""


@dataclass(frozen=True)
class PreprocessFlags:
    """The user's settings of a backbone's input; None: as the model defines it."""

    size: int | None = None
    """Side of the square input in pixels."""
    mean: Triple | None = None
    """Subtracted from each color, for values in [0, 1]."""
    std: Triple | None = None
    """Each color is then divided by it."""


@dataclass(frozen=True)
class Preprocess:
    """How pictures become the input of a backbone: (x − mean) / std for x in [0, 1], at ``size`` × ``size`` pixels."""

    size: int
    mean: Triple
    std: Triple
    resample: Resample

    def __post_init__(self) -> None:
        if type(self.size) is not int or not SMALLEST <= self.size <= LARGEST:
            raise ValueError(f"the input size is {self.size!r}; it must be {SMALLEST} to {LARGEST} pixels")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if not isinstance(values, tuple) or len(values) != 3 or not all(map(is_number, values)):
                raise ValueError(f"{name} is {values!r}; it must be three numbers, one for each color")
        if min(self.std) <= 0:
            raise ValueError(f"std is {self.std!r}; it must be above 0")
        if self.resample not in get_args(Resample):
            raise ValueError(f"resample is {self.resample!r}; it must be one of {', '.join(get_args(Resample))}")

    def to_dict(self) -> dict[str, Any]:
        """JSON values; ``from_dict`` is the inverse.

        >>> Preprocess(224, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2), "bicubic").to_dict()["mean"]
        [0.5, 0.5, 0.5]
        """
        return {**asdict(self), "mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_dict(cls, data: Any) -> Preprocess:
        if not isinstance(data, Mapping) or set(data) != {"size", "mean", "std", "resample"}:
            raise ValueError("a backbone's preprocessing must have size, mean, std and resample")
        return cls(data["size"], triple(data["mean"]), triple(data["std"]), data["resample"])


@dataclass(frozen=True)
class Identity:
    """Which backbone made the features of a run."""

    source: str
    """As the user wrote it: a path, hf:ORG/NAME@REVISION, or a short name."""
    sha256: str
    """Of the file; of several files, that of the lines ``sha256sum`` prints for them (see ``checksum``)."""
    preprocess: Preprocess
    features: int
    """Length D of a feature vector."""
    pinned: str | None = None
    """For models of the hub: hf:ORG/NAME@COMMIT, which opens the same files again when the branch has moved on."""

    def __post_init__(self) -> None:
        if not isinstance(self.source, str) or not (self.pinned is None or isinstance(self.pinned, str)):
            raise ValueError(f"the source of a backbone is {self.source!r}; it must be text")
        if not isinstance(self.sha256, str) or len(self.sha256) != 64 or set(self.sha256) - set("0123456789abcdef"):
            raise ValueError(f"the sha256 of a backbone is {self.sha256!r}; it must be 64 hexadecimal digits")
        if type(self.features) is not int or self.features < 1:
            raise ValueError(f"the features of a backbone are {self.features!r}; they must be at least 1")

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "preprocess": self.preprocess.to_dict()}

    @classmethod
    def from_dict(cls, data: Any) -> Identity:
        names = {"source", "sha256", "preprocess", "features", "pinned"}
        if not isinstance(data, Mapping) or set(data) != names:
            raise ValueError(f"the record of a backbone must have {', '.join(sorted(names))}")
        return cls(**{**data, "preprocess": Preprocess.from_dict(data["preprocess"])})


def triple(values: Any) -> Triple:
    """Three numbers from a list; one number or a list of one stands for all three colors.

    >>> triple([0.5, 0.25, 1])
    (0.5, 0.25, 1.0)
    """
    given = list(values) if isinstance(values, list | tuple) else [values]
    if len(given) == 1:
        given *= 3
    if len(given) != 3 or not all(map(is_number, given)):
        raise ValueError(f"{values!r} must be three numbers, one for each color")
    return float(given[0]), float(given[1]), float(given[2])
