"""How long the report of a large run takes, and how large its page is.

    python benchmarks/report.py [--images 70000] [--data-dir FOLDER] [--work FOLDER] [--threads 2]

The images are those of MNIST (training and test part) if ``--data-dir`` has them, otherwise pictures of bars of the
same size. A short run on the first 5,000 is made first, which is not timed; it is kept in ``--work`` and used again.
Then `cts report RUN SOURCE` is timed on all of them, from the start of the program. For images that are not the run's
own the subclusters are computed too, which a run has in its table of labels: its own report takes less.
The targets are 60 s on two cores and 25 MB for 70,000 images. The figures are appended to benchmarks/results/speed.csv.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import rows

from converge_to_surprise.data import datasets
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.search.threads import available_threads

FIRST = 5_000
"""Images that the run is made with."""


def write_source(path: Path, count: int, data_dir: Path | None) -> None:
    """An array file with the images."""
    if data_dir is None:
        bars, kinds = striped_images(count, side=28)
        np.savez(path, images=bars.numpy(), labels=kinds)
        return
    mnist = datasets.load("mnist", data_dir)
    parts = [mnist.train] if mnist.test is None else [mnist.train, mnist.test]
    images = np.concatenate([part.images.numpy() for part in parts])[:count]
    labels = np.concatenate([part.labels for part in parts if part.labels is not None])[:count]
    np.savez(path, images=images, labels=labels)


def make_run(folder: Path, source: Path, threads: int) -> None:
    """The shortest run that has a merge tree."""
    whole, first = np.load(source), source.with_name("first.npz")
    np.savez(first, images=whole["images"][:FIRST], labels=whole["labels"][:FIRST])
    stages = ("--schedule", "search=relaxed:1", "merge=merge:1", "--relaxed.heads", 2, "--n-init", 1)
    rows.cts("fit", first, "--out", folder, *stages, "--n-clusters", 10, "--threads", threads, "--no-report")


def main() -> None:
    parser = rows.parser(__doc__, "speed.csv", images=70_000, threads=available_threads())
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--work", type=Path, help="folder for the images and the run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        source, folder, out = work / "images.npz", work / "run", work / "report.html"
        if not RunFolder(folder).result.is_file():
            print("making a run ...", flush=True)
            write_source(source, options.images, options.data_dir)
            make_run(folder, source, options.threads)
        began, used = time.monotonic(), os.times()
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
        rows.cts("report", folder, source, "--out", out)
        seconds, now = time.monotonic() - began, os.times()
        cpu = now.children_user + now.children_system - used.children_user - used.children_system
        size = out.stat().st_size / 1e6
    title = f"{options.images:,} images"
    figures = {title: (seconds, "s"), f"{title}, CPU time": (cpu, "s"), f"{title}, page": (size, "MB")}
    rows.show_speed(figures, options.threads, options.save)


if __name__ == "__main__":
    main()
