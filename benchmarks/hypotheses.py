"""Rounds of hypotheses (paper, appendix A.1): is the tree that was made the tree that is found, what do rounds add on
real pictures, and does the test keep its level where the hypothesis is true?

    python benchmarks/hypotheses.py made --seeds 5 [--refined]
    python benchmarks/hypotheses.py real usps [--images 4000] [--seed 0]
    python benchmarks/hypotheses.py real FILE.npz|FOLDER [--augmentation mnist]
    python benchmarks/hypotheses.py run RUN
    python benchmarks/hypotheses.py null --rounds 20 [--nodes classes|clusters]

One row per run in benchmarks/results/hypotheses.csv; the p-values of ``null`` are in hypotheses-null.csv. Classes serve
for evaluation only. ``null`` pairs view i of one digit with view j of another digit of the same class: white squares of
the chessboard from one picture, black ones from the other. Given the class the views are then independent.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import rows
import torch
from torch import Tensor

from converge_to_surprise.config import Config, Stage, presets
from converge_to_surprise.config.images import ImageOptions
from converge_to_surprise.config.kinds import for_kind
from converge_to_surprise.config.presets import canonical
from converge_to_surprise.core import conditional
from converge_to_surprise.core.metrics import adjusted_rand_index, normalized_mutual_information
from converge_to_surprise.core.picture_kind import picture_kind
from converge_to_surprise.core.views import chessboard
from converge_to_surprise.data import datasets
from converge_to_surprise.data.synthetic import nested_images
from converge_to_surprise.model import model_file
from converge_to_surprise.model.cluster_model import Model
from converge_to_surprise.model.hierarchy import Hierarchy, path_text
from converge_to_surprise.runs.deepening import deepen_run
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.hypothesis_table import hypothesis_rows
from converge_to_surprise.search.hypotheses import LEVEL, RoundRequest, Searched, deepen, next_round
from converge_to_surprise.search.node_split import MIN_BOUNDARY
from converge_to_surprise.search.restarts import Restarts

FILE = rows.RESULTS / "hypotheses.csv"
PAIRED = 100
"""Images of each digit whose views are paired anew."""
P_VALUES = rows.RESULTS / "hypotheses-null.csv"
MADE = 800
"""Images of the made set."""
SHORT = ("graph 1=graph:40", "search 1=relaxed:25", "graph 2=graph:20", "search 2=relaxed:40", "merge=merge:1")
REFINED = (*SHORT, "refine=refine:15")
"""The schedules of its search, shorter than that of the fast preset: without refining and with it."""


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
        inside = known[[leaf[: len(node.path)] == node.path for leaf in leaves]]
        held = dict(zip(*np.unique(inside, return_counts=True), strict=True))
        print(" ", path_text(node.path), node.outcome, node.n_children, f"phi {node.boundary:.2f}", held, flush=True)
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


def made(seed: int, refined: bool) -> dict[str, Any]:
    """The made tree: the first search is cut at its four shapes."""
    images, truth, _ = nested_images(MADE, seed=seed)
    config = replace(
        configured(images, seed, "auto"), n_clusters=4, schedule=tuple(map(Stage.parse, REFINED if refined else SHORT))
    )
    return measure("made, refined" if refined else "made", images, truth, config)


def real(source: str, seed: int, most: int, augmentation: str) -> dict[str, Any]:
    """A data set by name, a file or a folder whose folders are classes; the first ``most`` in a random order."""
    options = ImageOptions(labels="from-folders" if Path(source).is_dir() else "none")
    store = datasets.load(source, None, options).train
    assert store.labels is not None
    chosen = np.sort(np.random.default_rng(0).permutation(len(store))[:most])
    images = store.images[torch.from_numpy(chosen)]
    config = configured(images, seed, canonical(source) or augmentation)
    return measure(canonical(source) or Path(source).stem, images, store.labels[chosen], config)


def deepened(folder: Path) -> dict[str, Any]:
    """A copy of a finished run with everything that its rounds find."""
    with tempfile.TemporaryDirectory() as place:
        run = RunFolder(Path(shutil.copytree(folder, Path(place) / "run")))
        description = run.description()
        dataset = datasets.load(description.source, None, description.reading, shape=description.shape)
        began = time.perf_counter()
        found = deepen_run(run, dataset, RoundRequest())
    table = found.table["rounds"]
    for node in found.tree.nodes:
        print(" ", path_text(node.path), node.outcome, node.n_children, f"phi {node.boundary:.2f}", flush=True)
    known = [row["nmi"] for row in table if row["nmi"] is not None]
    return {
        "what": "tree", "set": folder.name, "seed": description.config.seed, "images": description.images,
        **{name: " ".join(f"{row[name]:.0f}" for row in table) for name in ("tried", "splits", "leaves", "nats")},
        "nmi": " ".join(f"{value:.4f}" for value in known), "nmi_leaves": known[-1] if known else None,
        "finished": int(found.tree.finished), "rounds_seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def composite(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Every image with the black squares of another one."""
    partner = torch.from_numpy(rng.permutation(len(images)))
    return torch.where(chessboard(*images.shape[2:]), images, images[partner])


