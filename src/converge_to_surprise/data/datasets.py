"""Where images come from: data sets by name, array files, and the user's own pictures.

A named set is looked for in the local folder first (``--data-dir`` or ``CTS_DATA``: ``NAME.npz`` or IDX files) and
otherwise downloaded from OpenML into scikit-learn's cache. ``digits`` is part of scikit-learn and needs no network.
"""

from __future__ import annotations

import http.client
import os
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import fetch_openml, load_digits
from torch import Tensor

from ..config.images import ImageOptions
from ..config.presets import canonical
from .array_file import find_idx, labels_beside, looks_like_idx, read_idx, read_parts
from .arrays import HINT, Sizing
from .cache import Decoded, Progress, cached
from .embeddings import check_like, read_embeddings, to_items
from .formats import readable
from .listing import (
    SUFFIXES,
    Listing,
    list_folder,
    list_paths,
    list_table,
    looks_like_classes,
    looks_like_picture,
    with_folder_classes,
)
from .resize import Shape
from .skipped import SkippedFile, first_reasons, nothing_readable
from .store import ImageStore, check_labels, to_store
from .working_size import SIDE, array_size, size_like

ARRAYS = (".npz", ".npy")
IMAGE_KEYS = ("images", "x", "X", "arr_0")
"""Names of the images in an .npz file; see ``read_parts``."""
BLANK = 128
"""Gray value in place of a picture of embeddings that cannot be read."""


@dataclass(frozen=True)
class _OpenML:
    """A data set on OpenML: rows 0..train-1 are the original training split."""

    name: str
    version: int
    side: int
    train: int


NAMED: dict[str, _OpenML | None] = {
    "mnist": _OpenML("mnist_784", 1, 28, 60_000),
    "fashion-mnist": _OpenML("Fashion-MNIST", 1, 28, 60_000),
    "usps": _OpenML("USPS", 1, 16, 7_291),
    "digits": None,
}
FASHION = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
"""The classes of Fashion-MNIST."""


def class_name(dataset: str, number: int) -> str:
    """The name of a class of a named data set.

    >>> class_name("usps", 7), class_name("fashion-mnist", 9)
    ('digit 7', 'ankle boot')
    """
    return FASHION[number] if dataset == "fashion-mnist" and number < len(FASHION) else f"digit {number}"


@dataclass(frozen=True)
class Dataset:
    """A training part and, if the source has one, a test part."""

    name: str
    train: ImageStore
    test: ImageStore | None = None
    quarantine: list[SkippedFile] = field(default_factory=list)
    """Files that were skipped, and why."""
    classes_offered: int = 0
    """How many folders look like classes; 0 if none do, or if they are the labels already."""

    @property
    def evaluation(self) -> ImageStore:
        """The part to evaluate on: the test split where there is one, otherwise all images."""
        return self.train if self.test is None else self.test


def load(
    source: str,
    data_dir: Path | None = None,
    options: ImageOptions | None = None,
    progress: Progress | None = None,
    shape: Shape | None = None,
) -> Dataset:
    """Images from a named data set, an array or IDX file, a folder of pictures, or a table of their paths.

    They are brought to ``shape`` (C, H, W) if it is given, otherwise to the size that ``options`` and the images call
    for. ``progress`` receives the number of decoded pictures.
    """
    options = options or ImageOptions()
    if options.input == "embeddings":
        return load_embeddings(source, options, progress, shape)
    listing = open_listing(source, options)
    if listing is not None:
        exact = shape or (options.square and (3, options.square, options.square)) or None
        return _pictures(listing, cached(listing, options, exact, progress))

    def size(own: Shape) -> tuple[int, int]:
        if shape is not None:
            return size_like(own, shape, source)
        return array_size(own, options.image_size, options.square or SIDE)

    return load_arrays(source, data_dir, size)


def load_embeddings(
    source: str, reading: ImageOptions, progress: Progress | None = None, shape: Shape | None = None
) -> Dataset:
    """Embeddings of an .npy, .npz or .parquet file, with as many values as ``shape`` (V, 1, D) if it is given.

    With a shape they are read again: pictures that are gone since are only warned of.
    """
    try:
        return _embeddings(source, reading, progress, shape)
    except ValueError as error:
        if shape is None or reading.pictures is None:
            raise
        found = _embeddings(source, replace(reading, pictures=None), progress, shape)
        warnings.warn(f"the page has no pictures of the embeddings: {error}", stacklevel=2)
        return found


