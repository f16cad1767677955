"""Decode all pictures of a listing into a file, with all joined processes.

Each process writes its share to a file of its own, and the first one joins them. All must see the same pictures.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from ..config.storage import read_json, write_json
from ..distributed import launch
from ..distributed.group import current
from .listing import Listing
from .pictures import CHUNK, stream
from .resize import Shape
from .skipped import SkippedFile

DecodedRows = tuple[npt.NDArray[np.int64], list[SkippedFile]]
"""Positions of the decoded pictures, and the skipped files."""


class DecodeJob(NamedTuple):
    """Pictures to decode, and how."""

    listing: Listing
    shape: Shape
    threads: int = 0
    progress: Callable[[int, int], None] | None = None


def decode_all(file: IO[bytes], job: DecodeJob) -> DecodedRows:
    """Write the pixels of all pictures of a job."""
    files, group = len(job.listing), launch.joined_group()
    if group.is_single:
        return _decode_rows(file, job, range(files))
    details = {"source": os.path.abspath(job.listing.source), "files": files, "into": file.name}
    launch.send_command(group, "decode", details | {"shape": list(job.shape), "threads": job.threads})
    positions, quarantine = _decode_rows(file, job, group.part(files, CHUNK))
    group.barrier()
    whole = [positions]
    for rank in range(1, group.size):
        pixels, about = _files(Path(file.name), rank)
        with pixels.open("rb") as part:
            shutil.copyfileobj(part, file)
        found = read_json(about)
        whole.append(np.array(found["positions"], np.int64))
        quarantine += [SkippedFile(*bad) for bad in found["quarantine"]]
        pixels.unlink()
        about.unlink()
    return np.concatenate(whole), quarantine


def decode_as_worker(source: str, files: int, into: str, shape: list[int], threads: int) -> None:
    """Decode the share of a worker."""
    from .datasets import open_listing  # datasets imports this module

    listing = open_listing(source)
    if listing is None or len(listing) != files:
        found = 0 if listing is None else len(listing)
        raise ValueError(f"{source} has {found} pictures here, but {files} where the first process is")
    group = current()
    channels, height, width = shape
    pixels, about = _files(Path(into), group.rank)
    with pixels.open("wb") as file:
        job = DecodeJob(listing, (channels, height, width), threads)
        positions, quarantine = _decode_rows(file, job, group.part(files, CHUNK))
    write_json(about, {"positions": positions.tolist(), "quarantine": quarantine})
    group.barrier()


def _decode_rows(file: IO[bytes], job: DecodeJob, rows: range) -> DecodedRows:
    """Write the pixels of some pictures of a job, chunk by chunk."""
    positions: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    quarantine: list[SkippedFile] = []
    with contextlib.closing(stream(job.listing, job.shape, job.threads, rows.start, rows.stop)) as chunks:
        for chunk in chunks:
            # Plain writing: a full disk is an error here, but would end the process if the file were mapped.
            file.write(chunk.pixels.tobytes())
            positions.append(chunk.positions)
            quarantine += chunk.quarantined
            if job.progress is not None:
                job.progress(chunk.stop - rows.start, len(rows))
    return np.concatenate(positions), quarantine


def _files(into: Path, rank: int) -> tuple[Path, Path]:
    """The pixels of one process, and the description of its share."""
    return into.with_name(f"{into.name}.{rank}"), into.with_name(f"{into.name}.{rank}.json")
