"""Open a backbone by what the user wrote: an ONNX file, a folder, a model of the hub, or a short name."""

from __future__ import annotations

from pathlib import Path

from .frozen import PretrainedBackbone
from .identity import PreprocessFlags
from .onnx_backbone import open_onnx


def open_backbone(
    source: str, preprocess: PreprocessFlags | None = None, expected_sha256: str | None = None
) -> PretrainedBackbone:
    """Open a frozen backbone; a ValueError of one line if it cannot be had or is not the expected one."""
    return open_onnx(Path(source), source, preprocess, expected_sha256=expected_sha256)
