"""Rounds of hypotheses (paper, appendix A.1): is the tree that was made the tree that is found, what do rounds add on
real pictures, and does the test keep its level where the hypothesis is true?

    python benchmarks/hypotheses.py made --seeds 5
    python benchmarks/hypotheses.py real usps [--images 4000] [--seed 0]
    python benchmarks/hypotheses.py real FILE.npz|FOLDER [--augmentation mnist]
    python benchmarks/hypotheses.py null --trials 200 [--nodes classes|clusters]

One row per run in benchmarks/results/hypotheses.csv; the p-values of ``null`` are in hypotheses-null.csv. Classes serve
for evaluation only. ``null`` pairs view i of one digit with view j of another digit of the same class: white squares of
the chessboard from one picture, black ones from the other. Given the class the views are then independent.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import rows
import torch
from torch import Tensor

from converge_to_surprise.config import Config, Stage, presets
from converge_to_surprise.config.images import ImageOptions
from converge_to_surprise.config.kinds import for_kind
from converge_to_surprise.config.presets import canonical
from converge_to_surprise.core.metrics import adjusted_rand_index, normalized_mutual_information
from converge_to_surprise.core.picture_kind import picture_kind
from converge_to_surprise.core.views import chessboard
from converge_to_surprise.data import datasets
from converge_to_surprise.data.synthetic import nested_images
from converge_to_surprise.model.cluster_model import Model
from converge_to_surprise.model.hierarchy import Hierarchy, path_text
from converge_to_surprise.runs.hypothesis_table import hypothesis_rows
from converge_to_surprise.search.hypotheses import RoundRequest, Searched, deepen, next_round
from converge_to_surprise.search.restarts import Restarts

FILE = rows.RESULTS / "hypotheses.csv"
P_VALUES = rows.RESULTS / "hypotheses-null.csv"
MADE = 800
"""Images of the made set."""
SHORT = (
    "graph 1=graph:20",
    "search 1=relaxed:15",
    "graph 2=graph:15",
    "search 2=relaxed:20",
    "merge=merge:1",
    "refine=refine:15",
)
"""The schedule of its search: half of the steps of the fast preset."""


def search(images: Tensor, config: Config) -> tuple[Model, float]:
    """The first search and its seconds."""
    began = time.perf_counter()
    torch.set_num_threads(config.threads)
    restarts = Restarts(images, config)
    for _ in restarts.run():
        pass
    return restarts.finish().model, time.perf_counter() - began


def configured(images: Tensor, seed: int, augmentation: str) -> Config:
    """The fast preset as `cts fit` has it."""
    channels, height, width = images.shape[1:]
    config = presets.resolve("fast", None, augmentation, len(images), (channels, height, width))
    if augmentation == "auto":
        config = for_kind(config, picture_kind(images))
    return replace(config, seed=seed, threads=1)


def measure(name: str, images: Tensor, classes: np.ndarray[Any, Any], config: Config) -> dict[str, Any]:
    """A search, rounds until nothing further is found, and the table of the rounds."""
    model, searching = search(images, config)
    began = time.perf_counter()
    searched = Searched.of(model, images)
    tree = Hierarchy()
    for tree in deepen(searched, RoundRequest()):  # noqa: B007 - the last one is the result
        pass
    seconds = time.perf_counter() - began
    leaves, known = searched.leaves(tree), classes[searched.bank.positions.numpy()]
    table = hypothesis_rows(tree, searched.first_nats(), leaves, model.n_clusters, known)
    numbers = {path: number for number, path in enumerate(sorted(set(leaves)))}
    labels = np.array([numbers[path] for path in leaves])
    for node in tree.nodes:
        print(" ", path_text(node.path), node.outcome, node.n_children, f"phi {node.boundary:.2f}", flush=True)
    return {
        "what": "tree",
        "set": name,
        "seed": config.seed,
        "images": len(images),
        "classes": len(set(known.tolist())),
        "tried": " ".join(str(row.tried) for row in table),
        "splits": " ".join(str(row.splits) for row in table),
        "leaves": " ".join(str(row.leaves) for row in table),
        "nats": " ".join(f"{row.nats:.0f}" for row in table),
        "nmi": " ".join(f"{row.nmi:.4f}" for row in table if row.nmi is not None),
        "ari_first": adjusted_rand_index(searched.numbers.numpy(), known),
        "ari_leaves": adjusted_rand_index(labels, known),
        "nmi_leaves": normalized_mutual_information(labels, known),
        "finished": int(tree.finished),
        "search_seconds": round(searching, 1),
        "rounds_seconds": round(seconds, 1),
    }


def made(seed: int) -> dict[str, Any]:
    """The made tree: the first search is cut at its four shapes."""
    images, truth, _ = nested_images(MADE, seed=seed)
    config = replace(configured(images, seed, "auto"), n_clusters=4, schedule=tuple(map(Stage.parse, SHORT)))
    return measure("made", images, truth, config)


def real(source: str, seed: int, most: int, augmentation: str) -> dict[str, Any]:
    """A data set by name, a file or a folder whose folders are classes; the first ``most`` in a random order."""
    options = ImageOptions(labels="from-folders" if Path(source).is_dir() else "none")
    store = datasets.load(source, None, options).train
    assert store.labels is not None
    chosen = np.sort(np.random.default_rng(0).permutation(len(store))[:most])
    images = store.images[torch.from_numpy(chosen)]
    config = configured(images, seed, canonical(source) or augmentation)
    return measure(canonical(source) or Path(source).stem, images, store.labels[chosen], config)


def composite(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Every image with the black squares of another one."""
    partner = torch.from_numpy(rng.permutation(len(images)))
    return torch.where(chessboard(*images.shape[2:]), images, images[partner])


