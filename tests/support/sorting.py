"""Sort pictures without a trained model, and look at the folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
from faults import sorting
from PIL import Image
from torch import Tensor

from converge_to_surprise.data.source import Source
from converge_to_surprise.model.cluster_model import Model
from converge_to_surprise.runs import place_file
from converge_to_surprise.runs.sort import SortOptions, carry_out, claimed, make_plan
from converge_to_surprise.runs.sort_undo import undo
from support.picture_run import table


class NoPictures(Exception):  # noqa: N818
    """There is nothing to sort."""


def tree(folder: Path) -> dict[str, str]:
    """Every file, link and folder below a folder: content and time of files, text of links."""
    found = dict.fromkeys((str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_dir()), "folder")
    return found | sorting.contents(folder)


def reasons(path: Path) -> dict[str, str]:
    return {row["file"]: row["reason"] for row in table(path)}


class Found(NamedTuple):
    cluster: Tensor
    leaf: Tensor
    confidence: Tensor
    novelty: Tensor


@dataclass
class Quick:
    """In place of a model: the cluster is read off the first pixel."""

    n_clusters: int = 3
    shape: tuple[int, int, int] = (1, 8, 8)
    annotations: None = None

    @property
    def cluster_names(self) -> list[str]:
        return [str(number) for number in range(self.n_clusters)]

    @property
    def paths(self) -> list[tuple[int, ...]]:
        return [(number,) for number in range(self.n_clusters)]

    def predict(self, images: Tensor) -> Iterator[Found]:
        if len(images):
            number = images[:, 0, 0, 0].long() % self.n_clusters
            yield Found(number, number, torch.ones(len(images)), torch.zeros(len(images)))


def quick_sort(
    source: Path, into: Path, how: place_file.How = "move", between: Callable[[], object] = lambda: None
) -> dict[str, str]:
    """Sort without a trained model; ``between`` happens when all is planned. Returns what was skipped, and why."""
    try:
        images = Source.open(str(source), (1, 8, 8), "train", None)
    except ValueError as error:
        raise NoPictures(str(error)) from None
    options = SortOptions(into, how, threads=1)
    with claimed(into):
        plan = make_plan(cast(Model, Quick()), images, options, lambda done, total: None)
        between()
        done = carry_out(plan, images, options, lambda done, total: None)
    assert done.seen == len(images) == len(done.placed) + len(done.skipped)
    return {file: reason for file, reason, _ in done.skipped}


def quick_undo(into: Path) -> dict[str, str]:
    """Returns what was kept, and why."""
    return {file: reason for file, reason, _ in undo(into, lambda done, total: None).kept}


def picture(path: Path, value: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8), value, np.uint8)).save(path)
    return path


# What goes where
