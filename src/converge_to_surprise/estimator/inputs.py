"""The estimator's inputs: arrays of any usual shape, tensors, data frames, a folder, a list of paths."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import validate_data
from torch import Tensor

from ..config.images import ImageOptions
from ..data.arrays import (
    BYTES,
    Scale,
    check_flattened,
    check_pixel_range,
    natural_scale,
    to_images,
    to_nchw,
    to_numpy,
    unflatten,
)
from ..data.datasets import open_listing
from ..data.embeddings import check_like, to_items
from ..data.listing import Listing, list_paths
from ..data.pictures import stream
from ..data.skipped import SkippedFile, nothing_readable
from ..data.working_size import SIDE, array_size, size_like, working_shape

if TYPE_CHECKING:
    from .clustering import SurpriseClustering

Shape = tuple[int, int, int]
_Kind = TypeVar("_Kind", bound=np.generic)


@dataclass(frozen=True)
class Input:
    """Images for the trainer, and how they were converted, so that later ones are converted alike."""

    images: Tensor
    """uint8 (n, C, H, W), or embeddings (n, V, 1, D)"""
    scale: Scale | None
    """None: of each array its own, 0..255 or 0..1, as the command line reads files."""
    kept: npt.NDArray[np.int64] | None
    """(n,) Which of the images given could be read; None means all."""
    count: int
    """Images given."""
    quarantine: list[SkippedFile]

    @property
    def shape(self) -> Shape:
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def spread(self, values: npt.NDArray[_Kind], missing: float | str) -> npt.NDArray[_Kind]:
        """Values of the images that could be read (n, ...) as values of all; ``missing`` for the others."""
        if self.kept is None:
            return values
        whole = np.full((self.count, *values.shape[1:]), missing, dtype=values.dtype)
        whole[self.kept] = values
        return whole


def first_input(estimator: SurpriseClustering, given: Any, side: int | None = None) -> Input:
    """The images to learn from. ``side``: that of the square pictures that a pre-trained backbone takes."""
    reading = ImageOptions(image_size=estimator.image_size, color=estimator.color, threads=estimator.n_threads or 0)
    if estimator.input == "embeddings":
        return _embeddings(estimator, given, None)
    given = _column(given)
    listing = _listing(given)
    if listing is not None:
        shape = working_shape(listing, reading) if side is None else (3, side, side)
        found = _decoded(listing, shape, reading.threads)
        _set_features_in(estimator, math.prod(found.shape))
        return found
    pixels = _pixels(estimator, given, reset=True)
    scale = natural_scale(pixels, "X")
    images = to_images(pixels, scale, "X", lambda own: array_size(own, reading.image_size, side or SIDE))
    return Input(images, scale, None, len(pixels), [])


def later_input(estimator: SurpriseClustering, given: Any, shape: Shape, scale: Scale | None) -> Input:
    """More images, treated as those that were learned from."""
    if estimator.input == "embeddings":
        return _embeddings(estimator, given, shape)
    given = _column(given)
    listing = _listing(given)
    if listing is not None:
        return _decoded(listing, shape, estimator.n_threads or 0)
    pixels = _pixels(estimator, given, reset=False)
    own_scale = natural_scale(pixels, "X")  # refuses what is not finite
    if scale is None:
        check_pixel_range(own_scale, "X")
    images = to_images(pixels, scale or own_scale, "X", lambda own: size_like(own, shape, "X"))
    return Input(images, scale, None, len(pixels), [])


def _embeddings(estimator: SurpriseClustering, given: Any, shape: Shape | None) -> Input:
    """Feature vectors, as many values each as ``shape`` (V, 1, D) has. Tables are checked by scikit-learn itself."""
    if not isinstance(given, list | tuple) and not any(hasattr(given, name) for name in ("ndim", "__array__")):
        raise ValueError(f"X is of type {type(given).__name__}; embeddings are (N, D) or (N, V, D) arrays")
    values = (
        given
        if hasattr(given, "columns")
        else to_numpy(_stackable(given) if isinstance(given, list | tuple) else given)
    )
    if np.ndim(values) == 2:
        values = validate_data(estimator, values, reset=shape is None, dtype="numeric", ensure_min_features=2)
    items = to_items(np.asarray(values), "X")
    if shape is not None:
        check_like(items, shape, "X")
    elif np.ndim(values) == 3:
        _set_features_in(estimator, items.shape[3])
    return Input(items, None, None, len(items), [])


def _set_features_in(estimator: SurpriseClustering, features: int) -> None:
    """What ``validate_data`` sets, for arrays that it does not take."""
    estimator.n_features_in_ = features
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def _column(given: Any) -> Any:
    """A column of a table (a Series of pandas or polars, an array of Arrow) that holds no numbers, as a list."""
    if isinstance(given, str | bytes | Sequence | np.ndarray | Tensor) or getattr(given, "ndim", 1) != 1:
        return given
    to_list = next((getattr(given, name) for name in ("to_list", "to_pylist") if hasattr(given, name)), None)
    if to_list is None:
        return given
    entries = list(to_list())
    return given if all(isinstance(entry, numbers.Number) for entry in entries) else entries


def _listing(given: Any) -> Listing | None:
    """The files that X names, if it names any."""
    if isinstance(given, str | os.PathLike):
        listing = open_listing(os.fspath(given))
        if listing is None:
            raise ValueError(f"X is {os.fspath(given)!r}; give a folder of pictures, a list of paths, or arrays")
        return listing
    if (
        isinstance(given, Sequence | np.ndarray)
        and len(given)
        and all(isinstance(entry, str | os.PathLike) for entry in given)
    ):
        return list_paths(list(given), "X")
    return None


def _decoded(listing: Listing, shape: Shape, threads: int) -> Input:
    pixels: list[npt.NDArray[np.uint8]] = []
    kept: list[npt.NDArray[np.int64]] = []
    quarantine: list[SkippedFile] = []
    for chunk in stream(listing, shape, threads):
        pixels.append(chunk.pixels)
        kept.append(chunk.positions)
        quarantine += chunk.quarantined
    positions = np.concatenate(kept)
    if not len(positions):
        raise ValueError(nothing_readable(listing, quarantine))
    images = torch.from_numpy(np.concatenate(pixels))
    return Input(images, BYTES, positions if quarantine else None, len(listing), quarantine)


def _stackable(given: Sequence[Any]) -> Sequence[Any]:
    """A list of images or of flattened images, if all have the same shape."""
    if not len(given):
        raise ValueError("X is empty; give arrays of images, or paths of pictures")
    if any(isinstance(entry, str | os.PathLike) for entry in given):
        raise ValueError("X mixes paths with other things; give paths only, or arrays only")
    try:
        images = [to_numpy(entry) for entry in given]
    except ValueError:
        raise ValueError("X holds a list that is no image: its rows differ in length") from None
    for number, image in enumerate(images):
        if image.dtype == object:
            raise ValueError(f"X holds {given[number]!r} at {number}, which is neither an image nor a path")
        if image.shape != images[0].shape:
            raise ValueError(
                f"X holds images of different shapes: {images[0].shape} first and {image.shape} at {number}; "
                "bring them to one shape, or give paths of pictures"
            )
    return images


def _pixels(estimator: SurpriseClustering, given: Any, reset: bool) -> npt.NDArray[Any]:
    """X as (N, C, H, W) numbers. Tables of flattened images are checked by scikit-learn itself."""
    if not isinstance(given, list | tuple) and not any(hasattr(given, name) for name in ("ndim", "__array__")):
        raise ValueError(f"X is of type {type(given).__name__}; give arrays of images, paths of pictures, or a folder")
    many = getattr(given, "ndim", None)
    if isinstance(given, list | tuple):
        given = _stackable(given)
        many = 1 + max((np.ndim(image) for image in given[:1]), default=0)
    if many is None or many <= 2:
        table = given.detach().cpu().numpy() if isinstance(given, Tensor) else given
        fewest = {"ensure_min_samples": 2, "ensure_min_features": 2} if reset else {}
        rows = validate_data(estimator, table, reset=reset, dtype="numeric", **fewest)
        if reset and estimator.image_shape is None:
            check_flattened(rows, "X")
        return unflatten(rows, estimator.image_shape)
    pixels = to_nchw(to_numpy(given), "X")
    if pixels.size == 0:
        raise ValueError(f"X has shape {np.shape(given)}: there is no pixel in it")
    if reset:
        _set_features_in(estimator, math.prod(pixels.shape[1:]))
    return pixels