def _embeddings(source: str, reading: ImageOptions, progress: Progress | None, shape: Shape | None) -> Dataset:
    if reading.labels == "from-folders":
        raise ValueError(f"labels is 'from-folders', but {source} holds embeddings; put labels into the file")
    place = reading.pictures
    is_column = place is not None and not Path(place).exists()
    parts = read_embeddings(source, place if is_column else None)
    stores = []
    for values, labels, name, _ in parts:
        items = to_items(values, name)
        if shape is not None:
            check_like(items, shape, name)
        classes, words = (None, None) if labels is None else check_labels(np.asarray(labels), len(items), name)
        stores.append(ImageStore(items, classes, class_names=words))
    if place is not None:
        paths = parts[0].paths
        listing = open_listing(place) if paths is None else list_paths(paths, f"the column {place} of {source}")
        if listing is None:
            raise ValueError(f"--images is {place}; give a folder of pictures, a table of their paths, or a column")
        pictures = read_thumbnails(listing, len(stores[0]), progress)
        stores[0] = replace(stores[0], thumbnails=pictures, names=list(listing.names))
    return Dataset(source, stores[0], stores[1] if len(stores) > 1 else None)


def read_thumbnails(listing: Listing, count: int, progress: Progress | None) -> Tensor:
    """A picture for each of ``count`` items, in the order of the listing; gray where it cannot be read.

    uint8 (N, C, H, W)
    """
    if len(listing) != count:
        raise ValueError(f"--images is {listing.source}, which has {len(listing):,} pictures for {count:,} embeddings")
    decoded = cached(listing, ImageOptions(), None, progress)
    if not len(decoded.positions):
        raise ValueError(nothing_readable(listing, decoded.quarantine))
    if len(decoded.positions) == count:
        return torch.from_numpy(np.asarray(decoded.pixels))
    whole = np.full((count, *decoded.pixels.shape[1:]), BLANK, np.uint8)
    whole[decoded.positions] = decoded.pixels
    return torch.from_numpy(whole)


def load_arrays(source: str, data_dir: Path | None = None, sizing: Sizing | None = None) -> Dataset:
    """Images from a named data set or an array or IDX file, in the size that ``sizing`` asks for, or as they are."""
    name = canonical(source)
    if name == "digits":
        return _digits(sizing)
    if name is not None:
        return _local(name, data_dir, sizing) or _download(name, sizing)
    path = Path(source)
    if path.suffix.lower() in ARRAYS:
        return _array_file(path, source, sizing)
    return Dataset(source, _idx_store(path, labels_beside(path), sizing))


def open_listing(source: str, options: ImageOptions | None = None) -> Listing | None:
    """The files of a folder or table of pictures, or None for images of another kind.

    Raises ValueError for what is no source of images at all.
    """
    path = Path(source)
    several = path.is_dir() or (path.suffix.lower() in SUFFIXES and path.is_file())
    pictures = canonical(source) is None and (several or _is_picture_file(path))
    from_folders = options is not None and options.labels == "from-folders"
    if not pictures:
        _check_known(source, path)
    if from_folders and not (pictures and path.is_dir()):
        raise ValueError(f"labels is 'from-folders', but {source} is not a folder of pictures")
    if not pictures:
        return None
    listing = list_folder(path) if path.is_dir() else list_table(path) if several else list_paths([path], source)
    if not len(listing):
        raise ValueError(_no_pictures(path))
    return with_folder_classes(listing) if from_folders else listing


def _is_picture_file(path: Path) -> bool:
    """Whether a file looks like a picture, readable or not, and is not an array file."""
    return path.is_file() and path.suffix.lower() not in ARRAYS and looks_like_picture(str(path))


def _check_known(source: str, path: Path) -> None:
    """Refuse what is neither the name of a data set nor a file of images."""
    if canonical(source) is not None or (path.is_file() and (path.suffix.lower() in ARRAYS or looks_like_idx(path))):
        return
    known = (
        f"a name ({', '.join(NAMED)}), a folder of pictures, a picture, an .npz, .npy or IDX file, "
        "or a .csv or .parquet file with a column of paths"
    )
    if path.exists():
        raise ValueError(f"{source} is not a source of images; give {known}")
    raise ValueError(f"there is no data set or file {source!r}; give {known}")


def _no_pictures(path: Path) -> str:
    """What a folder or table without pictures holds instead."""
    if path.is_file():
        return f"{path} names no pictures: it has no rows"
    if idx := [entry.name for entry in sorted(path.iterdir()) if looks_like_idx(entry)]:
        return f"{path} holds IDX files and no pictures; give one of the files, such as {path / idx[0]}"
    kinds = Counter(entry.suffix.lower() or "no ending" for entry in path.rglob("*") if entry.is_file())
    found = ", ".join(f"{count} of {kind}" for kind, count in kinds.most_common(4)) or "no files at all"
    return f"{path} is not a source of images: it holds no pictures ({', '.join(readable())}), but {found}"


