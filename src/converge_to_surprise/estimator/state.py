"""What a fitted estimator has learned, as one safe file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data.arrays import Scale
from ..data.skipped import SkippedFile
from ..model import model_file
from ..model.inference import Outputs
from ..search.restarts import Fitted
from .inputs import Input

FORMAT = "SurpriseClustering"


@dataclass(frozen=True)
class FittedState:
    """Everything that an estimator has learned."""

    fitted: Fitted
    given: Input
    """How the training images were converted; without the images."""
    features_in: int
    feature_names: list[str] | None
    history: list[dict[str, Any]]

    @property
    def outputs(self) -> Outputs:
        """The outputs of the network that is active at the model's cut."""
        model, outputs, unmerged = self.fitted
        return unmerged if model.active is model.unmerged and unmerged is not None else outputs


def to_bytes(state: FittedState, params: Mapping[str, Any]) -> bytes:
    """Everything but the backbone's code."""
    arrays: dict[str, Tensor] = {}
    for role, outputs in (("final", state.fitted.outputs), ("unmerged", state.fitted.unmerged)):
        if outputs is not None:
            arrays |= {f"{role}.{name}": value for name, value in outputs._asdict().items()}
    if state.given.kept is not None:
        arrays["kept"] = torch.from_numpy(state.given.kept)
    plain = {name: value for name, value in params.items() if name != "backbone"}
    if not isinstance(plain["random_state"], int | np.integer | None):
        plain["random_state"] = None  # a generator has moved on: the seed that was drawn is in the model's settings
    extra = {
        "kind": FORMAT,
        "params": _plain(plain),
        "scale": list(state.given.scale),
        "count": state.given.count,
        "quarantine": [list(entry) for entry in state.given.quarantine],
        "features_in": state.features_in,
        "feature_names": state.feature_names,
        "history": state.history,
    }
    return model_file.to_bytes(state.fitted.model, arrays, extra)


def from_bytes(content: bytes, name: str, backbone: nn.Module | None) -> tuple[FittedState, dict[str, Any]]:
    """The inverse; also the estimator's parameters. ``name`` is what messages call it."""
    model, arrays, extra = model_file.from_bytes(content, name, backbone)
    if extra.get("kind") != FORMAT:
        raise ValueError(f"{name} is a model without an estimator; use it with `cts predict`")
    try:
        found = {
            role: Outputs(*(arrays[f"{role}.{field}"] for field in Outputs._fields))
            for role in ("final", "unmerged")
            if f"{role}.winner" in arrays
        }
        kept = arrays["kept"].numpy() if "kept" in arrays else None
        quarantine = [SkippedFile(*entry) for entry in extra["quarantine"]]
        empty = torch.zeros(0, *model.shape, dtype=torch.uint8)
        given = Input(empty, Scale(*extra["scale"]), kept, extra["count"], quarantine)
        params = dict(extra["params"])
        params["image_shape"] = params["image_shape"] and tuple(params["image_shape"])
        names = extra["feature_names"]
        fitted = Fitted(model, found["final"], found.get("unmerged"))
        state = FittedState(fitted, given, extra["features_in"], names, extra["history"])
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"cannot read the estimator {name}: {error}") from None
    return state, params


def _plain(value: Any) -> Any:
    """numpy's numbers, tuples and mappings as JSON has them."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
