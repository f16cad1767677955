"""Is the number of clusters found? Ours beside EVoC and UMAP + HDBSCAN on the sets of the zoo (benchmarks/zoo_sets.py).

    pip install '.[benchmarks,experiments,photos]'
    python benchmarks/zoo.py [NAME ...] --sets FOLDER [--half design] [--methods ours evoc umap+hdbscan] [--jobs 2]
        [--inputs pixels backbone] [--backbone FILE] [--backbone-size 128] [--seeds 0 1 2] [--rivals-python PYTHON]

``--sets`` has the files of the sets; those that are missing are made. Every method gets the same input: the pixels of
the images at our working size, from 0 to 1, and for photographs also the features of the pictures by one backbone as
in benchmarks/photos.py. Settings of the rivals are those of
benchmarks/rival_process.py; what they call noise counts as one more cluster in ACC, NMI and ARI. Sets of 20,000 images
or more are run with the first seed only. ``--fit-options`` are added to `cts fit`. Classes are for evaluation only.

Each run appends a row to benchmarks/results/zoo.csv; runs that have one are not repeated, so the same command continues
what was interrupted. ``seconds`` of ours are those of the whole command, those of the rivals of clustering alone, after
compilation; on a busy machine they are upper bounds. Then the figure docs/assets/zoo.svg is drawn and the summary is
printed; `python benchmarks/readme_table.py` writes the tables into the pages.
"""

from __future__ import annotations

import argparse
import itertools
import queue
import shlex
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import photos
import rival_process
import rivals
import rows
import zoo_figure
import zoo_sets
import zoo_summary

LARGE = 20_000
"""Sets with this many images or more are run with one seed."""


class Job(NamedTuple):
    """One run: what a row is found by."""

    name: str
    input: str
    method: str
    seed: int


def image_count(source: Path) -> int:
    """The number of images of a set."""
    if source.is_dir():
        return sum(1 for file in source.glob("*/*"))
    with np.load(source) as arrays:
        return len(arrays["labels"])


def plan(options: argparse.Namespace) -> list[Job]:
    """All runs that have no row: first seeds first, small sets before large ones, photographs only on a backbone."""
    names = options.names or [name for name, about in zoo_sets.SETS.items() if options.half in (None, about.half)]
    sources = {name: zoo_sets.set_file(options.sets, name) for name in names}
    sizes = {name: image_count(source) for name, source in sources.items()}
    names.sort(key=lambda name: sizes[name] >= LARGE)
    finished = {(row["set"], row["input"], row["method"], int(row["seed"])) for row in rows.read_rows(options.save)}
    every = itertools.product(options.seeds, options.methods, options.inputs, names)
    jobs = [Job(name, kind, method, seed) for seed, method, kind, name in every]
    return [
        job
        for job in jobs
        if job not in finished
        and (job.input == "pixels" or sources[job.name].is_dir())
        and (job.seed == options.seeds[0] or sizes[job.name] < LARGE)
    ]


def run_folder(job: Job, options: argparse.Namespace) -> Path:
    return Path(options.runs) / f"{job.name}-{job.input}-{job.seed}"


def ours(job: Job, options: argparse.Namespace) -> dict[str, Any]:
    """One whole `cts fit`."""
    source = zoo_sets.set_file(options.sets, job.name)
    words = ["--seed", job.seed, "--threads", options.threads, *shlex.split(options.fit_options)]
    if source.is_dir():
        words += ["--labels", "from-folders"]
    if job.input == "backbone":
        words += photos.backbone_words(options)
    found = photos.ours(source, run_folder(job, options), words) | {"settings": options.fit_options}
    return found if job.input == "backbone" else {name: value for name, value in found.items() if name != "bank"}


def vectors(job: Job, options: argparse.Namespace) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """What the rivals cluster, and the classes. (N, D), (N,)"""
    from converge_to_surprise.config.images import ImageOptions
    from converge_to_surprise.data import datasets

    source = zoo_sets.set_file(options.sets, job.name)
    if job.input == "backbone":
        return photos.features_and_classes(str(source), options.backbone, options.backbone_size, options.threads)
    wanted = ImageOptions(labels="from-folders" if source.is_dir() else "none")
    train = datasets.load(str(source), options=wanted).train
    assert train.labels is not None
    return rivals.as_vectors(train.images), train.labels


