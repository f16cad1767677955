"""Frozen pre-trained backbones: ONNX files, models of the Hugging Face hub, and short names for a few of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .identity import Identity, Preprocess, PreprocessFlags, Resample

if TYPE_CHECKING:
    from .frozen import PretrainedBackbone
    from .opening import open_backbone

__all__ = ["Identity", "Preprocess", "PreprocessFlags", "PretrainedBackbone", "Resample", "open_backbone"]


def __getattr__(name: str) -> Any:
    """Import what needs torch on first use, so that the list of names is shown without it."""
    if name == "PretrainedBackbone":
        from .frozen import PretrainedBackbone

        return PretrainedBackbone
    if name == "open_backbone":
        from .opening import open_backbone

        return open_backbone
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
