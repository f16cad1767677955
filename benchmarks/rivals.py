"""Other methods that find the number of clusters: UMAP + HDBSCAN and EVoC, on pixels of the training images.

    pip install '.[benchmarks]'
    python benchmarks/rivals.py [--data mnist usps ...] [--methods evoc umap+hdbscan] [--seeds 0 1 2 3 4]

- umap+hdbscan: the settings of UMAP's documentation ("Using UMAP for Clustering"): n_neighbors=30, min_dist=0.0,
  n_components=2, then HDBSCAN with min_samples=10 and min_cluster_size=500 for the 70,000 images there, that is one
  140th of the images here, and at least 10. With a random_state UMAP uses one thread; so on several threads it runs
  once, without one.
- evoc: its defaults, but for random_state.

Images are float32 vectors from 0 to 1. Images that a method calls noise count as one more cluster in ACC, NMI and ARI,
since every image has to be somewhere; ``n_clusters`` does not count it. Each run is a process of its own that first
clusters up to 5,000 of the images, so that compiling is not timed. ``cpu_seconds`` are those of that process, ``load``
is the load average of the machine (one minute) at the start: on a busy machine ``seconds`` are an upper bound.

Each run appends a row to benchmarks/results/rivals.csv; runs that have one are not repeated. Then the table is printed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import readme_table
import rows

Pixels = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
DATA = ("digits", "usps", "mnist", "fashion-mnist")
WARM_UP = 5_000
"""Images that are clustered before the timed run: more than 4,096, from where on UMAP approximates neighbors."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Job(NamedTuple):
    """One run. ``seed`` is None for a method that is run without one."""

    method: str
    data: str
    seed: int | None
    threads: int


class Rival(NamedTuple):
    """A method: labels from (pixels, seed, threads), its settings for a number of images, its packages."""

    fit: Callable[[Pixels, int | None, int], Labels]
    settings: Callable[[int], str]
    packages: tuple[str, ...]


def min_cluster_size(images: int) -> int:
    """500 of 70,000 images as in UMAP's documentation, in proportion."""
    return max(10, images // 140)


def umap_hdbscan(pixels: Pixels, seed: int | None, threads: int, metric: str = "euclidean") -> Labels:
    import hdbscan
    import umap

    reducer = umap.UMAP(n_neighbors=30, min_dist=0.0, n_components=2, random_state=seed, metric=metric)
    embedding = reducer.fit_transform(pixels)
    size = min_cluster_size(len(pixels))
    clusterer = hdbscan.HDBSCAN(min_samples=10, min_cluster_size=size, core_dist_n_jobs=threads)
    return np.asarray(clusterer.fit_predict(embedding), dtype=np.int64)


def evoc_default(pixels: Pixels, seed: int | None, threads: int) -> Labels:
    import evoc

    return np.asarray(evoc.EVoC(random_state=seed).fit_predict(pixels), dtype=np.int64)


RIVALS = {
    "evoc": Rival(evoc_default, lambda images: "defaults", ("evoc", "numba")),
    "umap+hdbscan": Rival(
        umap_hdbscan,
        lambda images: (
            f"n_neighbors=30, min_dist=0.0, n_components=2; min_samples=10, min_cluster_size={min_cluster_size(images)}"
        ),
        ("umap-learn", "hdbscan", "numba"),
    ),
}


def plan(options: argparse.Namespace) -> list[Job]:
    """All runs: those of one thread first, and of these the first seed of every method and data set."""
    every = itertools.product(sorted(options.threads), options.seeds, options.data, options.methods)
    jobs = [Job(m, data, None if m == "umap+hdbscan" and n > 1 else seed, n) for n, seed, data, m in every]
    return list(dict.fromkeys(jobs))


def cluster(job: Job, pixels_file: Path, labels_file: Path) -> None:
    """Run a method in this process; write its labels, print its seconds."""
    pixels = np.load(pixels_file)
    fit = RIVALS[job.method].fit
    fit(pixels[:WARM_UP], job.seed, job.threads)
    began = time.perf_counter(), time.process_time()
    labels = fit(pixels, job.seed, job.threads)
    spent = time.perf_counter() - began[0], time.process_time() - began[1]
    np.save(labels_file, labels)
    print(json.dumps({"seconds": round(spent[0], 2), "cpu_seconds": round(spent[1], 2)}))


def scores(labels: Labels, classes: Labels) -> dict[str, Any]:
    """How the clusters match the classes, noise being one more cluster."""
    from converge_to_surprise.core import metrics

    dense = np.unique(labels, return_inverse=True)[1]
    return {
        "n_clusters": len(np.unique(labels[labels >= 0])),
        "noise": float((labels < 0).mean()),
        **metrics.scores(dense, classes),
    }


def measure(job: Job, data_dir: Path | None) -> dict[str, Any]:
    """The row of one run, which is made by a fresh process: thread variables count only before numba is imported."""
    from converge_to_surprise.data import datasets

    train = datasets.load(job.data, data_dir).train
    assert train.labels is not None
    pixels = np.asarray(train.images, dtype=np.float32).reshape(len(train.images), -1) / 255
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(job.threads))
    rival, load = RIVALS[job.method], os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "pixels.npy", Path(folder) / "labels.npy"]
        np.save(files[0], pixels)
        words = [sys.executable, __file__, "--cluster", json.dumps(job), *map(str, files)]
        ended = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        labels = np.load(files[1])
    one_thread = job.method == "umap+hdbscan" and job.seed is not None
    settings = rival.settings(len(pixels)) + ("; UMAP on one thread, because of its random_state" if one_thread else "")
    return {
        "method": job.method,
        "version": rows.versions(rival.packages),
        "settings": settings,
        "data": job.data,
        "images": len(pixels),
        "seed": job.seed,
        "threads": job.threads,
        **scores(labels, train.labels),
        **json.loads(ended.stdout.splitlines()[-1]),
        "load": round(load, 2),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }


def main() -> None:
    parser = rows.parser(__doc__, "rivals.csv")
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--methods", nargs="+", choices=RIVALS, default=list(RIVALS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--cluster", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cluster:
        job, *files = options.cluster
        cluster(Job(*json.loads(job)), *map(Path, files))
        return
    finished = {(row["method"], row["data"], row["seed"], row["threads"]) for row in rows.read_rows(options.save)}
    for job in plan(options):
        if (job.method, job.data, "" if job.seed is None else str(job.seed), str(job.threads)) not in finished:
            print(job, flush=True)
            rows.append_rows(options.save, [measure(job, options.data_dir)])
    print(readme_table.rivals(options.save.parent))


if __name__ == "__main__":
    main()
