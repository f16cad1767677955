"""How fast are folders of pictures read, as a share of a bare Pillow loop over the same files?

    python benchmarks/decoding.py [--pictures 400] [--side 640] [--threads 2] [--rounds 3] [--save FILE]

Writes photograph-like pictures as JPEG, PNG and HEIC files and reads each folder in two ways that take turns:

- ours: what ``cts fit FOLDER`` does after listing: checks, decoding, fitting to 48x48, in order, by ``--threads``
  threads;
- bare: ``Image.open``, ``draft``, ``convert``, ``resize`` in as many threads, without order, checks or skipped files.

With ``--first-line`` also the seconds from the start of ``cts fit FOLDER`` to its first line in a terminal, median of
the rounds.
Each figure is a median, because other programs disturb single rounds.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import rows
from PIL import Image

from converge_to_surprise.data.formats import HEIC, decodable
from converge_to_surprise.data.listing import Listing, list_folder
from converge_to_surprise.data.pictures import stream

SIDE = 48
"""Longer side to which pictures are fitted, the default of ``cts fit``."""
KINDS = {"JPEG": "jpg", "PNG": "png", "HEIC": "heic"}


def write_pictures(folder: Path, kind: str, count: int, side: int) -> None:
    """Smooth color fields with some noise, which compress about as photographs do."""
    generator = np.random.default_rng(0)
    folder.mkdir()
    for number in range(count):
        coarse = generator.integers(0, 256, (12, 9, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((side * 3 // 4, side), Image.Resampling.BICUBIC)
        noisy = np.asarray(smooth) + generator.normal(0, 6, (side, side * 3 // 4, 1))
        picture = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
        picture.save(folder / f"{number:05d}.{KINDS[kind]}", format="HEIF" if kind == "HEIC" else kind, quality=85)


def bare(path: str) -> int:
    """A picture as Pillow reads it, at the size of the clustering."""
    with Image.open(path) as image:
        image.draft(None, (2 * SIDE, 2 * SIDE))
        return int(np.asarray(image.convert("RGB").resize((SIDE * 3 // 4, SIDE), Image.Resampling.BOX)).shape[0])


def read_bare(listing: Listing, threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        assert sum(pool.map(bare, listing.paths, chunksize=16)) == SIDE * len(listing)


def read_ours(listing: Listing, threads: int) -> None:
    assert sum(len(chunk.positions) for chunk in stream(listing, (3, SIDE, SIDE), threads)) == len(listing)


def first_line(folder: Path) -> float:
    """Seconds from the start of ``cts fit`` until a terminal shows something."""
    with tempfile.TemporaryDirectory() as name:
        words = [sys.executable, "-m", "converge_to_surprise", "fit", str(folder), "--out", f"{name}/run"]
        environment = os.environ | {"CTS_CACHE": f"{name}/cache", "TERM": "xterm"}
        ours, theirs = os.openpty()
        began = time.perf_counter()
        started = subprocess.Popen(words, stdout=theirs, stderr=theirs, stdin=theirs, env=environment)
        seen = b""
        while b"reading" not in seen:
            seen += os.read(ours, 1000)
        seconds = time.perf_counter() - began
        started.kill()
        started.wait()
        os.close(ours)
        os.close(theirs)
    return seconds


def main() -> None:
    parser = rows.parser(__doc__, pictures=400, side=640, threads=2, rounds=3)
    parser.add_argument("--first-line", action="store_true", help="also the time to the first line of `cts fit`")
    options = parser.parse_args()
    figures: dict[str, tuple[float, str]] = {}
    with tempfile.TemporaryDirectory() as name:
        for kind in KINDS:
            if kind == "HEIC" and not decodable(HEIC):
                print("HEIC is left out: its decoder is not installed (extra photos)", file=sys.stderr)
                continue
            folder = Path(name) / kind
            write_pictures(folder, kind, options.pictures, options.side)
            listing = list_folder(folder)
            ways: dict[str, Callable[[], object]] = {
                "ours": partial(read_ours, listing, options.threads),
                "bare Pillow": partial(read_bare, listing, options.threads),
            }
            found = rows.taking_turns(ways, options.rounds)
            speed = {way: len(listing) / statistics.median(seconds) for way, seconds in found.items()}
            figures |= {f"{kind}: {way}": (value, "pictures/s") for way, value in speed.items()}
            ratios = [there / here for here, there in zip(found["ours"], found["bare Pillow"], strict=True)]
            figures[f"{kind}: ratio"] = statistics.median(ratios), "ratio"
            if options.first_line and kind == "JPEG":
                seconds = statistics.median(first_line(folder) for _ in range(options.rounds))
                figures["first line of cts fit FOLDER"] = seconds, "s"
            shutil.rmtree(folder)
    rows.show_speed(figures, options.threads, options.save)


if __name__ == "__main__":
    main()
