"""A bank of features: those of every view of every training image by a frozen backbone, computed once and kept.

The bank lies in one folder of the cache, named by a hash of the pictures, the backbone, the views and the augmentation:
a change of any of them is another bank. ``features.part`` grows chunk by chunk in the order of the images. The random
numbers of a chunk depend on its position alone, so a build that was killed continues behind the last whole chunk and
ends with the same bytes. Besides the chunks at work no memory grows with the number of images.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn

from ..core import rng
from .component_file import StoredFeatures, npy_header, open_components, write_components
from .encoder import Projection, all_features, reopen_backbone
from .feature_recipe import FeatureRecipe
from .inference import map_ordered

CHUNK = 32
"""Images that pass through the backbone together."""
SAMPLE = 20_000
"""Augmented views from which the principal components are computed."""
ROWS = 1024
"""Images that are projected at a time."""
PASSES = 60_000
"""Views for which the default number of copies is meant: about three minutes of a small backbone on two cores."""
FEWEST_COPIES, MOST_COPIES = 4, 15
PATIENCE = 3.0
"""Seconds after which a run that waits for another one says so."""

Progress = Callable[[int, int], None]
"""Called with the number of images done and of all images."""


class BankJob(NamedTuple):
    """A bank to open or to build."""

    images: Tensor
    """uint8 (N, C, H, W)"""
    recipe: FeatureRecipe
    folder: Path
    threads: int
    backbone: nn.Module | None = None
    """The backbone, if it is open already."""
    progress: Progress | None = None


def default_copies(images: int) -> int:
    """Augmented copies of each view: as many as a budget of passes allows, within limits.

    >>> default_copies(100), default_copies(6000), default_copies(1_000_000)
    (15, 4, 4)
    """
    return min(MOST_COPIES, max(FEWEST_COPIES, PASSES // (2 * max(1, images)) - 1))


def stored_features(job: BankJob) -> StoredFeatures:
    """The projected features of all images: from the folder if they are there, otherwise computed."""
    job.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = _open_projected(job)
    if found is not None:
        return found
    with _locked(job.folder):
        _build_features(job)
        _project(job)
    found = _open_projected(job)
    if found is None:
        raise ValueError(f"the features just computed cannot be read back from {job.folder}")
    return found


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process builds a bank; the others wait for it and say so."""
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        warnings.warn(
            f"another run is computing the features of these images in {folder}; waiting until it has finished or ends",
            stacklevel=2,
        )
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _shape(job: BankJob) -> tuple[int, int, int, int]:
    return len(job.images), 2, 1 + job.recipe.copies, job.recipe.identity.features


def _features_file(job: BankJob) -> Path:
    return job.folder / "features.npy"


def _open_projected(job: BankJob) -> StoredFeatures | None:
    return open_components(job.folder, job.recipe.components, _shape(job)[:3])


def _build_features(job: BankJob) -> None:
    """Compute what is missing of features.npy."""
    final, part, shape = _features_file(job), job.folder / "features.part", _shape(job)
    if final.is_file() and final.stat().st_size == _size(shape):
        return
    final.unlink(missing_ok=True)
    if shutil.disk_usage(job.folder).free < _size(shape) - (part.stat().st_size if part.is_file() else 0):
        raise ValueError(
            f"the features of {shape[0]:,} images need {_size(shape) / 1e9:.1f} GB in {job.folder.parent}; free some "
            "space, set CTS_CACHE to another folder, or give fewer --copies"
        )
    backbone = reopen_backbone(job.recipe.identity) if job.backbone is None else job.backbone
    with part.open("ab") as file:
        done = _whole_chunks(file.tell(), shape)
        file.truncate(len(npy_header(shape)) + done * CHUNK * _row_bytes(shape) if done else 0)
        file.seek(0, os.SEEK_END)
        if not done:
            file.write(npy_header(shape))

        def one(start: int) -> bytes:
            generator = rng.torch_generator(0, "bank", start)
            found = all_features(backbone, job.images[start : start + CHUNK], job.recipe, generator)
            return found.numpy().tobytes()

        for number, content in enumerate(
            map_ordered(one, range(done * CHUNK, shape[0], CHUNK), job.threads), start=done + 1
        ):
            file.write(content)
            file.flush()
            if job.progress is not None:
                job.progress(min(number * CHUNK, shape[0]), shape[0])
        os.fsync(file.fileno())
    part.replace(final)


def _project(job: BankJob) -> None:
    """Fit the projection to augmented views and write the components of all views."""
    features = np.load(_features_file(job), mmap_mode="r", allow_pickle=False)
    count, sides, copies, _ = features.shape
    views = count * sides * (copies - 1)
    generator = rng.numpy_generator(0, "components")
    drawn = np.sort(
        generator.choice(views, min(SAMPLE, views), replace=False, shuffle=False)
    )  # not a permutation of all
    image, rest = np.divmod(drawn, sides * (copies - 1))
    side, copy = np.divmod(rest, copies - 1)
    projection = Projection.fit(torch.from_numpy(features[image, side, 1 + copy]), job.recipe.components)

    def pieces() -> Iterator[Tensor]:
        for start in range(0, count, ROWS):
            yield projection(torch.from_numpy(np.array(features[start : start + ROWS])))

    write_components(job.folder, job.recipe.components, projection, (count, sides, copies), pieces())


def _row_bytes(shape: tuple[int, ...]) -> int:
    return 2 * int(np.prod(shape[1:]))


def _size(shape: tuple[int, ...]) -> int:
    return len(npy_header(shape)) + shape[0] * _row_bytes(shape)


def _whole_chunks(size: int, shape: tuple[int, ...]) -> int:
    """How many whole chunks a file of so many bytes holds behind its header."""
    return max(0, size - len(npy_header(shape))) // (CHUNK * _row_bytes(shape))