def null(trials: int, nodes: str) -> dict[str, Any]:
    """The level of the test. Every trial is a round on newly paired images of one digit, on features that were trained
    on the digits themselves. ``nodes``: given the class, for which H1 is true, or the clusters found.
    """
    store = datasets.load("digits").train
    assert store.labels is not None
    model, searching = search(store.images, configured(store.images, 0, "digits"))
    logs: list[float] = []
    rejected = splits = rounds = 0
    began = time.perf_counter()
    for trial in range(trials):
        rng = np.random.default_rng(trial)
        mixed = composite(store.images[torch.from_numpy(np.flatnonzero(store.labels == trial % 10))], rng)
        searched = Searched.of(replace(model, config=replace(model.config, seed=trial)), mixed)
        if nodes == "classes":
            searched = searched._replace(numbers=torch.zeros_like(searched.numbers))
        tried = [node for node in next_round(searched, Hierarchy(), RoundRequest()).nodes if node.held_out >= 10]
        logs += [node.log_p for node in tried]
        rejected += any(node.log_p <= np.log(0.01) for node in tried)
        splits += any(node.is_split for node in tried)
        rounds += 1
        if trial % 20 == 19 or trial == trials - 1:
            print(f"{trial + 1} rounds: {rejected} reject, {splits} split", flush=True)
            _save_p_values(nodes, logs)
    return {
        "what": "null", "set": f"digits, paired within {nodes}", "seed": 0, "trials": rounds, "tried": len(logs),
        "rejected": rejected, "splits": splits, "search_seconds": round(searching, 1),
        "rounds_seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def _save_p_values(nodes: str, logs: list[float]) -> None:
    found = rows.read_rows(P_VALUES) if P_VALUES.is_file() else []
    kept = [row for row in found if row["nodes"] != nodes]
    rows.write_rows(P_VALUES, [*kept, *({"nodes": nodes, "log_p": round(value, 6)} for value in logs)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("made", "real", "null"))
    parser.add_argument("source", nargs="?")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--images", type=int, default=10**9)
    parser.add_argument("--augmentation", default="auto")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--nodes", choices=("classes", "clusters"), default="classes")
    parser.add_argument("--save", type=Path, default=FILE)
    given = parser.parse_args()
    for seed in range(given.seed, given.seed + given.seeds):
        if given.what == "made":
            row = made(seed)
        elif given.what == "null":
            row = null(given.trials, given.nodes)
        else:
            row = real(given.source, seed, given.images, given.augmentation)
        print(row, flush=True)
        rows.append_rows(given.save, [row])


if __name__ == "__main__":
    main()
