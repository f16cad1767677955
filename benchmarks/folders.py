"""Do pictures in folders give the clusters that the same images in an array give?

Writes the embedded digits as PNG and JPEG files, each twice (the second time moved by a pixel), with a folder per class
and a set of broken files, in gray, in color and dark on light paper; fits three forms of them, compares the clusters of
these images and of held-out ones with the classes:

- folder: the files;
- array: what Pillow reads from these files, in the order in which the folder lists them. Nothing but the way differs;
- original: the images before they were written. JPEG has changed a third of them a little, and a run of slightly other
  images takes another course, as with another seed: this one shows how far such courses lie apart.

Also counts which of the broken files were quarantined.

    python benchmarks/folders.py --seeds 3 --jobs 2 [--forms array folder] --save benchmarks/results/folders.csv
"""

from __future__ import annotations

import io
import itertools
import json
import os
import struct
import tempfile
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import rows
from PIL import Image

from converge_to_surprise.data.datasets import load

HELD_OUT = 300
FORMS = ("array", "folder", "original")
Bytes = npt.NDArray[np.uint8]


def digits() -> tuple[Bytes, npt.NDArray[np.int64]]:
    """All digits and, after them, the same moved by a pixel. (3594, 8, 8)"""
    store = load("digits").train
    images: Bytes = store.images.numpy()[:, 0]
    assert store.labels is not None
    moved = np.zeros_like(images)
    moved[:, :, 1:] = images[:, :, :-1]
    return np.concatenate([images, moved]), np.tile(store.labels, 2)


def colored(images: Bytes) -> Bytes:
    """Yellowish digits on a bluish background, each a little different. (N, 8, 8, 3)"""
    generator = np.random.default_rng(0)
    ink = np.array([1, 0.8, 0.3]) * generator.uniform(0.8, 1, (len(images), 1, 1, 3))
    return _printed(images[..., None], ink, np.array([0.1, 0.1, 0.3]) * generator.uniform(0.5, 1, ink.shape))


def on_paper(images: Bytes) -> Bytes:
    """Dark digits on light paper, each a little different. (N, 8, 8)"""
    generator = np.random.default_rng(0)
    ink = generator.uniform(0.05, 0.3, (len(images), 1, 1))
    return _printed(images, ink, generator.uniform(0.7, 0.95, ink.shape))


def _printed(images: Bytes, ink: npt.NDArray[np.float64], background: npt.NDArray[np.float64]) -> Bytes:
    share = images / 255
    return np.round(255 * (share * ink + (1 - share) * background)).astype(np.uint8)


KINDS: dict[str, Callable[[Bytes], Bytes]] = {"gray": lambda images: images, "color": colored, "paper": on_paper}


def write_folder(images: Bytes, labels: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], folder: Path) -> Bytes:
    """Write some of the images as files, a folder per class; returns what Pillow reads from them."""
    read = []
    for position in positions:
        path = folder / f"digit {labels[position]}" / f"{position:05d}.{'png' if position % 3 else 'jpg'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[position]).save(path, quality=98, subsampling=0)  # which PNG ignores
        read.append(np.asarray(Image.open(path)))
    return np.stack(read)


