"""How do time and memory of a run grow with the number of images?

    python benchmarks/bigdata.py [--sizes 10000 100000 1000000] [--side 28] [--channels 1] [--threads 1]
    python benchmarks/bigdata.py --side 48 --channels 3 [--files]

For each size an .npy file of turned, shifted and noisy digits is written block by block, or with ``--files`` a folder
of PNG files; a process of its own then goes through every stage of a run on it, with the settings of the fast preset:
opening (of files: decoding), fingerprint, neighbors by edges, clusterings of their graph, steps in the middle of an
epoch, a checkpoint, merging, neighbors by features, steps of refining, labeling, the table of labels. Only the number
of steps is limited, and the graph is clustered once; a run does so three times or more.

``cpu_seconds`` are disturbed least by other programs on the machine; a step's is the median. Memory is the process's
own (RssAnon), not the pages of the file that the system keeps as long as nothing else needs them.

Neighbors are searched among all images: exactly up to 20,000, nearly so above. A row for each stage is appended to
benchmarks/results/bigdata.csv; the table that is printed fits exponents, the slopes of log(value) over log(images): 0
is independent of the number of images, 1 is linear, and what any number of images costs makes it less. Its last column
tells the two apart.

    python benchmarks/bigdata.py --cold

appends what the first 100 batches of an epoch cost with none of a file of a million images (1 GB) in memory,
in this program's order and in one permutation of all images.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import readme_table
import rows
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.datasets import load_digits

from converge_to_surprise.config import Augmentation, Config, Stage, presets
from converge_to_surprise.core.augment import augment
from converge_to_surprise.data import datasets
from converge_to_surprise.data.store import check_clusterable, fingerprint
from converge_to_surprise.model.assessment import evaluate
from converge_to_surprise.runs import checkpoint
from converge_to_surprise.runs.labels import KEEP, SavedOutputs, write_labels
from converge_to_surprise.search import sampler, schedule
from converge_to_surprise.search.restarts import Restarts
from converge_to_surprise.search.sampler import announce
from converge_to_surprise.search.trainer import Trainer

SIZES = [10_000, 100_000, 1_000_000]
WRITTEN = 2**21
"""Pixels of the images that are made and written together."""
WARM = 5
"""Steps before those that are timed."""
Bytes = npt.NDArray[np.uint8]


def write_store(path: Path, count: int, side: int, channels: int) -> None:
    """A uint8 array (count, side, side[, 3]) of digits, each turned, cropped, lit and disturbed in its own way."""
    generator = torch.Generator().manual_seed(0)
    small = torch.from_numpy(load_digits().images / 16).float()[:, None]
    digits = F.interpolate(small, (side, side), mode="bilinear", align_corners=False)
    changes = Augmentation(rotation=15, crop=1, brightness=0.3, contrast=0.3, sampling="bilinear", fill="image")

    def block(count: int) -> Bytes:
        chosen = torch.randint(len(digits), (count,), generator=generator)
        pictures = augment(digits[chosen], changes, generator, signed=False)
        if channels == 3:
            pictures = pictures * (0.5 + 0.5 * torch.rand(count, 3, 1, 1, generator=generator))
        pictures = pictures + 0.05 * torch.randn(pictures.shape, generator=generator)
        pixels = (pictures.clamp(0, 1) * 255).to(torch.uint8)
        return (pixels[:, 0] if channels == 1 else pixels.permute(0, 2, 3, 1)).numpy()

    _write(path, (count, side, side, *([3] if channels == 3 else [])), block)


def _write(path: Path, shape: tuple[int, ...], block: Callable[[int], Bytes]) -> None:
    """An .npy file of images, made block by block and written to the disk."""
    file = np.lib.format.open_memmap(path, "w+", np.uint8, shape)
    together = WRITTEN // math.prod(shape[1:])
    for start in range(0, len(file), together):
        file[start : start + together] = block(min(together, len(file) - start))
    file.flush()


def as_files(path: Path) -> Path:
    """A folder of PNG files with the images of an .npy file, 1,000 in each of its folders."""
    folder = path.parent / "files"
    for number, picture in enumerate(np.load(path, mmap_mode="r")):
        place = folder / f"{number // 1000:04}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(place / f"{number % 1000:03}.png", compress_level=1)
    return folder


class Meter(rows.MemoryWatch):
    """Seconds and peak memory of the parts of a run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.wall: dict[str, float] = {}
        super().__init__()

    @contextmanager
    def measured(self, part: str) -> Iterator[None]:
        self.part = part
        began = time.process_time(), time.perf_counter()
        yield
        self.seconds[part] = time.process_time() - began[0]
        self.wall[part] = time.perf_counter() - began[1]
        self.part = "between"


def a_config(images: int, shape: tuple[int, int, int], threads: int) -> Config:
    """The fast preset with an epoch of each search, of which only some steps are taken."""
    stages = (
        Stage("graph", "graph", 1),
        Stage("search", "relaxed", 1),
        Stage("merge", "merge", 1),
        Stage("refine", "refine", 1),
    )
    config = presets.resolve("fast", None, "auto", images, shape)
    return replace(config, threads=threads, n_init=1, schedule=stages)


def some_steps(trainer: Trainer, first: int, count: int, meter: Meter, name: str) -> float:
    """Median seconds of ``count`` steps from step number ``first`` on, with the snapshot that is taken after each."""
    trainer.step = first
    records = trainer.run()
    times = []
    with meter.measured(name):
        for _ in range(count):
            began = time.process_time()
            next(records)
            trainer.snapshot()
            times.append(time.process_time() - began)
    records.close()
    return statistics.median(times[min(WARM, count - 1) :])


