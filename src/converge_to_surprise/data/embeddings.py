"""Feature vectors that the user already has, as float32 items (N, V, 1, D): V views of each item, D values each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import Tensor

from ..config.memory import check_planned
from .array_file import Part, read_parts
from .arrays import Array, blocks, to_tensor
from .embedding_table import read_embedding_table

FILES = (".npy", ".npz", ".parquet")
KEYS = ("embeddings", "features", "x", "X", "images", "arr_0")
"""Names of the array in an .npz file; a lone array in an .npy file is called images."""
MOST_FEATURES = 8192
"""Values of a vector: their principal components take the cube of it."""
LARGEST = 1e15
"""Larger values are no features, and their squares would not be exact."""


def read_embeddings(source: str, column: str | None) -> list[Part]:
    """The training part of a file and, if it has one, its test part. ``column``: that of the paths of pictures."""
    path = Path(source)
    if path.suffix.lower() not in FILES or not path.is_file():
        what = "is not a file of embeddings" if path.exists() else "does not exist"
        raise ValueError(f"{source} {what}; give an .npy, .npz or .parquet file with (N, D) or (N, V, D) numbers")
    if path.suffix.lower() == ".parquet":
        return [read_embedding_table(path, column)._replace(name=source)]
    if column is not None:
        raise ValueError(f"--images is {column}, which is not a folder, and {source} has no columns")
    parts, names = read_parts(path, KEYS, source)
    if not parts:
        raise ValueError(f"{source} has the arrays {sorted(names)}; one of them must be called embeddings or x")
    return parts


def to_items(values: Array, name: str) -> Tensor:
    """Numbers (N, D) or (N, V, D) as float32 (N, V, 1, D). ``name`` is what messages call them.

    Floats of 32 bits are not copied: what lies on disk stays there.
    """
    if not (np.issubdtype(values.dtype, np.integer) or np.issubdtype(values.dtype, np.floating)):
        raise ValueError(f"{name} has dtype {values.dtype}; embeddings are floats or integers")
    if values.ndim not in (2, 3) or values.shape[-1] < 2 or 0 in values.shape:
        raise ValueError(
            f"{name} has shape {values.shape}; embeddings are (N, D), or (N, V, D) for V views of each item, with at "
            "least 2 values each"
        )
    if values.shape[-1] > MOST_FEATURES:
        raise ValueError(
            f"{name} has {values.shape[-1]:,} values for each item; embeddings have at most {MOST_FEATURES:,}: reduce "
            "them first, for example to principal components"
        )
    for rows in blocks(values.shape):
        _check_values(values[rows], rows.start, name)
    if values.dtype != np.float32:
        check_planned(4 * values.size, f"the {len(values):,} embeddings of {name}")
        values = values.astype(np.float32)
    items = to_tensor(values)
    return items[:, None, None] if items.ndim == 2 else items[:, :, None]


def _check_values(part: Array, start: int, name: str) -> None:
    """Refuse values that are not finite or are huge. ``start``: the position of the first item."""
    good = np.abs(part.astype(np.float64)) <= LARGEST
    if good.all():
        return
    item, *where = np.argwhere(~good)[0]
    value = part[(item, *where)]
    raise ValueError(
        f"{name} has the value {value} in item {start + item}; embeddings must be finite numbers from -{LARGEST:g} to "
        f"{LARGEST:g}"
    )


def check_like(items: Tensor, shape: tuple[int, int, int], name: str) -> None:
    """Refuse items (N, V, 1, D) of another D than that of ``shape`` (V, 1, D)."""
    found, wanted = items.shape[3], shape[2]
    if found != wanted:
        raise ValueError(f"{name} has embeddings of {found} values; the model was made with embeddings of {wanted}")
