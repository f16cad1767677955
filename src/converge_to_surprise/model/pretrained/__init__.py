"""Frozen pre-trained backbones: ONNX files, models of the Hugging Face hub, and short names for a few of them.

What needs torch is imported when a backbone is opened, so that the list of names is shown without it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .catalog import CATALOG
from .hub import PREFIX, fetch, files_in, parse_name, weight_files
from .identity import Identity, Preprocess, PreprocessFlags, Resample

if TYPE_CHECKING:
    from .frozen import PretrainedBackbone

__all__ = ["Identity", "Preprocess", "PreprocessFlags", "Resample", "open_backbone"]


def open_backbone(
    source: str, preprocess: PreprocessFlags | None = None, expected_sha256: str | None = None
) -> PretrainedBackbone:
    """Open a frozen backbone; a ValueError if it cannot be opened or is not the expected one.

    ``source`` is a short name, hf:ORG/NAME[@REVISION], an ONNX file, or a folder with the files of a hub repository.
    """
    if source in CATALOG or source.startswith(PREFIX):
        return _from_hub(source, preprocess, expected_sha256)
    path = Path(source).expanduser()
    if path.is_dir():
        return open_folder(path, source, preprocess, expected_sha256=expected_sha256)
    if not path.exists() and path.name == source and not path.suffix:
        names = ", ".join(CATALOG)
        raise ValueError(
            f"there is no backbone {source!r}; give one of {names}, an ONNX file, or hf:ORG/NAME (see `cts backbones`)"
        )
    from .onnx_backbone import open_onnx

    return open_onnx(path, source, preprocess, expected_sha256=expected_sha256)


def _from_hub(source: str, flags: PreprocessFlags | None, expected: str | None) -> PretrainedBackbone:
    entry = CATALOG.get(source)
    repository, revision = parse_name(source) if entry is None else (entry.repository, entry.revision)
    only = None if entry is None else entry.file
    folder, commit = fetch(repository, revision, only)
    backbone = open_folder(folder, source, flags, only, expected)
    pinned = backbone.identity.sha256 if entry is None or entry.sha256 is None else entry.sha256
    if backbone.identity.sha256 != pinned:
        raise ValueError(
            f"the file {only} of {repository} has the sha256 {backbone.identity.sha256}, but {source} is pinned to "
            f"{pinned}; delete {folder} and try again"
        )
    backbone.identity = replace(backbone.identity, pinned=f"{PREFIX}{repository}@{commit}")
    return backbone


def open_folder(
    folder: Path, source: str, flags: PreprocessFlags | None = None, only: str | None = None,
    expected_sha256: str | None = None,
) -> PretrainedBackbone:  # fmt: skip
    """Open a model in a folder that has the form of a hub repository."""
    chosen = weight_files(files_in(folder), str(folder), only)
    if chosen[0].endswith(".onnx"):
        from .onnx_backbone import open_onnx

        return open_onnx(folder / chosen[0], source, flags, folder, expected_sha256)
    from .transformers_backbone import open_transformers

    return open_transformers(folder, chosen, source, flags, expected_sha256)
