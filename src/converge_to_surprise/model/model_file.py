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
from ..config.memory import check_memory
from ..config.storage import write_atomically, wrong_version
from ..config.text import parse_json
from . import devices
from .backbone import Backbone, build_network
from .carried_names import Annotations
from .cluster_model import CalibratedNetwork, Model
from .encoder import EmbeddingEncoder, Encoder, Projection, make_encoder
from .feature_recipe import recipe_from_dict
from .hierarchy_data import check_node_names, described_hierarchy, hierarchy_tensors, parse_hierarchy
from .inference import Calibration
from .merge_tree import MergeResult
from .network import ClusterNetwork
from .novelty import Novelty, descriptors, image_statistics
from .validation import check_annotations, check_calibrated, check_merge_result, check_novelty, check_projection

FORMAT = "converge-to-surprise model"
VERSION = 2


def to_bytes(model: Model, arrays: Mapping[str, Tensor] | None = None, extra: Mapping[str, Any] | None = None) -> bytes:
    """A model and what the caller stores with it: ``arrays`` by name, ``extra`` as plain data."""
    tensors = {f"keep.{name}": value for name, value in (arrays or {}).items()}
    networks: dict[str, Any] = {}
    for role, calibrated in (("final", model.final), ("unmerged", model.unmerged)):
        if calibrated is not None:
            sharpness, novelty = calibrated.calibration
            tensors |= {f"{role}.{name}": value for name, value in calibrated.network.state_dict().items()}
            if novelty is not None:
                tensors |= {f"{role}-novelty.{name}": value for name, value in novelty._asdict().items()}
            networks[role] = {
                "n_outputs": calibrated.network.n_outputs,
                "sharpness": sharpness,
                "sizes": list(calibrated.sizes),
                "novelty": novelty is not None,
            }
    if model.encoder is not None:
        tensors |= {f"encoder.{name}": value for name, value in model.encoder.projection._asdict().items()}
    if model.hierarchy is not None:
        tensors |= hierarchy_tensors(model.hierarchy)
    data = {
        "config": to_dict(model.config),
        "shape": list(model.shape),
        "networks": networks,
        "merge": model.merge_result and model.merge_result._asdict(),
        "cut_at": model.cut_at,
        "encoder": model.encoder and model.encoder.recipe.to_dict(),
        "annotations": model.annotations and model.annotations._asdict(),
        "hierarchy": None if model.hierarchy is None else described_hierarchy(model.hierarchy),
        "node_names": dict(model.node_names),
        "extra": dict(extra or {}),
    }
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps(data, allow_nan=False)
    header = {"version": VERSION, "sha256": _digest(tensors, text), "data": text}
    # A single entry: safetensors writes several in an order that changes from call to call.
    return safetensors.torch.save(tensors, {FORMAT: json.dumps(header)})


def from_bytes(
    content: bytes, name: str, backbone: nn.Module | None = None
) -> tuple[Model, dict[str, Tensor], dict[str, Any]]:
    """A model and what was stored with it. ``name`` is how messages refer to it."""
    try:
        return _parse(content, backbone)
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


