"""Where images come from: data sets by name, and array files.

A named set is looked for in the local folder first (``--data-dir`` or ``CTS_DATA``: ``NAME.npz`` or IDX files) and
otherwise downloaded from OpenML into scikit-learn's cache. ``digits`` is part of scikit-learn and needs no network.
"""

from __future__ import annotations

import http.client
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.datasets import fetch_openml, load_digits

from .idx import find_idx, read_idx
from .store import Array, ImageStore, to_store

Split = Literal["train", "test"]


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


@dataclass(frozen=True)
class Dataset:
    """A training part and, if the source has one, a test part."""

    name: str
    train: ImageStore
    test: ImageStore | None = None

    @property
    def evaluation(self) -> ImageStore:
        """The part to evaluate on: the test split where there is one, otherwise all images."""
        return self.train if self.test is None else self.test


def canonical(source: str) -> str | None:
    """The named data set that ``source`` means, or None: ``Fashion_MNIST`` is ``fashion-mnist``."""
    name = source.lower().replace("_", "-")
    return name if name in NAMED else None


def load(source: str, data_dir: Path | None = None) -> Dataset:
    """Images from a named data set or from an ``.npz`` or ``.npy`` file."""
    name = canonical(source)
    if name == "digits":
        return _digits()
    if name is not None:
        return _local(name, data_dir) or _download(name)
    path = Path(source)
    if path.is_file() and path.suffix in (".npz", ".npy"):
        return _array_file(path, str(path))
    known = f"a name ({', '.join(NAMED)}) or an .npz or .npy file"
    if path.exists():
        raise ValueError(f"{source} is not a source of images; give {known}")
    raise ValueError(f"there is no data set or file {source!r}; give {known}")


def _digits() -> Dataset:
    bundle = load_digits()
    return Dataset("digits", to_store(np.round(bundle.images / 16 * 255).astype(np.uint8), bundle.target, "digits"))


def _local(name: str, data_dir: Path | None) -> Dataset | None:
    """The data set in the local folder, or None if no folder is set or it is not there."""
    setting = "--data-dir" if data_dir else "CTS_DATA"
    folder = data_dir or (Path(os.environ["CTS_DATA"]) if os.environ.get("CTS_DATA") else None)
    if folder is None:
        return None
    if not folder.is_dir():
        raise ValueError(f"{setting} is {str(folder)!r}, which is not a folder")
    for spelling in (name, name.replace("-", "_")):
        if (folder / f"{spelling}.npz").is_file():
            return _array_file(folder / f"{spelling}.npz", name)
    places = [folder / name, folder / name.replace("-", "_"), *_torchvision_places(folder, name.replace("-", ""))]
    # IDX files do not say which set they are: loose ones count only where the folder was given for this very set.
    for place in [*places, folder] if data_dir else places:
        if find_idx(place, "train", "images"):
            return _idx_folder(place, name)
    return None


def _torchvision_places(folder: Path, plain: str) -> list[Path]:
    """FashionMNIST/raw and the like, as torchvision lays them out."""
    return [entry / "raw" for entry in sorted(folder.iterdir()) if entry.is_dir() and entry.name.lower() == plain]


def _idx_folder(folder: Path, name: str) -> Dataset:
    stores: list[ImageStore] = []
    for split in ("train", "test"):
        images, labels = find_idx(folder, split, "images"), find_idx(folder, split, "labels")
        if images is not None:
            stores.append(to_store(read_idx(images), None if labels is None else read_idx(labels), str(images)))
    return Dataset(name, *stores)


def _array_file(path: Path, name: str) -> Dataset:
    """``x_train``/``y_train``/``x_test``/``y_test``, or ``images``/``x`` with ``labels``/``y``, or a lone array."""
    try:
        # Pickled objects could run code of whoever wrote the file.
        content = np.load(path, allow_pickle=False)
        arrays: dict[str, Array] = {"images": content} if isinstance(content, np.ndarray) else dict(content)
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"cannot read {path} as an array file: {error}") from None
    if "x_train" in arrays:
        train = to_store(arrays["x_train"], arrays.get("y_train"), f"x_train of {path}")
        test = to_store(arrays["x_test"], arrays.get("y_test"), f"x_test of {path}") if "x_test" in arrays else None
        return Dataset(name, train, test)
    images = [key for key in ("images", "x", "X", "arr_0") if key in arrays]
    labels = [key for key in ("labels", "y", "target") if key in arrays]
    if not images:
        raise ValueError(f"{path} has the arrays {sorted(arrays)}; one of them must be called images, x or x_train")
    return Dataset(name, to_store(arrays[images[0]], arrays[labels[0]] if labels else None, str(path)))


def _download(name: str) -> Dataset:
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
        to_store(pixels[:cut], labels[:cut] - labels.min(), name),
        to_store(pixels[cut:], labels[cut:] - labels.min(), name),
    )


def _openml_pixels(data: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """OpenML's USPS is stored as floats from -1 (black) to 1, its MNIST and Fashion-MNIST as 0..255."""
    low, high = float(data.min()), float(data.max())
    scaled = (data - low) * (255 / (high - low)) if low < 0 or high <= 2 else data
    return np.round(scaled).astype(np.uint8)
