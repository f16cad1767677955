"""What a fitted estimator has learned, as one safe file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..config.files import to_dict
from ..config.images import LARGEST_SIDE, SMALLEST_SIDE
from ..data.arrays import Scale
from ..data.skipped import SkippedFile
from ..model import model_file
from ..model.cluster_model import CalibratedNetwork, Model
from ..model.encoder import BackboneEncoder, EmbeddingEncoder, reopen_backbone
from ..model.inference import Outputs
from ..model.verdict import Verdict
from ..runs.folder import RunFolder
from ..runs.labels import SavedOutputs, TrainingOutputs, read_quarantine
from ..runs.load import load_model
from ..runs.result import is_verdict, read_result, verdict_of
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
    verdict: Verdict | None = None

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
    plain = {name: value for name, value in params.items() if name != "backbone" or isinstance(value, str)}
    if not isinstance(plain["random_state"], int | np.integer | None):
        plain["random_state"] = None  # a generator has moved on: the seed that was drawn is in the model's settings
    extra = {
        "kind": FORMAT,
        "params": _plain(plain),
        "scale": state.given.scale and list(state.given.scale),
        "count": state.given.count,
        "quarantine": [list(entry) for entry in state.given.quarantine],
        "features_in": state.features_in,
        "feature_names": state.feature_names,
        "history": state.history,
        "verdict": state.verdict and state.verdict.to_dict(),
    }
    return model_file.to_bytes(state.fitted.model, arrays, extra)


def from_bytes(content: bytes, name: str, backbone: str | nn.Module | None) -> tuple[FittedState, dict[str, Any]]:
    """The inverse; also the estimator's parameters. ``name`` is what messages call it."""
    return _saved_state(model_file.from_bytes(content, name, _module(backbone)), name)


def _module(backbone: str | nn.Module | None) -> nn.Module | None:
    """The backbone if it is a module: one that is named is opened when it is needed."""
    return None if isinstance(backbone, str) else backbone


def _saved_state(
    loaded: tuple[Model, dict[str, Tensor], dict[str, Any]], name: str
) -> tuple[FittedState, dict[str, Any]]:
    model, arrays, extra = loaded
    if extra.get("kind") != FORMAT:
        raise ValueError(f"{name} is a model without an estimator")
    try:
        found = {
            role: Outputs(*(arrays[f"{role}.{field}"] for field in Outputs._fields))
            for role in ("final", "unmerged")
            if f"{role}.winner" in arrays
        }
        kept = arrays["kept"].numpy() if "kept" in arrays else None
        quarantine = [SkippedFile(*entry) for entry in extra["quarantine"]]
        scale = None if extra["scale"] is None else Scale(*extra["scale"])
        given = Input(_none(model), scale, kept, extra["count"], quarantine)
        params = dict(extra["params"])
        params["image_shape"] = params["image_shape"] and tuple(params["image_shape"])
        names = extra["feature_names"]
        fitted = Fitted(model, found["final"], found.get("unmerged"))
        verdict = extra.get("verdict")
        if verdict is not None and not is_verdict(verdict):
            raise TypeError("its verdict is not valid")
        judged = None if verdict is None else Verdict(**verdict)
        state = FittedState(fitted, given, extra["features_in"], names, extra["history"], judged)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"cannot read the estimator {name}: {error}") from None
    return state, params


def from_place(path: Path, backbone: str | nn.Module | None) -> tuple[FittedState, dict[str, Any]]:
    """A file of ``save``, a finished run, or the model file of a run; also the estimator's parameters.

    ``backbone``: the module, or where the backbone that a model names is now.
    """
    state, params = _from_place(path, _module(backbone))
    if not isinstance(backbone, str):
        return state, params
    model = state.fitted.model
    if not isinstance(model.encoder, BackboneEncoder):
        raise ValueError(f"backbone is {backbone!r}, but the model {path} names no backbone; leave it out")
    opened = replace(model.encoder, opened=reopen_backbone(model.encoder.recipe.identity, backbone))
    return replace(state, fitted=state.fitted._replace(model=replace(model, encoder=opened))), params