def null(rounds: int, nodes: str, saved: Path | None) -> dict[str, Any]:
    """The level of the test: rounds on newly paired images of all ten digits, on features that were trained on the
    digits themselves. ``nodes``: given the class, for which H1 is true, or the clusters found. ``saved``: a model of
    the digits that `cts fit digits` made, to save its search.
    """
    store = datasets.load("digits").train
    assert store.labels is not None
    if saved is None:
        model, _ = search(store.images, configured(store.images, 0, "digits"))
    else:
        model = model_file.load(saved)[0]
    logs: list[float] = []
    rejected = splits = 0
    began = time.perf_counter()
    torch.set_num_threads(1)
    for number in range(rounds):
        rng = np.random.default_rng(number)
        chosen = [rng.permutation(np.flatnonzero(store.labels == digit))[:PAIRED] for digit in range(10)]
        mixed = torch.cat([composite(store.images[torch.from_numpy(few)], rng) for few in chosen])
        searched = Searched.of(replace(model, config=replace(model.config, seed=number)), mixed)
        if nodes == "classes":
            searched = searched._replace(numbers=torch.arange(10).repeat_interleave(PAIRED))
        with patch.object(conditional, "holm", list):  # each test alone; the correction is made below
            found = next_round(searched, Hierarchy(), RoundRequest()).nodes
        tried = [node for node in found if node.outcome not in ("too few images", "one group")]
        corrected = conditional.holm([node.log_p for node in tried])
        logs += [node.log_p for node in tried]
        rejected += sum(value <= np.log(LEVEL) for value in corrected)
        holding = zip(corrected, tried, strict=True)
        splits += sum(value <= np.log(LEVEL) and node.boundary >= MIN_BOUNDARY for value, node in holding)
        print(f"{number + 1} rounds, {len(logs)} tests: {rejected} reject, {splits} split", flush=True)
        _save_p_values(nodes, logs)
    small = {f"p_{level}": float(np.mean(np.array(logs) <= np.log(level))) for level in (0.01, 0.05, 0.2)}
    return {
        "what": "null", "set": f"digits, paired within {nodes}", "seed": 0, "images": 10 * PAIRED, "trials": rounds,
        "tried": len(logs), "rejected": rejected, "splits": splits, **small,
        "rounds_seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def _save_p_values(nodes: str, logs: list[float]) -> None:
    found = rows.read_rows(P_VALUES) if P_VALUES.is_file() else []
    kept = [row for row in found if row["nodes"] != nodes]
    rows.write_rows(
        P_VALUES, [*kept, *({"nodes": nodes, "log_p": round(value, 6), "command": rows.command()} for value in logs)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("made", "real", "run", "null"))
    parser.add_argument("source", nargs="?")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--images", type=int, default=10**9)
    parser.add_argument("--augmentation", default="auto")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--refined", action="store_true")
    parser.add_argument("--nodes", choices=("classes", "clusters"), default="classes")
    parser.add_argument("--save", type=Path, default=FILE)
    given = parser.parse_args()
    for seed in range(given.seed, given.seed + given.seeds):
        if given.what == "made":
            row = made(seed, given.refined)
        elif given.what == "run":
            row = deepened(Path(given.source))
        elif given.what == "null":
            row = null(given.rounds, given.nodes, given.model)
        else:
            row = real(given.source, seed, given.images, given.augmentation)
        print(row, flush=True)
        rows.append_rows(given.save, [row])


if __name__ == "__main__":
    main()
