"""A model as one file: safetensors for the weights, JSON in its header for the rest, a checksum over both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from ..config import Config
from ..config.files import overlay, to_dict, typed
from ..config.storage import write_atomically
from ..config.text import parse_json
from ..data.memory import check_memory
from ..search.merge import MergeResult
from . import devices
from . import validation as vetting
from .backbone import Backbone, build_network
from .cluster_model import CalibratedNetwork, Model

FORMAT = "converge-to-surprise model"
VERSION = 1


def to_bytes(model: Model, arrays: Mapping[str, Tensor] | None = None, extra: Mapping[str, Any] | None = None) -> bytes:
    """A model and what its owner wants to keep with it: ``arrays`` by name, ``extra`` as plain data."""
    tensors = {f"keep.{name}": value for name, value in (arrays or {}).items()}
    labelers: dict[str, Any] = {}
    for role, labeler in (("final", model.final), ("unmerged", model.unmerged)):
        if labeler is not None:
            tensors |= {f"{role}.{name}": value for name, value in labeler.network.state_dict().items()}
            labelers[role] = {
                "clusters": labeler.network.clusters,
                "sharpness": labeler.sharpness,
                "sizes": list(labeler.sizes),
            }
    data = {
        "config": to_dict(model.config),
        "shape": list(model.shape),
        "labelers": labelers,
        "merged": model.merged and model.merged._asdict(),
        "level": model.level,
        "extra": dict(extra or {}),
    }
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps(data, allow_nan=False)
    header = {"version": VERSION, "sha256": _digest(tensors, text), "data": text}
    # One entry only: safetensors writes several in an order that changes from call to call.
    return safetensors.torch.save(tensors, {FORMAT: json.dumps(header)})


def from_bytes(
    content: bytes, name: str, backbone: nn.Module | None = None
) -> tuple[Model, dict[str, Tensor], dict[str, Any]]:
    """A model and what was kept with it. ``name`` is what messages call it."""
    try:
        size = int.from_bytes(content[:8], "little")
        about = parse_json(content[8 : 8 + size]).get("__metadata__", {})
        tensors = safetensors.torch.load(content)
        if FORMAT not in about:
            raise ValueError("it is a safetensors file, but not a model of this program")
        header = parse_json(about[FORMAT])
        if header.get("version") != VERSION:
            raise ValueError(f"it has version {header.get('version')}; this program reads version {VERSION}")
        if _digest(tensors, header["data"]) != header.get("sha256"):
            raise ValueError("it is damaged: its checksum does not match")
        data = parse_json(header["data"])
        config = overlay(Config(), data["config"])
        config = replace(config, device=devices.here(config.device))
        shape: tuple[int, int, int] = typed(data["shape"], tuple[int, int, int], "shape")
        if data["merged"] is not None:
            vetting.check_merged(data["merged"], config.network.clusters)
        labelers = {
            role: _labeler(role, described, tensors, config, shape, backbone)
            for role, described in data["labelers"].items()
        }
        kept = {key.removeprefix("keep."): value for key, value in tensors.items() if key.startswith("keep.")}
        model = Model(
            config,
            shape,
            labelers["final"],
            labelers.get("unmerged"),
            data["merged"] and MergeResult.of(data["merged"]),
            data["level"],
        )
        model.prepare()
    except (
        SafetensorError,
        RecursionError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RuntimeError,
        OverflowError,
        AssertionError,
    ) as error:
        needs = (
            " (it was made with a backbone: give the same one)" if backbone is None and b"backbone." in content else ""
        )
        raise ValueError(f"cannot read the model {name}: {error}{needs}") from None
    return model, kept, data["extra"]


def save(
    path: Path, model: Model, arrays: Mapping[str, Tensor] | None = None, extra: Mapping[str, Any] | None = None
) -> None:
    """Write a model file, whole or not at all."""
    write_atomically(path, to_bytes(model, arrays, extra))


def load(path: Path, backbone: nn.Module | None = None) -> tuple[Model, dict[str, Tensor], dict[str, Any]]:
    """Read a model file."""
    try:
        check_memory(path.stat().st_size, path)
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read the model {path}: {error.strerror}") from None
    return from_bytes(content, str(path), backbone)


def _labeler(
    role: str,
    described: dict[str, Any],
    tensors: Mapping[str, Tensor],
    config: Config,
    shape: tuple[int, int, int],
    backbone: nn.Module | None,
) -> CalibratedNetwork:
    state = {key.removeprefix(f"{role}."): v for key, v in tensors.items() if key.startswith(f"{role}.")}
    own = None if backbone is None else Backbone(backbone, True, state["head.weight"].shape[1])
    vetting.check_labeler(described, state, config, shape[0], outlined=backbone is None)
    network = build_network(shape[0], config.network, described["clusters"], 1, own)
    network.load_state_dict(state)
    return CalibratedNetwork(
        network.to(torch.device(config.device)).eval(), described["sharpness"], tuple(described["sizes"])
    )


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b"")
    return digest.hexdigest()
