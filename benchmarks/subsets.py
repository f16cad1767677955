"""Is the number of clusters discovered? Subsets of the embedded digits with other numbers and sizes of classes, and all
of them together with the same digits lying on their side (a 0 lying is a 0: 19 classes).

    python benchmarks/subsets.py [--seeds 3] [--threads 1] [--subset NAME ...] [--save benchmarks/results/subsets.csv]

Every subset is clustered with the fast preset and the augmentation of the digits; classes serve for evaluation only.
Each initialization of a run has a row of its own (n_init 1), beside that of the run, which selects one of them: so what
was not selected is known too.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import rows
import torch

from converge_to_surprise.config import presets
from converge_to_surprise.core.metrics import balance
from converge_to_surprise.core.rng import init_seed
from converge_to_surprise.data import datasets
from converge_to_surprise.data.datasets import Dataset
from converge_to_surprise.data.store import ImageStore
from converge_to_surprise.runs import session
from converge_to_surprise.runs.folder import RunFolder

SUBSETS = ("three classes", "five classes", "seven classes", "unequal classes", "upright and lying")


def subset(name: str) -> ImageStore:
    """The images of a subset, with their classes."""
    whole = datasets.load("digits").train
    images, classes = whole.images, whole.labels
    assert classes is not None
    if name == "upright and lying":
        lying = np.where(classes, classes + 10, 0)
        return ImageStore(torch.cat([images, images.rot90(1, (2, 3))]), np.concatenate([classes, lying]))
    if name == "unequal classes":  # from all of the first class down to 15 % of the last
        keep = np.random.default_rng(0).random(len(classes)) < np.linspace(1, 0.15, 10)[classes]
    else:
        wanted = {"three classes": [0, 4, 6], "five classes": [0, 1, 2, 3, 4], "seven classes": [0, 2, 3, 4, 6, 7, 9]}
        keep = np.isin(classes, wanted[name])
    return ImageStore(images[torch.from_numpy(keep)], classes[keep])


def measure(name: str, seed: int, threads: int) -> list[dict[str, Any]]:
    """A row for every initialization and, if there are several, one for the run that selects among them."""
    config = presets.resolve("fast", None, "digits", len(subset(name)), (1, 8, 8))
    found = [measure_one(name, own, threads) for own in (init_seed(seed, index) for index in range(config.n_init))]
    if len(found) == 1:
        return found
    best = max(found, key=lambda row: float(row["balance"]))
    seconds = round(sum(row["seconds"] for row in found), 1)
    return [*found, best | {"seed": seed, "n_init": len(found), "seconds": seconds}]


def measure_one(name: str, seed: int, threads: int) -> dict[str, Any]:
    """One initialization."""
    store = subset(name)
    dataset = Dataset("digits", store, None)
    config = replace(presets.resolve("fast", None, "digits", len(store), (1, 8, 8)), n_init=1)
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder) / "run")
        config = replace(config, seed=seed, threads=threads)
        search = session.begin(run, dataset, session.Origin("digits", "fast"), config)
        assessment = session.train(run, search, dataset, []).assessment
    assert store.labels is not None
    sizes = [cluster.size for cluster in assessment.clusters]
    return {
        "subset": name,
        "seed": seed,
        "n_init": 1,
        "selected_seed": seed,
        "threads": threads,
        "class_sizes": " ".join(str(size) for size in np.bincount(store.labels) if size),
        "cluster_sizes": " ".join(map(str, sizes)),
        "balance": balance(sizes),
        "seconds": round(search.seconds, 1),
        **assessment.scores(),
    }


def main() -> None:
    parser = rows.parser(__doc__, "subsets.csv", seeds=3, threads=1)
    parser.add_argument("--subset", nargs="+", choices=SUBSETS, default=SUBSETS)
    options = parser.parse_args()
    for name in options.subset:
        for seed in range(options.seeds):
            found = measure(name, seed, options.threads)
            print(name, found[-1], flush=True)
            rows.append_rows(options.save, found)


if __name__ == "__main__":
    main()
