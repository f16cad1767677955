"""``cts sort``: a folder for every cluster, with copies of its pictures or links to them."""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from PIL import Image

from ..data.image_options import SkippedFile
from ..data.source import Source
from ..model.cluster_model import Model

How = Literal["copy", "link", "hardlink", "move"]
Progress = Callable[[int, int], None]
TABLE = "sorted.csv"
"""Which file went where, so that a move can be taken back."""


class Sorted(NamedTuple):
    """What was done."""

    images: int
    folders: int
    quarantine: list[SkippedFile]


def sort(
    model: Model, source: Source, into: Path, how: How, min_confidence: float, threads: int, progress: Progress
) -> Sorted:
    """Put every image into the folder of its cluster. Nothing that exists is ever overwritten."""
    if source.listing is None and how != "copy":
        raise ValueError(
            f"{source.name} holds images that are not files of their own: they can only be copied, not {how}ed"
        )
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise ValueError(f"--into is {into}, which exists and is not empty; give a new folder")
    into.mkdir(parents=True, exist_ok=True)
    folders: dict[int, Path] = {}
    quarantine: list[SkippedFile] = []
    count = 0
    with (into / TABLE).open("w", encoding="utf-8", newline="", errors="surrogateescape") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["from", "to", "cluster", "confidence"])
        for chunk in source.chunks(range(len(source)), threads):
            seen = 0
            for found in model.predict(chunk.images):
                numbers = torch.where(found.confidence >= min_confidence, found.cluster, -1).tolist()
                for cluster, sure in zip(numbers, found.confidence.tolist(), strict=True):
                    if cluster not in folders:
                        folders[cluster] = into / folder_name(model, cluster)
                        folders[cluster].mkdir(exist_ok=True)
                    origin = None if chunk.paths is None else chunk.paths[seen]
                    name = f"{chunk.names[seen]:07d}.png" if origin is None else os.path.basename(origin)
                    target = _free(folders[cluster] / name)
                    # The row is on disk before a file is moved: whatever happens, it says where the file is.
                    shown = os.path.relpath(target, into)
                    table.writerow([chunk.names[seen] if origin is None else origin, shown, cluster, f"{sure:.6f}"])
                    if how == "move":
                        file.flush()
                    if origin is None:
                        _write_png(chunk.images[seen].numpy(), target)
                    else:
                        place(origin, target, how)
                    seen += 1
            count += seen
            quarantine += chunk.quarantined
            progress(chunk.stop, len(source))
    return Sorted(count, len(folders), quarantine)


def folder_name(model: Model, cluster: int) -> str:
    """The folder of a cluster: its number, and its name if a person gave it one.

    A name is cut down to what every file system takes.
    """
    if cluster < 0:
        return "noise"
    names = model.cluster_names
    number = f"{cluster:0{len(str(max(1, len(names) - 1)))}d}"
    if model.annotations is None or names[cluster] == str(cluster):
        return number
    plain = re.sub(r"[^\w .()+-]+", "_", names[cluster]).strip(" ._")[:60]
    return f"{number} {plain}" if plain else number


def place(origin: str, target: Path, how: How) -> None:
    """Copy, link or move one file."""
    try:
        if how == "copy":
            shutil.copy2(origin, target)
        elif how == "link":
            target.symlink_to(os.path.abspath(origin))
        elif how == "hardlink":
            os.link(origin, target)
        else:
            shutil.move(origin, target)
    except OSError as error:
        raise ValueError(f"cannot {how} {origin} to {target}: {error.strerror or error}") from None


def _free(target: Path) -> Path:
    """A path that is not taken: pictures from different folders may have the same name."""
    number, free = 2, target
    while os.path.lexists(free):
        free = target.with_name(f"{target.stem}~{number}{target.suffix}")
        number += 1
    return free


def _write_png(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], target: Path) -> None:
    """uint8 (C, H, W) as a PNG file."""
    Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))).save(target)
