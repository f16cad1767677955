"""Find the preprocessing of a model: flags, metadata of an ONNX file, the preprocessor file of a hub repository."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from ...config.storage import read_json
from ...config.text import parse_json
from .identity import Preprocess, PreprocessFlags, Resample, triple

DEFAULT_SIZE = 224
PREPROCESSOR = "preprocessor_config.json"
PIL_CODES: dict[Any, Resample] = {
    0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "bilinear", 5: "bilinear",
}  # fmt: skip
"""Pillow's numbers; box (4) and hamming (5) are taken as bilinear."""
PARTS = ("size", "mean", "std", "resample")


def from_metadata(metadata: Mapping[str, str]) -> dict[str, Any]:
    """From the metadata of an ONNX file: ``size``, ``mean``, ``std``, ``resample``, or JSON in ``preprocessor``.

    >>> from_metadata({"size": "96", "mean": "[0.5, 0.5, 0.5]", "author": "somebody"})
    {'size': 96, 'mean': (0.5, 0.5, 0.5)}
    """
    found = from_preprocessor(parse_json(metadata["preprocessor"])) if "preprocessor" in metadata else {}
    if "size" in metadata:
        found["size"] = _side(parse_json(metadata["size"]))
    for name in ("mean", "std"):
        if name in metadata:
            found[name] = triple(parse_json(metadata[name]))
    if "resample" in metadata:
        found["resample"] = _resample(metadata["resample"])
    return found


def from_preprocessor(data: Any) -> dict[str, Any]:
    """From a preprocessor_config.json: parts of a ``Preprocess`` for values in [0, 1].

    A center crop counts as the input; rescaling by another factor than 1/255 is folded into mean and std.
    """
    if not isinstance(data, Mapping):
        raise ValueError("a preprocessor must be a JSON object")
    if data.get("do_flip_channel_order"):
        raise ValueError("the model takes colors in the order blue, green, red, which is not supported")
    found: dict[str, Any] = {}
    cropped = "crop_size" in data and data.get("do_center_crop", True)
    if (size := data.get("crop_size" if cropped else "size")) is not None:
        found["size"] = _side(size)
    if (code := data.get("resample")) is not None:
        found["resample"] = _resample(code)
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if data.get("do_normalize", True):
        mean, std = triple(data.get("image_mean", mean)), triple(data.get("image_std", std))
    factor = data.get("rescale_factor", 1 / 255) if data.get("do_rescale", True) else 1.0
    if not isinstance(factor, int | float) or isinstance(factor, bool) or not 0 < factor < 1e6:
        raise ValueError(f"rescale_factor is {factor!r}; it must be above 0")
    offset = 1.0 if data.get("rescale_offset") else 0.0
    scale = 1.0 if abs(factor * 255 - 1) < 1e-3 else factor * 255
    found["mean"] = triple([(value + offset) / scale for value in mean])
    found["std"] = triple([value / scale for value in std])
    return found


def from_timm(data: Any) -> dict[str, Any]:
    """From ``pretrained_cfg`` in the config.json of a timm model."""
    given = data.get("pretrained_cfg") if isinstance(data, Mapping) else None
    if not isinstance(given, Mapping):
        return {}
    found: dict[str, Any] = {name: triple(given[name]) for name in ("mean", "std") if name in given}
    if isinstance(shape := given.get("input_size"), list) and len(shape) == 3:
        found["size"] = _side({"height": shape[1], "width": shape[2]})
    if given.get("interpolation") in get_args(Resample):
        found["resample"] = given["interpolation"]
    return found


def from_folder(folder: Path) -> dict[str, Any]:
    """From the preprocessor file in a folder, or timm's config.json; empty if there is neither."""
    for name, reader in ((PREPROCESSOR, from_preprocessor), ("config.json", from_timm)):
        path = folder / name
        if path.is_file():
            data = read_json(path)
            try:
                found = reader(data)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None
            if found:
                return found
    return {}


def from_flags(flags: PreprocessFlags | None) -> dict[str, Any]:
    flags = flags or PreprocessFlags()
    return {name: value for name in PARTS[:3] if (value := getattr(flags, name)) is not None}


def complete(parts: Mapping[str, Any]) -> Preprocess:
    """Preprocessing with defaults for what is missing: 224 pixels, input in [0, 1], bilinear."""
    return Preprocess(
        size=parts.get("size", DEFAULT_SIZE),
        mean=parts.get("mean", (0.0, 0.0, 0.0)),
        std=parts.get("std", (1.0, 1.0, 1.0)),
        resample=parts.get("resample", "bilinear"),
    )


def _side(size: Any) -> int:
    """One side from the forms that preprocessor files use: a number, shortest_edge, height and width."""
    if isinstance(size, Mapping):
        edges = [size[name] for name in ("shortest_edge", "height", "width") if name in size]
        if not edges or any(edge != edges[0] for edge in edges):
            raise ValueError(f"the input size is {dict(size)!r}; only square inputs are supported")
        size = edges[0]
    elif isinstance(size, list) and len(size) in (1, 2) and len(set(map(str, size))) == 1:
        size = size[0]
    if type(size) is not int:
        raise ValueError(f"the input size is {size!r}; it must be a number of pixels")
    return size


def _resample(code: Any) -> Resample:
    if isinstance(code, str) and code in get_args(Resample):
        return code  # type: ignore[return-value]
    if type(code) is not int or code not in PIL_CODES:
        raise ValueError(f"resample is {code!r}; it must be one of {', '.join(get_args(Resample))} or Pillow's 0 to 5")
    return PIL_CODES[code]
