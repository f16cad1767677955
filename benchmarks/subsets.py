"""Is the number of clusters discovered? Subsets of the embedded digits with other numbers and sizes of classes, and all
of them together with the same digits lying on their side (a 0 lying is a 0: 19 classes).

    python benchmarks/subsets.py [--seeds 3] [--threads 1] [--subset NAME ...] [--out benchmarks/results/subsets.json]

Every subset is clustered with the fast preset and the augmentation of the digits; classes serve for evaluation only.
The starts of a run are measured one by one, so that what was not taken is known too.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from converge_to_surprise.reproduce.taking import of_starts
from torch import Tensor

from converge_to_surprise.config import presets
from converge_to_surprise.config.storage import write_json
from converge_to_surprise.core.metrics import balance
from converge_to_surprise.core.rng import init_seeds
from converge_to_surprise.data import datasets
from converge_to_surprise.data.datasets import Dataset
from converge_to_surprise.data.store import ImageStore
from converge_to_surprise.runs import session
from converge_to_surprise.runs.folder import RunFolder

SUBSETS = ("three classes", "five classes", "seven classes", "unequal classes", "upright and lying")


def subset(name: str, images: Tensor, classes: npt.NDArray[np.int64]) -> ImageStore:
    """The images of a subset, with their classes."""
    if name == "upright and lying":
        lying = np.where(classes, classes + 10, 0)
        return ImageStore(torch.cat([images, images.rot90(1, (2, 3))]), np.concatenate([classes, lying]))
    if name == "unequal classes":  # from all of the first class down to 15 % of the last
        keep = np.random.default_rng(0).random(len(classes)) < np.linspace(1, 0.15, 10)[classes]
    else:
        wanted = {"three classes": [0, 4, 6], "five classes": [0, 1, 2, 3, 4], "seven classes": [0, 2, 3, 4, 6, 7, 9]}
        keep = np.isin(classes, wanted[name])
    return ImageStore(images[torch.from_numpy(keep)], classes[keep])


def measure(name: str, seed: int, threads: int) -> dict[str, Any]:
    """The row of the start that is taken, with those of all starts in it."""
    config = presets.resolve("fast", None, "digits", len(digits(name)), (1, 8, 8))
    return of_starts(seed, [measure_start(name, own, threads) for own in init_seeds(seed, config.n_init)])


def digits(name: str) -> ImageStore:
    whole = datasets.load("digits", None).train
    assert whole.labels is not None
    return subset(name, whole.images, whole.labels)


def measure_start(name: str, seed: int, threads: int) -> dict[str, Any]:
    store = digits(name)
    dataset = Dataset("digits", store, None)
    config = replace(presets.resolve("fast", None, "digits", len(store), (1, 8, 8)), n_init=1)
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder) / "run")
        trainer = session.begin(run, dataset, "digits", None, "fast", replace(config, seed=seed, threads=threads))
        assessment = session.train(run, trainer, dataset, [])
    assert store.labels is not None
    sizes = np.bincount(store.labels)
    return {
        "subset": name,
        "class sizes": [int(size) for size in sizes if size],
        "seed": seed,
        "threads": threads,
        "seconds": round(trainer.seconds, 1),
        "versions": session.versions(),
        "metrics": assessment.scores(),
        "cluster sizes": [cluster.size for cluster in assessment.clusters],
        "balance": balance(cluster.size for cluster in assessment.clusters),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--subset", nargs="+", choices=SUBSETS, default=SUBSETS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.out is None and options.subset != SUBSETS:
        parser.error("give --out: a part of the subsets must not take the place of all of them")
    out = options.out or Path(__file__).parent / "results" / "subsets.json"
    rows = []
    for name in options.subset:
        for seed in range(options.seeds):
            rows.append(measure(name, seed, options.threads))
            print(json.dumps(rows[-1]), flush=True)
    command = shlex.join(["python", "benchmarks/subsets.py", *sys.argv[1:]])
    write_json(out, {"command": command, "runs": rows})


if __name__ == "__main__":
    main()