def write_broken(folder: Path) -> set[str]:
    """Files that no one can read, one of each kind; returns their names."""
    place = folder / "digit 0"
    good = next(place.glob("*.png")).read_bytes()
    before = {f"digit 0/{path.name}" for path in place.iterdir()}
    (place / "truncated.png").write_bytes(good[: len(good) // 2])
    (place / "empty.png").touch()
    (place / "text.jpg").write_text("not a picture")
    (place / "link.png").symlink_to(place / "nowhere.png")
    (place / "loop.png").symlink_to(place / "loop.png")
    (place / "bomb.png").write_bytes(_bomb())
    os.mkfifo(place / "pipe.png")
    (place / "odd \n'name\".png").write_bytes(b"\x89PNG")
    broken = {f"digit 0/{path.name}" for path in place.iterdir()} - before
    (place / "around").symlink_to(folder)  # is passed over
    return broken


def _bomb() -> bytes:
    """A PNG whose header claims 100,000 x 100,000 pixels."""
    content = io.BytesIO()
    Image.new("L", (1, 1)).save(content, "PNG")
    png = bytearray(content.getvalue())  # 8 bytes of signature, 4 of length, then the header with its checksum
    png[16:24] = struct.pack(">II", 100_000, 100_000)
    png[29:33] = struct.pack(">I", zlib.crc32(png[12:29]))
    return bytes(png)


class Fit(NamedTuple):
    """One of the runs that are compared."""

    kind: str
    form: str
    seed: int
    root: Path
    broken: set[str]


def fit(wanted: Fit, threads: int) -> dict[str, Any]:
    """Fit, and compare both parts with their classes; of a folder also what was quarantined."""
    kind, form, seed, root, broken = wanted
    folder = form == "folder"
    train, test = (root / kind / "train", root / kind / "test") if folder else (root / f"{kind}-{form}.npz",) * 2
    run = root / f"{kind}-{form}-{seed}"
    began = time.monotonic()
    rows.cts("fit", train, "--out", run, "--seed", seed, "--threads", threads, "--n-init", 1, "--no-report")
    row: dict[str, Any] = {"kind": kind, "form": form, "seed": seed, "seconds": round(time.monotonic() - began)}
    for part, source, split in (("train", train, "train"), ("held_out", test, "train" if folder else "test")):
        found = json.loads(rows.cts("evaluate", run, source, "--split", split, "--json"))
        row |= {f"{part}_{name}": found[f"{name}_both"] for name in ("acc", "nmi", "n_clusters")}
        row[f"{part}_images"] = found["images"]
    if folder:
        aside = set(pd.read_csv(run / "quarantine.csv")["file"])
        row["broken"], row["quarantined"] = len(broken), len(aside & broken)
        assert aside == broken, f"quarantined {sorted(aside)}, broken are {sorted(broken)}"
    return row


class Split(NamedTuple):
    """Positions of the images to learn from and of those that are held out."""

    train: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]


def split(labels: npt.NDArray[np.int64]) -> Split:
    """Both copies of a digit are on the same side; those to learn from are in the order of a folder's list."""
    order = np.random.default_rng(0).permutation(len(labels) // 2)
    held_out, learned = (np.concatenate([part, part + len(order)]) for part in (order[:HELD_OUT], order[HELD_OUT:]))
    return Split(learned[np.lexsort((learned, labels[learned]))], held_out)


def prepare(kind: str, root: Path, parts: Split) -> set[str]:
    """Write the digits of a kind in all forms; returns the names of the broken files among them."""
    images, labels = digits()
    pixels = KINDS[kind](images)
    decoded = {
        f"x_{name}": write_folder(pixels, labels, positions, root / kind / name)
        for name, positions in parts._asdict().items()
    }
    known = {f"y_{name}": labels[positions] for name, positions in parts._asdict().items()}
    original = {f"x_{name}": pixels[positions] for name, positions in parts._asdict().items()}
    np.savez(root / f"{kind}-array.npz", allow_pickle=False, **decoded, **known)
    np.savez(root / f"{kind}-original.npz", allow_pickle=False, **original, **known)
    return write_broken(root / kind / "train")


def main() -> None:
    parser = rows.parser(__doc__, seeds=3, threads=1, jobs=1)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=FORMS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        os.environ["CTS_CACHE"] = str(root / "cache")
        parts = split(digits()[1])
        broken = {kind: prepare(kind, root, parts) for kind in arguments.kinds}
        todo = [
            Fit(kind, form, seed, root, broken[kind])
            for kind, seed, form in itertools.product(arguments.kinds, range(arguments.seeds), arguments.forms)
        ]
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for row in pool.map(partial(fit, threads=arguments.threads), todo):
                print(row, flush=True)
                if arguments.save:
                    rows.append_rows(arguments.save, [row])


if __name__ == "__main__":
    main()
