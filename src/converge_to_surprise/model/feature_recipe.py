"""What stored features depend on, besides the pictures or the embeddings they are made of, as plain data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..config import Augmentation, Config, Views
from ..config.files import overlay, typed
from .pretrained import Identity

FORMAT = 1
"""Changes whenever the same recipe would give other features."""


@dataclass(frozen=True)
class FeatureRecipe:
    """Everything besides the pictures on which their stored features depend."""

    identity: Identity
    views: Views
    augmentation: Augmentation
    copies: int
    """Augmented copies of each view, besides the view itself."""
    components: int
    """Principal components that are kept."""

    def __post_init__(self) -> None:
        if self.copies < 1 or self.components < 2:
            raise ValueError(f"{self.copies} copies of {self.components} components make no features")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of the pictures that the backbone is given."""
        side = self.identity.preprocess.size
        return 3, side, side

    @property
    def features(self) -> int:
        """Values that the backbone gives for a view."""
        return self.identity.features

    def to_dict(self) -> dict[str, Any]:
        """As plain data, the inverse of ``from_dict``."""
        return asdict(self) | {"identity": self.identity.to_dict()}

    @classmethod
    def from_dict(cls, data: Any) -> FeatureRecipe:
        if not isinstance(data, Mapping) or data.keys() != cls.__dataclass_fields__.keys():
            raise ValueError("the record of stored features is not complete")
        copies, components = (typed(data[name], int, name) for name in ("copies", "components"))
        made = overlay(Config(), {name: data[name] for name in ("views", "augmentation")})
        return cls(Identity.from_dict(data["identity"]), made.views, made.augmentation, copies, components)

    def key(self, fingerprint: str) -> str:
        """A hash of everything on which the un-projected features of images with this fingerprint depend."""
        identity = self.identity.to_dict() | {"source": None, "pinned": None}  # the checksum names the backbone
        parts = [FORMAT, fingerprint, identity, asdict(self.views), asdict(self.augmentation), self.copies]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]


@dataclass(frozen=True)
class EmbeddingRecipe:
    """The same for embeddings that the user gave."""

    features: int
    """Values of a vector (D)."""
    views: int
    """Views of each item (V)."""
    copies: int
    """Random halves that are stored of a single view, besides the fixed ones; 0 for several views."""
    components: int
    """Principal components that are kept."""

    def __post_init__(self) -> None:
        if self.features < 2 or self.views < 1 or self.copies < 0 or self.components < 2:
            raise ValueError(f"{self.views} views of {self.features} values make no features")

    @property
    def sides(self) -> int:
        """Views that are stored of each item: those given, or two halves of a single one."""
        return max(2, self.views)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, the inverse of ``from_dict``."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> EmbeddingRecipe:
        if not isinstance(data, Mapping) or data.keys() != cls.__dataclass_fields__.keys():
            raise ValueError("the record of embeddings is not complete")
        return cls(**{name: typed(data[name], int, name) for name in cls.__dataclass_fields__})

    def key(self, fingerprint: str) -> str:
        """A hash of everything on which the stored components of embeddings with this fingerprint depend."""
        return hashlib.sha256(json.dumps([FORMAT, fingerprint, asdict(self)]).encode()).hexdigest()[:40]


Recipe = FeatureRecipe | EmbeddingRecipe


def recipe_from_dict(data: Any) -> Recipe:
    """Either recipe from plain data."""
    return (
        FeatureRecipe.from_dict(data)
        if isinstance(data, Mapping) and "identity" in data
        else EmbeddingRecipe.from_dict(data)
    )
