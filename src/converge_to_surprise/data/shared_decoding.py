"""Decode pictures with several processes: each writes its share to a file of its own, and the first one joins them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import IO

import numpy as np

from ..config.storage import read_json, write_json
from ..distributed import launch
from ..distributed.group import current
from .cache import DecodedRows, DecodeJob, Decoder, decode_rows
from .pictures import CHUNK
from .skipped import SkippedFile


def shared_decoder() -> Decoder | None:
    """A decoder in which all joined processes take part; None if there is only one. They must see the same files."""
    group = launch.joined_group()
    if group.is_single:
        return None

    def decode(file: IO[bytes], job: DecodeJob) -> DecodedRows:
        files = len(job.listing)
        details = {"source": os.path.abspath(job.listing.source), "files": files, "into": file.name}
        launch.send_command(group, "decode", details | {"shape": list(job.shape), "threads": job.threads})
        positions, quarantine = decode_rows(file, job, group.part(files, CHUNK))
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

    return decode


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
        positions, quarantine = decode_rows(file, job, group.part(files, CHUNK))
    write_json(about, {"positions": positions.tolist(), "quarantine": quarantine})
    group.barrier()


def _files(into: Path, rank: int) -> tuple[Path, Path]:
    """The pixels of one process, and the description of its share."""
    return into.with_name(f"{into.name}.{rank}"), into.with_name(f"{into.name}.{rank}.json")
