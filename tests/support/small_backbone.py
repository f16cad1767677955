"""A folder of pictures with a small backbone for them, and a quick run on its features."""

from __future__ import annotations

from pathlib import Path

from support import onnx_models
from support.color_photos import write_colors
from support.picture_run import call

SIDE = 16
"""Pixels a side that the backbone is given."""
COPIES = 3
FLAGS = ["--backbone-size", SIDE, "--copies", COPIES, "--threads", 1, "--max-clusters", 12, "--relaxed.heads", 3]


def make_place(folder: Path) -> Path:
    """Pictures of three colors in ``photos`` and the backbone ``model.onnx``."""
    write_colors(folder / "photos")
    onnx_models.save(onnx_models.vectors(), folder / "model.onnx")
    return folder


def fit_on_backbone(place: Path, out: Path, *words: object) -> Path:
    """A finished run of these pictures."""
    backbone = ["--backbone", place / "model.onnx", *FLAGS]
    assert call("fit", place / "photos", "--out", out, *backbone, *words) == 0
    return out
