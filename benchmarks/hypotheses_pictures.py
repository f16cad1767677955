"""Trees of real runs as pictures for docs/: a strip of images for every leaf, and a line for every node that was split.

    python benchmarks/hypotheses_pictures.py RUN FILE.webp [--clusters 3 5 ...] [--side 40] [--columns 16]

RUN is a finished run with rounds (``cts deepen``, or ``benchmarks/hypotheses.py real --runs``). Without ``--clusters``
those that were split are shown. The images of a strip are drawn at random, seed 0.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from converge_to_surprise.data import datasets
from converge_to_surprise.model.hierarchy import Path as TreePath
from converge_to_surprise.model.hierarchy import parse_path, path_text
from converge_to_surprise.runs.folder import RunFolder

Pictures = npt.NDArray[np.uint8]
MARGIN = 56
"""Pixels at the left for the path of a strip."""


def leaves_of(run: RunFolder) -> list[TreePath]:
    """The leaf of every training image."""
    with run.labels.open(newline="", encoding="utf-8") as lines:
        return [parse_path(row["leaf"]) for row in csv.DictReader(lines)]


def pictures_of(run: RunFolder) -> Pictures:
    """The training images as they were read. (N, H, W, 3)"""
    description = run.description()
    store = datasets.load(description.source, None, description.reading, shape=description.shape).train
    images = store.images.permute(0, 2, 3, 1).numpy()
    return images if images.shape[-1] == 3 else images.repeat(3, -1)


def strip(images: Pictures, side: int, columns: int) -> Image.Image:
    """Images beside each other, at most ``columns`` of them."""
    drawn = Image.new("RGB", (columns * side, side), "white")
    for column, image in enumerate(images[:columns]):
        small = Image.fromarray(image).resize((side - 2, side - 2), Image.Resampling.LANCZOS)
        drawn.paste(small, (column * side, 0))
    return drawn


def sheet(images: Pictures, leaves: list[TreePath], shown: list[TreePath], size: tuple[int, int]) -> Image.Image:
    """A strip for every leaf, under a gray line where another cluster begins. ``size``: pixels of an image, columns."""
    side, columns = size
    rng = np.random.default_rng(0)
    whole = Image.new("RGB", (MARGIN + columns * side, len(shown) * (side + 4)), "white")
    pen, font = ImageDraw.Draw(whole), ImageFont.load_default(13)
    for row, path in enumerate(shown):
        members = np.flatnonzero([leaf == path for leaf in leaves])
        top = row * (side + 4)
        pen.text((2, top + side // 2 - 14), path_text(path), fill="black", font=font)
        pen.text((2, top + side // 2), f"{len(members)}", fill="gray", font=font)
        whole.paste(strip(images[rng.permutation(members)[:columns]], side, columns), (MARGIN, top))
        if row and shown[row - 1][0] != path[0]:
            pen.line((0, top - 3, whole.width, top - 3), fill="gray", width=1)
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--clusters", nargs="+", type=int)
    parser.add_argument("--side", type=int, default=40)
    parser.add_argument("--columns", type=int, default=16)
    given = parser.parse_args()
    run = RunFolder.open(given.run)
    leaves = leaves_of(run)
    split = {path[0] for path in leaves if len(path) > 1}
    wanted = set(given.clusters) if given.clusters else split
    shown = [path for path in sorted(set(leaves)) if path[0] in wanted]
    if not shown:
        raise SystemExit("no cluster was split: name those to be shown with --clusters")
    sheet(pictures_of(run), leaves, shown, (given.side, given.columns)).save(given.file, quality=60, method=6)


if __name__ == "__main__":
    main()