def _pictures(listing: Listing, decoded: Decoded) -> Dataset:
    if len(decoded.positions) < 2:
        aside = f"; skipped: {first_reasons(decoded.quarantine)}" if decoded.quarantine else ""
        raise ValueError(
            f"{listing.source} has {len(decoded.positions)} readable pictures of {len(listing)}, "
            f"and clustering needs at least 2, useful clusters many more{aside}"
        )
    given = listing.classes
    classes = None if given is None else np.array([given[position] for position in decoded.positions], object)
    store = replace(
        to_store(decoded.pixels, classes, listing.source),
        names=[listing.names[position] for position in decoded.positions],
    )
    offered = looks_like_classes(listing) if classes is None and Path(listing.source).is_dir() else 0
    return Dataset(listing.source, store, quarantine=decoded.quarantine, classes_offered=offered)


def _digits(sizing: Sizing | None) -> Dataset:
    bundle = load_digits()
    pixels = np.round(bundle.images / 16 * 255).astype(np.uint8)
    return Dataset("digits", to_store(pixels, bundle.target, "digits", sizing))


def _local(name: str, data_dir: Path | None, sizing: Sizing | None) -> Dataset | None:
    """The data set in the local folder, or None if no folder is set or it is not there."""
    setting = "--data-dir" if data_dir else "CTS_DATA"
    folder = data_dir or (Path(os.environ["CTS_DATA"]) if os.environ.get("CTS_DATA") else None)
    if folder is None:
        return None
    if not folder.is_dir():
        raise ValueError(f"{setting} is {str(folder)!r}, which is not a folder")
    for spelling in (name, name.replace("-", "_")):
        if (folder / f"{spelling}.npz").is_file():
            return _array_file(folder / f"{spelling}.npz", name, sizing)
    plain = name.replace("-", "")  # FashionMNIST/raw and the like, as torchvision lays them out
    raw = [entry / "raw" for entry in sorted(folder.iterdir()) if entry.is_dir() and entry.name.lower() == plain]
    places = [folder / name, folder / name.replace("-", "_"), *raw]
    # An IDX file does not name its data set: loose files count only if the folder was given for this one.
    for place in [*places, folder] if data_dir else places:
        if find_idx(place, "train", "images"):
            return _idx_folder(place, name, sizing)
    return None


def _idx_folder(folder: Path, name: str, sizing: Sizing | None) -> Dataset:
    parts = [(find_idx(folder, split, "images"), find_idx(folder, split, "labels")) for split in ("train", "test")]
    train, test = (None if images is None else _idx_store(images, labels, sizing) for images, labels in parts)
    assert train is not None
    return Dataset(name, train, test)


def _idx_store(path: Path, labels: Path | None, sizing: Sizing | None) -> ImageStore:
    return to_store(read_idx(path), None if labels is None else read_idx(labels), str(path), sizing)


def _array_file(path: Path, name: str, sizing: Sizing | None) -> Dataset:
    """``x_train``/``y_train``/``x_test``/``y_test``, or ``images``/``x`` with ``labels``/``y``, or a lone array."""
    parts, names = read_parts(path, IMAGE_KEYS, path)
    if not parts:
        raise ValueError(
            f"{path} has the arrays {sorted(names)}; one of them must be called images, x or x_train ({HINT})"
        )
    stores = [to_store(part.values, part.labels, part.name, sizing) for part in parts]
    return Dataset(name, stores[0], stores[1] if len(stores) > 1 else None)


def _download(name: str, sizing: Sizing | None) -> Dataset:
    described = NAMED[name]
    assert described is not None
    try:
        bundle = fetch_openml(described.name, version=described.version, as_frame=False, parser="liac-arff")
    except (OSError, ValueError, EOFError, http.client.HTTPException) as error:
        raise ValueError(
            f"{name} is not in the local folder and could not be downloaded from OpenML ({error}). "
            f"Put {name}.npz or its IDX files into a folder and give it as --data-dir or CTS_DATA; "
            "the digits data set needs no network."
        ) from None
    pixels = _openml_pixels(bundle.data).reshape(-1, described.side, described.side)
    labels = bundle.target.astype(float).astype(np.int64)
    cut = described.train
    return Dataset(
        name,
        to_store(pixels[:cut], labels[:cut] - labels.min(), name, sizing),
        to_store(pixels[cut:], labels[cut:] - labels.min(), name, sizing),
    )


def _openml_pixels(data: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """OpenML's USPS is stored as floats from -1 (black) to 1, its MNIST and Fashion-MNIST as 0..255."""
    low, high = float(data.min()), float(data.max())
    scaled = (data - low) * (255 / (high - low)) if low < 0 or high <= 2 else data
    return np.round(scaled).astype(np.uint8)
