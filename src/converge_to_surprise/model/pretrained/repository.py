"""Which files of a hub repository are used, and how its folder is opened."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from .frozen import PretrainedBackbone
from .identity import PreprocessFlags
from .onnx_backbone import open_onnx
from .preprocessing import PREPROCESSOR

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
ONNX_FILES = ("onnx/vision_model.onnx", "vision_model.onnx", "onnx/model.onnx", "model.onnx")
"""Best first: the image part of a model of images and text, then whole models, in float32."""
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


def weight_files(names: Iterable[str], where: str, only: str | None = None) -> tuple[str, ...]:
    """The weights to use out of a repository's files: an ONNX file with its data, or safetensors; never pickles.

    >>> weight_files(["config.json", "pytorch_model.bin", "model.safetensors"], "ORG/NAME")
    ('model.safetensors',)
    >>> weight_files(["model.safetensors", "onnx/model.onnx", "onnx/model.onnx_data", "onnx/model_int8.onnx"], "X/Y")
    ('onnx/model.onnx', 'onnx/model.onnx_data')
    """
    held = sorted(names)
    for name in (only,) if only else ONNX_FILES:
        if name in held and name.endswith(".onnx"):
            data = re.compile(re.escape(name) + r"(_data(_\d+)?|\.data)")
            return (name, *(other for other in held if data.fullmatch(other)))
    if CONFIG in held and WEIGHTS in held:
        return (WEIGHTS,)
    if CONFIG in held and INDEX in held:
        return tuple(name for name in held if SHARD.fullmatch(name))
    raise ValueError(
        f"{where} has neither an ONNX file nor a config.json with safetensors; other formats, such as "
        "pytorch_model.bin, can hold code and are never read: give an ONNX file"
    )


def needed_files(names: Iterable[str], where: str, only: str | None = None) -> tuple[str, ...]:
    """The weights and, where they are there, the small files that describe a model."""
    held = set(names)
    return (*weight_files(held, where, only), *(name for name in (CONFIG, PREPROCESSOR) if name in held))


def files_in(folder: Path) -> list[str]:
    """The files of a folder in the form of a repository: its own and those of its folder ``onnx``."""
    return [
        path.relative_to(folder).as_posix() for path in (*folder.glob("*"), *folder.glob("onnx/*")) if path.is_file()
    ]


def open_folder(
    folder: Path, source: str, flags: PreprocessFlags | None = None, only: str | None = None,
    expected_sha256: str | None = None,
) -> PretrainedBackbone:  # fmt: skip
    """Open a model in a folder that has the form of a hub repository."""
    chosen = weight_files(files_in(folder), str(folder), only)
    if chosen[0].endswith(".onnx"):
        return open_onnx(folder / chosen[0], source, flags, folder, expected_sha256)
    from .transformers_backbone import open_transformers

    return open_transformers(folder, chosen, source, flags, expected_sha256)
