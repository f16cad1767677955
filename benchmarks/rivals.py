"""Other methods that find the number of clusters: UMAP + HDBSCAN and EVoC, on pixels of the training images.

    pip install '.[benchmarks]'
    python benchmarks/rivals.py [--data mnist usps ...] [--methods evoc umap+hdbscan] [--seeds 0 1] [--rivals-python P]

The settings of both are in benchmarks/rival_process.py. With a random_state UMAP uses one thread; so on several threads
it runs once, without one.

Images are float32 vectors from 0 to 1. Images that a method calls noise count as one more cluster in ACC, NMI and ARI,
since every image has to be somewhere; ``n_clusters`` does not count it. Each run is a process of its own that first
clusters 5,000 random vectors, so that compiling is not timed. ``cpu_seconds`` are those of that process, ``load``
is the load average of the machine (one minute) at the start: on a busy machine ``seconds`` are an upper bound.

Each run appends a row to benchmarks/results/rivals.csv; runs that have one are not repeated. Then the table is printed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import readme_table
import rows
from rival_process import RIVALS, Request, RivalProcess, Vectors

if TYPE_CHECKING:
    import torch

Labels = npt.NDArray[np.int64]
DATA = ("digits", "usps", "mnist", "fashion-mnist")


class Job(NamedTuple):
    """One run. ``seed`` is None for a method that is run without one."""

    method: str
    data: str
    seed: int | None
    threads: int


def plan(options: argparse.Namespace) -> list[Job]:
    """All runs: those of one thread first, and of these the first seed of every method and data set."""
    every = itertools.product(sorted(options.threads), options.seeds, options.data, options.methods)
    jobs = [Job(m, data, None if m == "umap+hdbscan" and n > 1 else seed, n) for n, seed, data, m in every]
    return list(dict.fromkeys(jobs))


def as_vectors(images: torch.Tensor) -> Vectors:
    """Bytes (N, C, H, W) as float32 vectors from 0 to 1. (N, D)"""
    return np.asarray(images, dtype=np.float32).reshape(len(images), -1) / np.float32(255)


def scores(labels: Labels, classes: Labels) -> dict[str, Any]:
    """How the clusters match the classes, noise being one more cluster."""
    from converge_to_surprise.core import metrics

    dense = np.unique(labels, return_inverse=True)[1]
    return {
        "n_clusters": len(np.unique(labels[labels >= 0])),
        "noise": float((labels < 0).mean()),
        **metrics.scores(dense, classes),
    }


def measure(job: Job, data_dir: Path | None, python: str | None = None) -> dict[str, Any]:
    """The row of one run, which is made by a fresh process of an interpreter."""
    from converge_to_surprise.data import datasets

    train = datasets.load(job.data, data_dir).train
    assert train.labels is not None
    rival, load, pixels = RIVALS[job.method], os.getloadavg()[0], as_vectors(train.images)
    with RivalProcess(job.threads, python) as process:
        found = process.fit(Request(job.method, job.seed), pixels)
    one_thread = job.method == "umap+hdbscan" and job.seed is not None
    settings = rival.settings(len(pixels)) + ("; UMAP on one thread, because of its random_state" if one_thread else "")
    return {
        "method": job.method,
        "version": found.versions,
        "settings": settings,
        "data": job.data,
        "images": len(pixels),
        "seed": job.seed,
        "threads": job.threads,
        **scores(found.labels, train.labels),
        "seconds": found.seconds,
        "cpu_seconds": found.cpu_seconds,
        "load": round(load, 2),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }


def main() -> None:
    parser = rows.parser(__doc__, "rivals.csv", seeds=[0, 1, 2, 3, 4], threads=[1, 2])
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--methods", nargs="+", choices=RIVALS, default=list(RIVALS))
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--rivals-python", help="interpreter that has evoc, umap-learn and hdbscan")
    options = parser.parse_args()
    finished = {(row["method"], row["data"], row["seed"], row["threads"]) for row in rows.read_rows(options.save)}
    for job in plan(options):
        if (job.method, job.data, "" if job.seed is None else str(job.seed), str(job.threads)) not in finished:
            print(job, flush=True)
            rows.append_rows(options.save, [measure(job, options.data_dir, options.rivals_python)])
    print(readme_table.rivals(options.save.parent))


if __name__ == "__main__":
    main()
