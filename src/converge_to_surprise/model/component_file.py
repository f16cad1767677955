"""Files of stored features: their components, memory-mapped, and the projection that made them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from ..config.storage import write_atomically
from .encoder import Projection


class StoredFeatures(NamedTuple):
    """What the search works on."""

    items: Tensor
    """float16 (N, sides, 1 + copies, components), memory-mapped; copy 0 is not augmented."""
    projection: Projection


def open_components(folder: Path, components: int, shape: tuple[int, int, int]) -> StoredFeatures | None:
    """The stored features of ``shape`` (N, sides, 1 + copies), or None if they are not complete."""
    values, projected = _files(folder, components)
    try:
        tensors = safetensors.torch.load_file(projected)
        projection = Projection(tensors["mean"], tensors["directions"])
        items = np.load(values, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, KeyError, EOFError, SafetensorError):
        return None
    sound = items.shape == (*shape, projection.directions.shape[1]) and items.dtype == np.float16
    return StoredFeatures(torch.from_numpy(items), projection) if sound else None


def write_components(
    folder: Path, components: int, projection: Projection, shape: tuple[int, int, int], parts: Iterator[Tensor]
) -> None:
    """Write the components of ``parts`` of the items (n, sides, 1 + copies, components), and the projection."""
    values, projected = _files(folder, components)

    def pieces() -> Iterator[bytes]:
        yield npy_header((*shape, projection.directions.shape[1]))
        for part in parts:
            yield part.numpy().tobytes()

    write_atomically(values, pieces())
    write_atomically(projected, safetensors.torch.save(dict(projection._asdict())))


def npy_header(shape: tuple[int, ...]) -> bytes:
    """The header of an .npy file of float16 values."""
    text = io.BytesIO()
    about: npt.NDArray[np.float16] = np.empty(0, np.float16)
    np.lib.format.write_array_header_1_0(
        text, {"descr": np.lib.format.dtype_to_descr(about.dtype), "fortran_order": False, "shape": shape}
    )
    return text.getvalue()


def _files(folder: Path, components: int) -> tuple[Path, Path]:
    return folder / f"components-{components}.npy", folder / f"projection-{components}.safetensors"
