"""Rounds of hypotheses (paper, appendix A.1): is the tree that was made the tree that is found, and what do rounds
add on real pictures?

    python benchmarks/hypotheses.py made --seeds 5 [--refined]
    python benchmarks/hypotheses.py real usps [--seed 0] [--n-clusters 5] [--runs FOLDER]
    python benchmarks/hypotheses.py real FILE.npz|FOLDER [--backbone FILE.onnx --backbone-size 128]
    python benchmarks/hypotheses.py run RUN

``real`` is `cts fit` as a user calls it, with one thread, and then all rounds. ``--n-clusters`` makes the first search
too coarse on purpose. The runs stay in ``--runs`` for benchmarks/hypotheses_pictures.py; a run that is there already is
only deepened. ``run`` deepens a copy of any finished run. Subsets such as fashion.npz and mnist-fashion.npz are those
of benchmarks/zoo_sets.py. CPU seconds are those of one thread, with reading the images; ``round_cpu`` is the most
expensive round, the features of all views counted with the first.

One row per run in benchmarks/results/hypotheses.csv. Classes serve for evaluation only. The level of the test is
measured by benchmarks/hypotheses_null.py.
"""

from __future__ import annotations

import argparse
import csv
import resource
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import rows
import torch
from torch import Tensor

from converge_to_surprise.config import Config, Stage, presets
from converge_to_surprise.config.kinds import for_kind
from converge_to_surprise.config.presets import canonical
from converge_to_surprise.core.metrics import adjusted_rand_index, normalized_mutual_information
from converge_to_surprise.core.picture_kind import picture_kind
from converge_to_surprise.data import datasets
from converge_to_surprise.data.synthetic import nested_images
from converge_to_surprise.model.cluster_model import Model
from converge_to_surprise.model.hierarchy import Hierarchy, parse_path, path_text
from converge_to_surprise.model.hierarchy import Path as TreePath
from converge_to_surprise.runs.deepening import deepen_run
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.hypothesis_table import hypothesis_rows
from converge_to_surprise.search.hypotheses import RoundRequest, Searched, deepen
from converge_to_surprise.search.restarts import Restarts

FILE = rows.RESULTS / "hypotheses.csv"
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


def measure(
    name: str, images: Tensor, classes: np.ndarray[Any, Any], top: np.ndarray[Any, Any], config: Config
) -> dict[str, Any]:
    """A search, rounds until nothing further is found, and the table of the rounds. ``top``: what the clusters of the
    search itself should be.
    """
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
    show_nodes(tree, leaves, known)
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
        "ari_top": adjusted_rand_index(searched.numbers.numpy(), top[searched.bank.positions.numpy()]),
        "ari_first": adjusted_rand_index(searched.numbers.numpy(), known),
        "ari_leaves": adjusted_rand_index(labels, known),
        "nmi_leaves": normalized_mutual_information(labels, known),
        "finished": int(tree.finished),
        "search_seconds": round(searching, 1),
        "rounds_seconds": round(seconds, 1),
    }


def made(seed: int, refined: bool) -> dict[str, Any]:
    """The made tree: the first search is cut at its four shapes."""
    images, truth, leaves = nested_images(MADE, seed=seed)
    shapes = [leaf.split("/")[0] for leaf in leaves]
    top = np.array([shapes.index(shape) for shape in shapes])[truth]
    config = replace(
        configured(images, seed, "auto"), n_clusters=4, schedule=tuple(map(Stage.parse, REFINED if refined else SHORT))
    )
    return measure("made, refined" if refined else "made", images, truth, top, config)


def fit(source: str, run: Path, options: argparse.Namespace, seed: int) -> float | None:
    """`cts fit` into a folder, and its CPU seconds; None if the run is there already."""
    if (run / "result.json").is_file():
        return None
    words: list[Any] = ["--seed", seed, "--threads", 1, "--no-report"]
    words += ["--labels", "from-folders"] if Path(source).is_dir() else []
    words += ["--n-clusters", options.n_clusters] if options.n_clusters else []
    words += ["--backbone", options.backbone] if options.backbone else []
    words += ["--backbone-size", options.backbone_size] if options.backbone_size else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    rows.cts("fit", source, "--out", run, *words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)


