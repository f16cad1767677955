"""The paper's figures: the number of clusters along a run, and panels of images."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from ..core.metrics import SIDE, Panel

Records = Sequence[dict[str, Any]]
COLUMNS = 5
"""Panels beside each other."""
CLOSE = 0.04
"""Stages that begin within this share of the steps have one label."""


def render(figure: Figure, kind: Literal["svg", "png"]) -> bytes:
    """The content of an image file; the same figure gives the same bytes."""
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "figure"}):
        figure.savefig(content, format=kind, metadata={"Date": None} if kind == "svg" else {})
    return content.getvalue()


def curves(title: str, histories: Mapping[str, Records], classes: int | None) -> Figure:
    """Surprising and active clusters over the steps of each run, by its label (figures 6 to 8 of the paper).

    The stages are those of the longest run; a dashed line marks the number of classes.
    """
    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for number, (label, records) in enumerate(histories.items()):
        steps, color = [record["step"] for record in records], f"C{number % 10}"
        axes.plot(steps, [record["surprising"] for record in records], color=color, linewidth=1.2, label=label)
        axes.plot(steps, [record["active"] for record in records], color=color, linewidth=0.8, linestyle=":")
    if classes is not None:
        axes.axhline(classes, color="gray", linestyle="--", linewidth=1, label=f"{classes} classes")
    for names, step in stages(max(histories.values(), key=len)):
        axes.axvline(step, color="lightgray", linewidth=0.8, zorder=0)
        axes.text(step, 1.01, names, transform=axes.get_xaxis_transform(), fontsize=8, rotation=25, va="bottom")
    axes.plot([], [], color="black", linewidth=0.8, linestyle=":", label="active")
    axes.set(xlabel="training step", ylabel="clusters", ylim=(0, None), xlim=(0, None))
    figure.suptitle(title)
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def stages(records: Records) -> list[tuple[str, int]]:
    """The stages of a run and the step at which each begins; short ones share a label with the next."""
    found: list[tuple[str, int]] = []
    for before, record in zip([None, *records], records, strict=False):
        if before is None or before["stage"] != record["stage"]:
            if found and record["step"] - found[-1][1] < CLOSE * records[-1]["step"]:
                found[-1] = (f"{found[-1][0]}, {record['stage']}", found[-1][1])
            else:
                found.append((record["stage"], record["step"]))
    return found


def panels(found: Sequence[Panel], images: npt.NDArray[np.uint8], captions: Sequence[str]) -> Figure:
    """3 x 3 images of every panel under its caption (figures 3 to 5). ``images``: (N, C, H, W), 1 or 3 channels."""
    rows = max(1, -(-len(found) // COLUMNS))
    figure = Figure(figsize=(2 * COLUMNS, 2.2 * rows), dpi=100, layout="constrained")
    grid = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for axes in grid:
        axes.set_axis_off()
    for axes, panel, caption in zip(grid, found, captions, strict=False):
        axes.imshow(montage(images[panel.shown]), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        axes.set_title(caption, fontsize=7)
    return figure


def montage(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Up to 3 x 3 images (N, C, H, W) on white, one pixel apart, as (3H + 2, 3W + 2, C)."""
    _, channels, height, width = images.shape
    sheet = np.full((SIDE * (height + 1) - 1, SIDE * (width + 1) - 1, channels), 255, dtype=np.uint8)
    for position, image in enumerate(images):
        top, left = position // SIDE * (height + 1), position % SIDE * (width + 1)
        sheet[top : top + height, left : left + width] = image.transpose(1, 2, 0)
    return sheet
