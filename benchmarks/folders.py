"""Do pictures in folders give the clusters that the same images in an array give?

Writes the embedded digits as PNG and JPEG files, each twice (the second time moved by a pixel), with a folder per class
and a set of broken files, in gray, in color and dark on light paper; fits three forms of them, predicts what was held
out, compares the clusters with the classes:

- folder: the files;
- array: what Pillow reads from these files, in the order in which the folder lists them. Nothing but the way differs;
- original: the images before they were written. JPEG has changed a third of them a little, and a run of slightly other
  images takes another course, as with another seed: this one shows how far such courses lie apart.

Also counts which of the broken files were quarantined.

    python benchmarks/folders.py --seeds 3 --jobs 2 [--forms array folder] --save benchmarks/results/folders.csv
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import rows
from PIL import Image

from converge_to_surprise.core.metrics import accuracy, normalized_mutual_information
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
    background = np.array([0.1, 0.1, 0.3]) * generator.uniform(0.5, 1, (len(images), 1, 1, 3))
    share = images[..., None] / 255
    return np.round(255 * (share * ink + (1 - share) * background)).astype(np.uint8)


def on_paper(images: Bytes) -> Bytes:
    """Dark digits on light paper, each a little different. (N, 8, 8)"""
    generator = np.random.default_rng(0)
    ink = generator.uniform(0.05, 0.3, (len(images), 1, 1))
    background = generator.uniform(0.7, 0.95, (len(images), 1, 1))
    share = images / 255
    return np.round(255 * (share * ink + (1 - share) * background)).astype(np.uint8)


KINDS: dict[str, Callable[[Bytes], Bytes]] = {"gray": lambda images: images, "color": colored, "paper": on_paper}


def write_folder(images: Bytes, labels: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], folder: Path) -> None:
    for position in positions:
        path = folder / f"digit {labels[position]}" / f"{position:05d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(images[position])
        if position % 3 == 0:
            picture.save(path.with_suffix(".jpg"), quality=98, subsampling=0)
        else:
            picture.save(path.with_suffix(".png"))


def read_folder(folder: Path, labels: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]) -> Bytes:
    """What Pillow reads from the files of these images."""
    stems = [folder / f"digit {labels[position]}" / f"{position:05d}" for position in positions]
    paths = [
        stem.with_suffix(".jpg" if position % 3 == 0 else ".png")
        for stem, position in zip(stems, positions, strict=True)
    ]
    return np.stack([np.asarray(Image.open(path)) for path in paths])


def write_broken(folder: Path) -> set[str]:
    """Files that no one can read, one of each kind; returns their names."""
    place = folder / "digit 0"
    good = next(place.glob("*.png")).read_bytes()
    (place / "truncated.png").write_bytes(good[: len(good) // 2])
    (place / "empty.png").touch()
    (place / "text.jpg").write_text("not a picture")
    (place / "link.png").symlink_to(place / "nowhere.png")
    (place / "loop.png").symlink_to(place / "loop.png")
    (place / "bomb.png").write_bytes(_bomb())
    os.mkfifo(place / "pipe.png")
    (place / "odd \n'name\".png").write_bytes(b"\x89PNG")
    (place / "around").symlink_to(folder)
    names = (
        "truncated.png",
        "empty.png",
        "text.jpg",
        "link.png",
        "loop.png",
        "bomb.png",
        "pipe.png",
        "odd \n'name\".png",
    )
    return {f"digit 0/{name}" for name in names}


def _bomb() -> bytes:
    """A PNG whose header claims 100,000 x 100,000 pixels."""
    import struct
    import zlib

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", zlib.compress(b"\0" * 1000)) + part(b"IEND", b"")
    )


def cts(*words: object) -> None:
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, "-m", "converge_to_surprise", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def judged(path: Path, classes: dict[str, int]) -> dict[str, float]:
    with path.open(encoding="utf-8", newline="") as file:
        labeled = list(csv.DictReader(file))
    found = np.array([int(row["cluster"]) for row in labeled])
    true = np.array([classes[row.get("path") or row["image"]] for row in labeled])
    return {
        "images": len(labeled),
        "acc": accuracy(found, true),
        "nmi": normalized_mutual_information(found, true),
        "n_clusters": len(np.unique(found)),
    }


class Fit(NamedTuple):
    """One of the runs that are compared."""

    kind: str
    form: str
    seed: int
    root: Path
    known: tuple[dict[str, int], dict[str, int]]
    """Classes of the images that are learned from, and of those held out."""
    broken: set[str]


def fit(wanted: Fit, threads: int) -> dict[str, Any]:
    """Fit, predict what was held out, and judge both; of a folder also what was quarantined."""
    kind, form, seed, root, known, broken = wanted
    folder = form == "folder"
    train, test = (root / kind / "train", root / kind / "test") if folder else (root / f"{kind}-{form}.npz",) * 2
    run = root / f"{kind}-{form}-{seed}"
    began = time.monotonic()
    cts("fit", train, "--out", run, "--seed", seed, "--threads", threads, "--n-init", 1, "--no-report")
    seconds = time.monotonic() - began
    cts("predict", run, test, "--out", run / "new.csv", *(() if folder else ("--split", "test")))
    row: dict[str, Any] = {"kind": kind, "form": form, "seed": seed, "seconds": round(seconds)}
    row |= {f"train_{key}": value for key, value in judged(run / "labels.csv", known[0]).items()}
    row |= {f"held_out_{key}": value for key, value in judged(run / "new.csv", known[1]).items()}
    if folder:
        with (run / "quarantine.csv").open(encoding="utf-8", newline="") as file:
            aside = {entry["file"] for entry in csv.DictReader(file)}
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


def prepare(kind: str, root: Path, parts: Split) -> Callable[[str, int], Fit]:
    """Write the digits of a kind in all forms; the result makes the fit of a form and a seed."""
    images, labels = digits()
    pixels = KINDS[kind](images)
    decoded = {}
    for name, positions in parts._asdict().items():
        write_folder(pixels, labels, positions, root / kind / name)
        decoded[name] = read_folder(root / kind / name, labels, positions)
    np.savez(root / f"{kind}-array.npz", x_train=decoded["train"], x_test=decoded["test"])
    np.savez(root / f"{kind}-original.npz", x_train=pixels[parts.train], x_test=pixels[parts.test])
    broken = write_broken(root / kind / "train")
    of_files = {
        path.relative_to(root / kind / name).as_posix(): int(path.parent.name.split()[1])
        for name in parts._fields
        for path in (root / kind / name).glob("*/0*")
    }
    of_arrays = enumerate_classes(labels[parts.train]), enumerate_classes(labels[parts.test])

    def wanted(form: str, seed: int) -> Fit:
        return Fit(kind, form, seed, root, (of_files, of_files) if form == "folder" else of_arrays, broken)

    return wanted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=FORMS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--save", type=Path, help="a CSV file for the figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        os.environ["CTS_CACHE"] = str(root / "cache")
        parts = split(digits()[1])
        prepared = [prepare(kind, root, parts) for kind in arguments.kinds]
        seeds = range(arguments.seeds)
        todo = [wanted(form, seed) for wanted in prepared for seed in seeds for form in arguments.forms]
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for row in pool.map(partial(fit, threads=arguments.threads), todo):
                print(row, flush=True)
                if arguments.save:
                    rows.append_rows(arguments.save, [row])


def enumerate_classes(classes: npt.NDArray[np.int64]) -> dict[str, int]:
    return {str(index): int(value) for index, value in enumerate(classes)}


if __name__ == "__main__":
    main()
