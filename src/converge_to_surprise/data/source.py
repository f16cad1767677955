"""The images of any source, in order and in chunks, with constant memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..config.images import ImageOptions, InputKind
from . import datasets
from .arrays import BYTES, to_images
from .formats import optional_decoders
from .listing import Listing
from .pictures import stream
from .resize import Shape
from .skipped import SkippedFile
from .store import fingerprint
from .working_size import size_like

CHUNK = 1000
"""Images of an array per chunk."""


class SourceChunk(NamedTuple):
    """Some images in order."""

    stop: int
    """Number of the source's images up to the end of this chunk, read or skipped."""
    names: Sequence[str | int]
    images: Tensor
    """uint8 (n, C, H, W), in the shape of the model, or embeddings (n, V, 1, D)"""
    originals: Tensor
    """The same in their own size, which may be larger."""
    paths: Sequence[str] | None
    """The files they come from, if they come from files."""
    quarantined: list[SkippedFile]


@dataclass(frozen=True)
class Source:
    """A folder or table of pictures, or an array."""

    name: str
    shape: Shape
    listing: Listing | None
    array: Tensor | None

    @classmethod
    def open(
        cls, source: str, shape: Shape, split: Literal["train", "test"], data_dir: Path | None,
        kind: InputKind = "images",
    ) -> Source:  # fmt: skip
        """Where images come from; they will be brought to ``shape`` (C, H, W). Arrays must have its aspect.

        ``kind``: what the source holds; embeddings must have as many values as ``shape`` (V, 1, D).
        """
        listing = None if kind == "embeddings" else datasets.open_listing(source)
        if listing is not None:
            return cls(source, shape, listing, None)
        if kind == "embeddings":
            dataset = datasets.load_embeddings(source, ImageOptions(input=kind), shape=shape)
        else:
            dataset = datasets.load_arrays(source, data_dir)
        if split == "test" and dataset.test is None:
            raise ValueError(f"{source} has no test split; leave out --split test")
        store = dataset.train if split == "train" or dataset.test is None else dataset.test
        if kind == "images":
            size_like(store.shape, shape, source)
        return cls(source, shape, None, store.images)

    def __len__(self) -> int:
        return len(self.listing) if self.listing is not None else len(self.array if self.array is not None else ())

    @property
    def identity(self) -> str:
        """A hash that changes when the images or the available decoders do."""
        if self.array is not None:
            return fingerprint(self.array)
        digest = hashlib.sha256("\0".join(optional_decoders()).encode())
        assert self.listing is not None
        for name, path in zip(self.listing.names, self.listing.paths, strict=True):
            try:
                found = os.stat(path)
                state = f"{found.st_size} {found.st_mtime_ns}"
            except OSError:
                state = "gone"
            digest.update(f"{name}\0{state}\0".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def chunks(self, rows: range, threads: int = 0) -> Iterator[SourceChunk]:
        """Some of the images that follow one another."""
        if self.listing is not None:
            names, paths = self.listing.names, self.listing.paths
            for part in stream(self.listing, self.shape, threads, rows.start, rows.stop):
                kept = part.positions.tolist()
                pixels = torch.from_numpy(part.pixels)
                yield SourceChunk(
                    part.stop, [names[k] for k in kept], pixels, pixels, [paths[k] for k in kept], part.quarantined
                )
            return
        assert self.array is not None
        for first in range(rows.start, rows.stop, CHUNK):
            originals = self.array[first : min(first + CHUNK, rows.stop)]
            stop = first + len(originals)
            images = originals
            if not originals.is_floating_point():
                images = to_images(originals.numpy(), BYTES, self.name, lambda _: self.shape[1:])
            yield SourceChunk(stop, range(first, stop), images, originals, None, [])