def _from_place(path: Path, backbone: nn.Module | None) -> tuple[FittedState, dict[str, Any]]:
    if path.is_dir():
        return _from_run(RunFolder.open(path))
    if not path.is_file():
        raise ValueError(f"there is no model {str(path)!r}; give a run folder, or a file that save() wrote")
    loaded = model_file.load(path, backbone)
    if loaded[2].get("kind") == FORMAT:
        return _saved_state(loaded, str(path))
    beside = RunFolder(path.parent)
    if path.name == beside.model.name and beside.config.is_file() and beside.result.is_file():
        return _from_run(beside)
    model = loaded[0]
    unmerged = None if model.unmerged is None else _no_outputs(model.unmerged)
    return _of_run(Fitted(model, _no_outputs(model.final), unmerged), "fast", [], [])


def _no_outputs(calibrated: CalibratedNetwork) -> Outputs:
    """The outputs for no image."""
    return Outputs.of_labels(torch.zeros(0, dtype=torch.long), calibrated.network.n_outputs)


def _from_run(run: RunFolder) -> tuple[FittedState, dict[str, Any]]:
    description = run.description()
    model = load_model(run.path)
    outputs = TrainingOutputs.load(run.training, description.images, model)
    if outputs is None:
        raise ValueError(f"{run.training} is missing or damaged; `cts resume {run.path}` writes it again")
    saved = SavedOutputs.load(run.outputs, description.images, model.final.network.n_outputs)
    if saved is not None:
        outputs = outputs._replace(final=outputs.final._replace(features=saved.features))
    skipped = read_quarantine(run.quarantine)
    state, params = _of_run(Fitted(model, *outputs), description.preset, run.records(), skipped)
    return replace(state, verdict=verdict_of(read_result(run.result))), params


def _of_run(
    fitted: Fitted, preset: str, history: list[dict[str, Any]], skipped: list[SkippedFile]
) -> tuple[FittedState, dict[str, Any]]:
    """A run as an estimator: its parameters are those that would make the run again from the same images."""
    model = fitted.model
    config, (channels, height, width) = model.config, model.shape
    encoder = model.encoder
    if encoder is not None:  # what a user gives are the settings that made the features
        config = replace(config, network=replace(config.network, inputs=0))
    if isinstance(encoder, BackboneEncoder):
        config = replace(config, views=encoder.recipe.views, augmentation=encoder.recipe.augmentation)
    settings = to_dict(config)
    own = {name: settings.pop(name) for name in ("max_clusters", "n_clusters", "n_init", "rounds", "device", "kind")}
    side = max(height, width)
    params = {
        **own,
        "preset": preset,
        "n_threads": settings.pop("threads") or None,
        "random_state": settings.pop("seed"),
        "color": "rgb" if channels == 3 else "gray",
        "image_size": side if SMALLEST_SIDE <= side <= LARGEST_SIDE else None,
        "settings": settings,
    }
    if isinstance(encoder, EmbeddingEncoder):
        params |= {"input": "embeddings", "image_size": None, "color": "auto"}
    if isinstance(encoder, BackboneEncoder):
        identity = encoder.recipe.identity
        params |= {"backbone": identity.source, "backbone_size": identity.preprocess.size, "image_size": None}
        params |= {"copies": encoder.recipe.copies, "color": "auto"}
    given = Input(_none(model), None, None, len(fitted.outputs.winner), skipped)
    features_in = width if isinstance(encoder, EmbeddingEncoder) else channels * height * width
    return FittedState(fitted, given, features_in, None, history), params


def _none(model: Model) -> Tensor:
    """No image, of the kind that the model takes."""
    return torch.zeros(0, *model.shape, dtype=torch.float32 if model.input == "embeddings" else torch.uint8)


def _plain(value: Any) -> Any:
    """numpy's numbers, tuples and mappings as JSON has them."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