def real(source: str, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """A data set by name, a file or a folder whose folders are classes: a run and its rounds."""
    name = (canonical(source) or Path(source).stem) + (" on EfficientNet features" if options.backbone else "")
    name += f", cut at {options.n_clusters}" if options.n_clusters else ""
    with tempfile.TemporaryDirectory() as place:
        folder = (options.runs or Path(place)) / f"{name.replace(' on EfficientNet features', '-bank')}-{seed}"
        folder = folder.with_name(folder.name.replace(", cut at ", "-cut"))
        spent = fit(source, folder, options, seed)
        return {**deepened(RunFolder(folder)), "set": name, "seed": seed, "search_cpu": spent}


def copied(folder: Path) -> dict[str, Any]:
    """A copy of a finished run with everything that its rounds find."""
    with tempfile.TemporaryDirectory() as place:
        run = RunFolder(Path(shutil.copytree(folder, Path(place) / "run")))
        return {**deepened(run), "set": folder.name}


def deepened(run: RunFolder) -> dict[str, Any]:
    """All rounds of a finished run, and their table."""
    description = run.description()
    dataset = datasets.load(description.source, None, description.reading, shape=description.shape)
    marks, began = [time.process_time()], time.perf_counter()
    found = deepen_run(run, dataset, RoundRequest(), lambda _: marks.append(time.process_time()))
    seconds = time.perf_counter() - began
    table = found.table["rounds"]
    with run.labels.open(newline="", encoding="utf-8") as lines:
        labels = list(csv.DictReader(lines))
    show_nodes(found.tree, [parse_path(row["leaf"]) for row in labels], dataset.train.labels)
    known = [row["nmi"] for row in table if row["nmi"] is not None]
    scores = {}
    if dataset.train.labels is not None:
        for name, column in (("first", "cluster"), ("leaves", "leaf")):
            numbers = np.unique([row[column] for row in labels], return_inverse=True)[1]
            scores[f"ari_{name}"] = adjusted_rand_index(numbers, dataset.train.labels)
    return {
        "what": "tree", "seed": description.config.seed, "images": description.images,
        "classes": len(set((dataset.train.labels if dataset.train.labels is not None else np.zeros(0)).tolist())),
        **{name: " ".join(f"{row[name]:.0f}" for row in table) for name in ("tried", "splits", "leaves", "nats")},
        "nmi": " ".join(f"{value:.4f}" for value in known), "nmi_leaves": known[-1] if known else None, **scores,
        "finished": int(found.tree.finished), "rounds_seconds": round(seconds, 1),
        "rounds_cpu": round(marks[-1] - marks[0], 1), "round_cpu": round(float(np.diff(marks).max()), 1),
    }  # fmt: skip


def show_nodes(tree: Hierarchy, leaves: list[TreePath], classes: np.ndarray[Any, Any] | None) -> None:
    """What came of every node, and the classes of the images in each of its parts."""
    for node in tree.nodes:
        print(" ", path_text(node.path), node.outcome, node.n_children, f"phi {node.boundary:.2f}", flush=True)
        for child in (node.path, *tree.children.get(node.path, ())):
            if classes is not None:
                inside = classes[[leaf[: len(child)] == child for leaf in leaves]]
                held = zip(*np.unique(inside, return_counts=True), strict=True)
                print("     ", path_text(child), {int(one): int(count) for one, count in held}, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("made", "real", "run"))
    parser.add_argument("source", nargs="?")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--n-clusters", type=int)
    parser.add_argument("--backbone")
    parser.add_argument("--backbone-size", type=int)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--refined", action="store_true")
    parser.add_argument("--save", type=Path, default=FILE)
    given = parser.parse_args()
    for seed in range(given.seed, given.seed + given.seeds):
        if given.what == "made":
            row = made(seed, given.refined)
        elif given.what == "run":
            row = copied(Path(given.source))
        else:
            row = real(given.source, given, seed)
        print(row, flush=True)
        rows.append_rows(given.save, [row])


if __name__ == "__main__":
    main()