def measure(path: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of one size, measured in this process."""
    torch.set_num_threads(options.threads)
    meter = Meter()
    with meter.measured("opening"):
        store = datasets.load(str(path)).train
        check_clusterable(store, str(path))
    with meter.measured("fingerprint"):
        fingerprint(store.images)
    config = a_config(len(store), store.shape, options.threads)
    with meter.measured("initialization"):
        search = Restarts(store.images, config)
        search.keep = KEEP
        trainer = search.trainer
    batches = schedule.batches_per_epoch(len(store), config.relaxed.batch_size)
    steps_taken = min(options.steps, batches - WARM)
    middle = (batches - WARM - steps_taken) // 2
    with meter.measured("neighbors by edges"):
        near = trainer.nearest_neighbors(count=max(config.relaxed.graph_neighbors, config.relaxed.neighbors))
    trainer.nearest_neighbors = lambda *_, **__: near  # type: ignore[method-assign]
    some_steps(trainer, 0, 1, meter, "clusterings of the graph")  # which come before the first step
    del trainer.nearest_neighbors
    steps = {"search": some_steps(trainer, batches + middle, WARM + steps_taken, meter, "search")}
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        with meter.measured("checkpoint"):
            saved = checkpoint.save(Path(folder) / "checkpoints", search.snapshot())
            checkpoint_bytes = saved.with_suffix(".safetensors").stat().st_size
        some_steps(trainer, 2 * batches, 1, meter, "merge")
        some_steps(trainer, 2 * batches + 1, 1, meter, "neighbors by features")
        steps["refine"] = some_steps(trainer, 2 * batches + 1 + middle, WARM + steps_taken, meter, "refine")
        with meter.measured("labeling"):
            fitted = search.finish()
        with meter.measured("finishing"):
            evaluate(fitted.model, fitted.outputs, None, both=True)
            write_labels(Path(folder) / "labels.csv", fitted, None)
            SavedOutputs.of(fitted).save(Path(folder) / "outputs.safetensors")
    table = pd.DataFrame({"cpu_seconds": meter.seconds, "wall_seconds": meter.wall, "step_cpu_seconds": steps})
    table["megabytes"] = pd.Series(meter.megabytes)
    table.loc["checkpoint", "checkpoint_bytes"] = checkpoint_bytes
    whole = table[["cpu_seconds", "wall_seconds"]].sum().to_dict() | {"megabytes": max(meter.megabytes.values())}
    about = {"images": len(store), "side": options.side, "channels": options.channels, "threads": options.threads}
    about |= {"source": "files" if options.files else "npy"}
    stages = [
        {**about, "stage": name, **row.dropna().to_dict()} for name, row in table.loc[list(meter.seconds)].iterrows()
    ]
    return [*stages, {**about, "stage": "whole run", **whole, "n_clusters": fitted.model.n_clusters}]


def cold(folder: Path) -> list[dict[str, Any]]:
    """Read batches of 250 of a million images of 32x32 from a disk, in two orders."""
    images, path = 1_000_000, folder / "cold.npy"
    noise = np.random.default_rng(0).integers(0, 256, (WRITTEN // 32**2, 32, 32), dtype=np.uint8)
    _write(path, (images, 32, 32), lambda count: noise[:count])
    whole = torch.randperm(images, generator=torch.Generator().manual_seed(0))
    found = []
    for name in ("own order", "one permutation"):
        gc.collect()  # pages that are still mapped cannot be given up
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        pixels = datasets.load(str(path)).train.images
        before, began = _read_bytes(), time.perf_counter()
        for start in range(0, 25_000, 250):
            if name == "own order":
                announce(pixels, sampler.upcoming_blocks(images, start, start + 250, 0, 0))
                pixels[sampler.epoch_indices(images, start, start + 250, 0, 0)].sum()
            else:
                pixels[whole[start : start + 250]].sum()
        seconds = time.perf_counter() - began
        read = (_read_bytes() - before) / 1e6
        stage = f"cold batches, {name}"
        found.append({"images": images, "stage": stage, "wall_seconds": seconds, "megabytes_read": read})
        del pixels
    return found


def _read_bytes() -> int:
    words = Path("/proc/self/io").read_text().split()
    return int(words[words.index("read_bytes:") + 1])


def each_size(script: str, options: argparse.Namespace, channels: int, files: bool = False) -> Iterator[Any]:
    """What a script measures (``--measure FILE``) on images of each size, in a process of its own."""
    for size in options.sizes:
        with tempfile.TemporaryDirectory(dir=options.work) as folder:
            path = Path(folder) / "images.npy"
            write_store(path, size, options.side, channels)
            if files:
                path = as_files(path)
            words = [sys.executable, script, *sys.argv[1:], "--measure", str(path)]
            ended = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
        yield json.loads(ended.stdout.splitlines()[-1])


def main() -> None:
    parser = rows.parser(__doc__, "bigdata.csv", sizes=SIZES, side=28, channels=1, steps=50, threads=1)
    parser.add_argument("--files", action="store_true", help="a folder of PNG files in place of an .npy file")
    parser.add_argument("--work", type=Path, help="folder for the images: they take side² bytes and channel each")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cold", action="store_true", help="only what batches cost that are not in memory")
    options = parser.parse_args()
    if options.cold:
        with tempfile.TemporaryDirectory(dir=options.work) as folder:
            found = cold(Path(folder))
        rows.append_rows(options.save, found)
        print(found)
        return
    if options.measure is not None:
        print(json.dumps(measure(options.measure, options)))
        return
    for found in each_size(__file__, options, options.channels, options.files):
        rows.append_rows(options.save, found)
    print(readme_table.bigdata(options.save.parent))


if __name__ == "__main__":
    main()
