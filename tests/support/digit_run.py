"""A small finished run on images of digits, with a merge tree, made without the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from converge_to_surprise.config import Augmentation, Config, Merge, Network, Relaxed, Stage
from converge_to_surprise.data import datasets
from converge_to_surprise.runs import session
from converge_to_surprise.runs.folder import RunFolder

IMAGES = 360
HOSTILE = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>&\u2028"
"""A class name that would run as code if it were not escaped."""

N_CLUSTERS = 6
CONFIG = Config(
    threads=1,
    schedule=(Stage("search", "relaxed", 12), Stage("merge", "merge", 1), Stage("refine", "refine", 2)),
    max_clusters=16,
    n_clusters=N_CLUSTERS,
    network=Network(width=4),
    augmentation=Augmentation(rotation=10, crop=1),
    relaxed=Relaxed(heads=2, batch_size=90, learning_rate=0.01, diversity_floor=(10.0, 10.0), diversity_until=0.6),
    merge=Merge(min_cluster_fraction=0.0),
)


def write_source(folder: Path, classes: bool = True) -> Path:
    """An array file of digits; two of the classes have names."""
    bundle = load_digits()
    arrays = {"images": np.round(bundle.images[:IMAGES] / 16 * 255).astype(np.uint8)}
    if classes:
        words = np.array([HOSTILE, "one", *(f"digit {number}" for number in range(2, 10))])
        arrays["labels"] = words[bundle.target[:IMAGES]]
    path = folder / ("digits.npz" if classes else "plain.npz")
    np.savez(path, **arrays)
    return path


def make_run(folder: Path, source: Path, config: Config = CONFIG) -> RunFolder:
    """Begin a run on a source and work through its whole schedule."""
    dataset = datasets.load(str(source))
    run = RunFolder(folder)
    search = session.begin(run, dataset, session.Origin(str(source), preset="fast"), config)
    session.train(run, search, dataset, [])
    return run
