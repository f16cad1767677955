"""What a fitted estimator has learned, as one safe file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data.arrays import Scale
from ..data.image_options import SkippedFile
from ..model import model_file as modelfile
from ..model.cluster_model import Model
from ..model.inference import Outputs
from .inputs import Input

FORMAT = "SurpriseClustering"


@dataclass(frozen=True)
class Fitted:
    """A model, what it says of the training images, and how they were made."""

    model: Model
    final: Outputs
    """Of the merged network."""
    unmerged: Outputs | None
    """Of the network before merging."""
    given: Input
    """Without the images themselves."""
    features_in: int
    feature_names: list[str] | None
    history: list[dict[str, Any]]

    @property
    def reading(self) -> Outputs:
        """What the network that is asked at the model's level says."""
        finer = self.model.labeler is self.model.unmerged
        return self.unmerged if finer and self.unmerged is not None else self.final


def to_bytes(fitted: Fitted, params: Mapping[str, Any]) -> bytes:
    """Everything but the backbone's code."""
    arrays: dict[str, Tensor] = {}
    for role, reading in (("final", fitted.final), ("unmerged", fitted.unmerged)):
        if reading is not None:
            arrays |= {f"{role}.{name}": value for name, value in reading._asdict().items()}
    if fitted.given.kept is not None:
        arrays["kept"] = torch.from_numpy(fitted.given.kept)
    plain = {name: value for name, value in params.items() if name != "backbone"}
    if not isinstance(plain["random_state"], int | np.integer | None):
        plain["random_state"] = None  # a generator has moved on: the seed that was drawn is in the model's settings
    extra = {
        "kind": FORMAT,
        "params": _plain(plain),
        "scale": list(fitted.given.scale),
        "count": fitted.given.count,
        "quarantine": [list(entry) for entry in fitted.given.quarantine],
        "features_in": fitted.features_in,
        "feature_names": fitted.feature_names,
        "history": fitted.history,
    }
    return modelfile.to_bytes(fitted.model, arrays, extra)


def from_bytes(content: bytes, name: str, backbone: nn.Module | None) -> tuple[Fitted, dict[str, Any]]:
    """The inverse; also the estimator's parameters. ``name`` is what messages call it."""
    model, arrays, extra = modelfile.from_bytes(content, name, backbone)
    if extra.get("kind") != FORMAT:
        raise ValueError(f"{name} is a model without an estimator; use it with `cts predict`")
    try:
        readings = {
            role: Outputs(*(arrays[f"{role}.{field}"] for field in Outputs._fields))
            for role in ("final", "unmerged")
            if f"{role}.output" in arrays
        }
        kept = arrays["kept"].numpy() if "kept" in arrays else None
        quarantine = [SkippedFile(*entry) for entry in extra["quarantine"]]
        empty = torch.zeros(0, *model.shape, dtype=torch.uint8)
        given = Input(empty, Scale(*extra["scale"]), kept, extra["count"], quarantine)
        params = dict(extra["params"])
        params["image_shape"] = params["image_shape"] and tuple(params["image_shape"])
        names = extra["feature_names"]
        fitted = Fitted(
            model, readings["final"], readings.get("unmerged"), given, extra["features_in"], names, extra["history"]
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"cannot read the estimator {name}: {error}") from None
    return fitted, params


def _plain(value: Any) -> Any:
    """numpy's numbers, tuples and mappings as JSON has them."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
