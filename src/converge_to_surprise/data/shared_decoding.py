"""Pictures decoded by several processes: each its share, into a file of its own; the first one joins them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import IO

import numpy as np
import torch

from ..config.storage import read_json, write_json
from ..distributed import launch as distributed
from ..distributed.group import ProcessGroup
from . import datasets
from .cache import Decoder, Progress, Share, decode_rows
from .decode import Shape
from .image_options import SkippedFile
from .listing import Listing
from .pictures import CHUNK


def shared_decoder(world: ProcessGroup) -> Decoder | None:
    """A decoder that lets all processes take part; None if there is only one. They must see the same files."""
    if world.alone:
        return None

    def decode(file: IO[bytes], listing: Listing, shape: Shape, threads: int, progress: Progress | None) -> Share:
        details = {"source": os.path.abspath(listing.source), "files": len(listing), "into": file.name}
        distributed.order(world, "decode", details | {"shape": list(shape), "threads": threads})
        rows = world.part(len(listing), CHUNK)
        positions, quarantine = decode_rows(file, listing, shape, rows, threads, progress)
        _all_done(world)
        whole = [positions]
        for rank in range(1, world.size):
            pixels, about = _files(Path(file.name), rank)
            with pixels.open("rb") as part:
                shutil.copyfileobj(part, file)
            found = read_json(about)
            whole.append(np.array(found["positions"], np.int64))
            quarantine += [SkippedFile(*bad) for bad in found["quarantine"]]
            pixels.unlink()
            about.unlink()
        return np.concatenate(whole), quarantine

    return decode


def help_decode(world: ProcessGroup, source: str, files: int, into: str, shape: list[int], threads: int) -> None:
    """What another process does for the shared decoder."""
    listing = datasets.open_listing(source)
    if listing is None or len(listing) != files:
        found = 0 if listing is None else len(listing)
        raise ValueError(f"{source} has {found} pictures here, but {files} where the first process is")
    channels, height, width = shape
    pixels, about = _files(Path(into), world.rank)
    with pixels.open("wb") as file:
        rows = world.part(files, CHUNK)
        positions, quarantine = decode_rows(file, listing, (channels, height, width), rows, threads)
    write_json(about, {"positions": positions.tolist(), "quarantine": quarantine})
    _all_done(world)


def _files(into: Path, rank: int) -> tuple[Path, Path]:
    """The pixels of one process, and what else it has to say."""
    return into.with_name(f"{into.name}.{rank}"), into.with_name(f"{into.name}.{rank}.json")


def _all_done(world: ProcessGroup) -> None:
    """Wait for every process."""
    world.gather(torch.zeros(1), world.size)
