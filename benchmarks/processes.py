"""Two processes of one thread against one process of two threads, on one machine.

    python benchmarks/processes.py [--rounds 3] [--steps 60] [--processes 2] [--save FILE]

Runs ``cts fit`` on random 28x28 images in both ways, alternating so that both see the same machine, for the relaxed
search (``--steps`` steps) and for evolution (a tenth of them), and takes the views per second of a typical step from
each run's history. ``--save benchmarks/results/speed.csv`` appends the figures to that file.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import rows

from converge_to_surprise.search.threads import available_threads

SEARCHES = {
    "relaxed": "--search relaxed --n-init 1",
    "evolution": "--search evolution --evolution.batch-size 1000 --evolution.population 16 --evolution.ramp-epochs 1",
}
PER_STEP = {"relaxed": 250, "evolution": 1000}


def views_per_second(folder: Path, source: Path, search: str, steps: int, processes: int, threads: int) -> float:
    """Of the median step after the first few, which load and warm up."""
    out = folder / f"{search}-{processes}-{time.monotonic_ns()}"
    epochs = -(-steps * PER_STEP[search] // len(np.load(source, mmap_mode="r")))
    options = [*SEARCHES[search].split(), "--schedule", f"search={search}:{epochs}", "--no-report"]
    rows.cts("fit", source, "--out", out, "--threads", threads, "--processes", processes, *options)
    records = pd.read_json(out / "history.jsonl", lines=True)[["views", "seconds"]]
    settled = records[len(records) // 5 :].diff().dropna()
    return float((settled["views"] / settled["seconds"]).median())


def main() -> None:
    options = rows.parser(__doc__, rounds=3, steps=60, processes=2, threads=available_threads()).parse_args()
    figures: dict[str, tuple[float, str]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "images.npy"
        np.save(source, np.random.default_rng(0).integers(0, 256, (5000, 28, 28), dtype=np.uint8))
        for search in SEARCHES:
            steps = options.steps if search == "relaxed" else max(6, options.steps // 10)
            found: dict[int, list[float]] = {1: [], options.processes: []}
            for _ in range(options.rounds):
                for processes, speeds in found.items():
                    speeds.append(views_per_second(folder, source, search, steps, processes, options.threads))
            one, several = (statistics.median(speeds) for speeds in found.values())
            ratio = statistics.median(b / a for a, b in zip(*found.values(), strict=True))
            figures[f"{search}: one process"] = one, "views/s"
            figures[f"{search}: {options.processes} processes"] = several, "views/s"
            figures[f"{search}: {options.processes} processes / one"] = ratio, "ratio"
    rows.show_speed(figures, options.threads, options.save)


if __name__ == "__main__":
    main()