def rival(job: Job, process: rival_process.RivalProcess, options: argparse.Namespace) -> dict[str, Any]:
    """One run of another method."""
    some, classes = vectors(job, options)
    metric = "cosine" if job.input == "backbone" else "euclidean"
    found = process.fit(rival_process.Request(job.method, job.seed, metric), some)
    return {
        **rivals.scores(found.labels, classes),
        "seconds": found.seconds,
        "settings": rival_process.RIVALS[job.method].settings(len(some)),
        "versions": found.versions,
    }


class Workers:
    """Threads that take one job after the other; each has a process for rivals of its own."""

    def __init__(self, jobs: list[Job], options: argparse.Namespace) -> None:
        self.options = options
        self.failed: list[Job] = []
        self._left: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        """For the file of rows and the list of failures."""
        for job in jobs:
            self._left.put(job)

    def run(self) -> None:
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self.options.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        with rival_process.RivalProcess(self.options.threads, self.options.rivals_python) as process:
            while True:
                try:
                    job = self._left.get_nowait()
                except queue.Empty:
                    return
                print(*job, flush=True)
                try:
                    found = ours(job, self.options) if job.method == "ours" else rival(job, process, self.options)
                except (subprocess.CalledProcessError, OSError, RuntimeError, ValueError) as error:
                    print(f"{' '.join(map(str, job))} failed: {error}", file=sys.stderr, flush=True)
                    with self._lock:
                        self.failed.append(job)
                    continue
                with self._lock:
                    rows.append_rows(self.options.save, [described(job, self.options) | found])


def described(job: Job, options: argparse.Namespace) -> dict[str, Any]:
    """The columns of a row that are known before the run."""
    about = zoo_sets.SETS[job.name]
    return {
        "set": job.name,
        "half": about.half,
        "kind": about.kind,
        "classes": about.classes,
        "images": image_count(zoo_sets.set_file(options.sets, job.name)),
        "input": job.input,
        "backbone": Path(options.backbone).name if job.input == "backbone" else "",
        "method": job.method,
        "seed": job.seed,
        "threads": options.threads,
    }


def parsed() -> argparse.Namespace:
    parser = rows.parser(__doc__, "zoo.csv", threads=1, jobs=1)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all sets unless given")
    parser.add_argument("--half", choices=zoo_summary.HALVES, help="the sets of one part")
    parser.add_argument("--sets", type=Path, default=Path("zoo"), help="folder for the files of the sets")
    parser.add_argument("--methods", nargs="+", choices=zoo_summary.METHODS, default=list(zoo_summary.METHODS))
    parser.add_argument("--inputs", nargs="+", choices=zoo_summary.INPUTS, help="backbone only if --backbone is given")
    parser.add_argument("--backbone")
    parser.add_argument("--backbone-size", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs/zoo"), help="folder for our runs")
    parser.add_argument("--fit-options", default="", help="more options of `cts fit`, as one word")
    parser.add_argument("--rivals-python", help="interpreter that has evoc, umap-learn and hdbscan")
    zoo_sets.add_source_options(parser)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in zoo_sets.SETS]
    if unknown:
        parser.error(f"there is no set {unknown[0]!r}; `python benchmarks/zoo_sets.py --list` prints them")
    options.inputs = options.inputs or (["pixels", "backbone"] if options.backbone else ["pixels"])
    if "backbone" in options.inputs and not options.backbone:
        parser.error("--inputs backbone needs --backbone FILE")
    return options


def main() -> int:
    options = parsed()
    options.sets.mkdir(parents=True, exist_ok=True)
    for name in options.names or zoo_sets.SETS:
        if not zoo_sets.set_file(options.sets, name).exists():
            zoo_sets.write(name, options.sets, options)
    jobs, failed = plan(options), []
    # Ours first: their time is that of the whole command, with the features if it computes them.
    for part in ([job for job in jobs if job.method == "ours"], [job for job in jobs if job.method != "ours"]):
        workers = Workers(part, options)
        workers.run()
        failed += workers.failed
    found = zoo_summary.read(options.save)
    zoo_figure.draw(found, zoo_figure.FILE if options.save.parent == rows.RESULTS else options.save.with_suffix(".svg"))
    print(zoo_summary.summary(found))
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
