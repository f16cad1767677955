"""Other methods that find clusters without being told their number, each in a process of its own.

The process may have another interpreter than this one: it needs numpy and the packages of the methods only. Thread
variables count only before numba is imported, which is why it is a process.

- umap+hdbscan: the settings of UMAP's documentation ("Using UMAP for Clustering"): n_neighbors=30, min_dist=0.0,
  n_components=2, then HDBSCAN with min_samples=10 and min_cluster_size=500 for the 70,000 images there, that is one
  140th of the images here, and at least 10.
- evoc: its defaults, but for random_state.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import rows

Vectors = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
WARM_UP = 5_000, 16
"""Random vectors that are clustered before the first timed run, so that compiling is not timed: more than 4,096, from
where on UMAP approximates neighbors."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Request(NamedTuple):
    """One run. ``seed`` is None for a method that is run without one."""

    method: str
    seed: int | None
    metric: str = "euclidean"


class Rival(NamedTuple):
    """A method: labels from (vectors, request, threads), its settings for a number of images, its packages."""

    fit: Callable[[Vectors, Request, int], Labels]
    settings: Callable[[int], str]
    packages: tuple[str, ...]


class Found(NamedTuple):
    """Labels, -1 for noise; seconds and CPU seconds; the versions of the method's packages."""

    labels: Labels
    seconds: float
    cpu_seconds: float
    versions: str


def min_cluster_size(images: int) -> int:
    """500 of 70,000 images as in UMAP's documentation, in proportion."""
    return max(10, images // 140)


def umap_hdbscan(vectors: Vectors, request: Request, threads: int) -> Labels:
    import hdbscan
    import umap

    reducer = umap.UMAP(n_neighbors=30, min_dist=0.0, n_components=2, random_state=request.seed, metric=request.metric)
    embedding = reducer.fit_transform(vectors)
    size = min_cluster_size(len(vectors))
    clusterer = hdbscan.HDBSCAN(min_samples=10, min_cluster_size=size, core_dist_n_jobs=threads)
    return np.asarray(clusterer.fit_predict(embedding), dtype=np.int64)


def evoc_default(vectors: Vectors, request: Request, threads: int) -> Labels:
    import evoc

    return np.asarray(evoc.EVoC(random_state=request.seed).fit_predict(vectors), dtype=np.int64)


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


class RivalProcess:
    """A process that runs what it is asked for, one request after the other. Use it in a ``with`` statement.

    It starts with the first request, and anew after a request that ended it.
    """

    def __init__(self, threads: int, python: str | None = None) -> None:
        self._words = [python or sys.executable, __file__, str(threads)]
        self._environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
        self._process: subprocess.Popen[str] | None = None

    def fit(self, request: Request, vectors: Vectors) -> Found:
        """The labels of vectors. (N, D) -> (N,)"""
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / "vectors.npy", Path(folder) / "labels.npy"]
            np.save(files[0], vectors)
            about = self._ask(json.dumps([list(request), *map(str, files)]))
            if about is None:
                raise RuntimeError(f"{request.method} ended with exit code {self._end()}")
            return Found(np.load(files[1]), **json.loads(about))

    def _ask(self, line: str) -> str | None:
        """The answer to a line; None if the process ended."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environment
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline() or None

    def _end(self) -> int:
        """Close the process; returns its exit code."""
        assert self._process is not None
        with self._process as ending:
            self._process = None
        return ending.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._process is not None:
            self._end()


def answer(request: Request, vectors: Vectors, threads: int) -> tuple[Labels, dict[str, Any]]:
    """Labels of a method in this process, and what is known about the run."""
    rival = RIVALS[request.method]
    began = time.perf_counter(), time.process_time()
    labels = rival.fit(vectors, request, threads)
    spent = time.perf_counter() - began[0], time.process_time() - began[1]
    about = {"seconds": round(spent[0], 2), "cpu_seconds": round(spent[1], 2)}
    return labels, {**about, "versions": rows.versions(rival.packages)}


def main() -> None:
    """Answer the requests of standard input, a line each, until it ends."""
    threads, compiled = int(sys.argv[1]), set()
    # What the methods print must not mix with the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        words, vectors_file, labels_file = json.loads(line)
        request = Request(*words)
        if (request.method, request.metric) not in compiled:
            compiled.add((request.method, request.metric))
            RIVALS[request.method].fit(np.random.default_rng(0).random(WARM_UP, dtype=np.float32), request, threads)
        labels, about = answer(request, np.load(vectors_file), threads)
        np.save(labels_file, labels)
        print(json.dumps(about), file=answers, flush=True)


if __name__ == "__main__":
    main()