def _parse(content: bytes, backbone: nn.Module | None) -> tuple[Model, dict[str, Tensor], dict[str, Any]]:
    tensors, metadata = _safetensors(content)
    if FORMAT not in metadata:
        raise ValueError("it is a safetensors file, but not a model of this program")
    header = parse_json(metadata[FORMAT])
    if header.get("version") != VERSION:
        raise ValueError(wrong_version(header.get("version"), VERSION))
    if _digest(tensors, header["data"]) != header.get("sha256"):
        raise ValueError("it is damaged: its checksum does not match")
    data = parse_json(header["data"])
    config = overlay(Config(), data["config"])
    config = replace(config, device=devices.resolve_or_cpu(config.device))
    shape: tuple[int, int, int] = typed(data["shape"], tuple[int, int, int], "shape")
    if backbone is not None and data["encoder"] is not None:
        raise ValueError("it works on stored features, so that it takes no module; leave backbone out")
    encoder = None if data["encoder"] is None else _encoder(data["encoder"], tensors, config, shape)
    pictures = None if isinstance(encoder, EmbeddingEncoder) else shape
    if data["merge"] is not None:
        check_merge_result(data["merge"], data["networks"]["unmerged"]["n_outputs"])

    def calibrated(role: str, described: dict[str, Any]) -> CalibratedNetwork:
        state = {key.removeprefix(f"{role}."): v for key, v in tensors.items() if key.startswith(f"{role}.")}
        own = None if backbone is None else Backbone(backbone, True, state["head.weight"].shape[1])
        check_calibrated(described, state, config, shape[0], is_resnet=backbone is None)
        network = build_network(shape[0], config, described["n_outputs"], 1, own)
        network.load_state_dict(state)
        network.to(torch.device(config.device)).eval()
        novelty = _novelty(role, tensors, network, pictures) if described.get("novelty") else None
        return CalibratedNetwork(network, Calibration(described["sharpness"], novelty), tuple(described["sizes"]))

    networks = {role: calibrated(role, described) for role, described in data["networks"].items()}
    merge_result = data["merge"] and MergeResult.of(data["merge"])
    model = Model(config, shape, networks["final"], networks.get("unmerged"), merge_result, data["cut_at"])
    model = replace(model, encoder=encoder)
    if (marks := data.get("annotations")) is not None:
        check_annotations(marks, len(model.order))
        model = replace(model, annotations=Annotations(**marks))
    if (tree := data.get("hierarchy")) is not None:
        features = networks["final"].network.head.in_features
        found = parse_hierarchy(tree, tensors, len(model.order), features)
        model = replace(model, hierarchy=found, node_names=check_node_names(data["node_names"]))
    model.prepare()
    kept = {key.removeprefix("keep."): value for key, value in tensors.items() if key.startswith("keep.")}
    return model, kept, data["extra"]


def _novelty(
    role: str, tensors: Mapping[str, Tensor], network: ClusterNetwork, shape: tuple[int, int, int] | None
) -> Novelty:
    """What novelty is computed from, checked against what it is computed for: pictures of a shape, or embeddings."""
    found = Novelty(*(tensors[f"{role}-novelty.{name}"] for name in Novelty._fields))
    blank = torch.zeros(1, network.head.in_features)
    statistics = None if shape is None else image_statistics(torch.zeros(1, *shape, dtype=torch.uint8))
    check_novelty(found, descriptors(blank, blank, statistics).shape[1])
    return found


def _encoder(recipe: Any, tensors: Mapping[str, Tensor], config: Config, shape: tuple[int, int, int]) -> Encoder:
    """The encoder of a model on stored features; its backbone is opened when it is needed."""
    found = recipe_from_dict(recipe)
    projection = Projection(tensors["encoder.mean"], tensors["encoder.directions"])
    check_projection(projection, found.features, config.network.inputs)
    return make_encoder(found, projection, shape)


def _safetensors(content: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the metadata of a safetensors file."""
    size = int.from_bytes(content[:8], "little")
    try:
        metadata = parse_json(content[8 : 8 + size].decode("utf-8")).get("__metadata__", {})
        return safetensors.torch.load(content), metadata
    except (SafetensorError, ValueError, AttributeError) as error:
        if content[8:9] == b"{" and size < len(content):
            raise ValueError(f"it is damaged: {error}") from None
        raise ValueError("it is not a model file of this program") from None


def save(path: Path, model: Model) -> None:
    """Write a model file atomically."""
    write_atomically(path, to_bytes(model))


def load(path: Path, backbone: nn.Module | None = None) -> tuple[Model, dict[str, Tensor], dict[str, Any]]:
    """Read a model file."""
    try:
        check_memory(path.stat().st_size, path)
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read the model {path}: {error.strerror}") from None
    return from_bytes(content, str(path), backbone)


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b"")
    return digest.hexdigest()
