"""Folders of pictures on the features of one backbone: ours beside EVoC, UMAP + HDBSCAN and k-means with K given.

    pip install '.[benchmarks,photos]'
    python benchmarks/photos.py FOLDER... --backbone FILE [--backbone-size 128] [--seeds 0 1 2 3 4] [--rivals-python P]

The folders directly below FOLDER are its classes, for evaluation only. Every method works on the features of the same
views by the same backbone: ours on the bank, which its first run computes, the rivals on the mean of both views without
augmentation, as unit vectors. UMAP + HDBSCAN has the settings of its documentation with the cosine metric, EVoC
its defaults; what they call noise counts as one more cluster. k-means is told the number of classes and takes the best
of 10 initializations.

``seconds`` of ours are those of the whole command, with the features if ``bank`` is "computed"; those of the rivals are
of clustering alone, after compilation. ``load`` is the load average of the machine (one minute) at the start: on a busy
machine ``seconds`` are an upper bound.

Each run appends a row to benchmarks/results/photos.csv; runs that have one are not repeated. Then the table is printed.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import readme_table
import rivals
import rows
from rival_process import Request, RivalProcess

METHODS = tuple(readme_table.PHOTO_METHODS)


@functools.cache
def features_and_classes(
    source: str, backbone: str, size: int | None, threads: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """The features of both views of a folder's pictures, as unit vectors, and its classes. (N, D), (N,)

    They are those of ours without augmentation: the rivals need no bank.
    """
    from converge_to_surprise.config import Config, presets
    from converge_to_surprise.config.images import ImageOptions
    from converge_to_surprise.data import datasets
    from converge_to_surprise.model.encoder import clean_features
    from converge_to_surprise.model.feature_bank import CHUNK
    from converge_to_surprise.model.feature_recipe import FeatureRecipe
    from converge_to_surprise.model.inference import map_ordered
    from converge_to_surprise.model.pretrained import PreprocessFlags, open_backbone

    opened = open_backbone(backbone, PreprocessFlags(size=size))
    side = opened.identity.preprocess.size
    store = datasets.load(source, options=ImageOptions(labels="from-folders", square=side)).train
    assert store.labels is not None
    config = presets.with_backbone(Config(), side, len(store))
    recipe = FeatureRecipe(opened.identity, config.views, config.augmentation, 1, presets.COMPONENTS)

    def part(start: int) -> npt.NDArray[np.float32]:
        return clean_features(opened, store.images[start : start + CHUNK], recipe).float().mean(1).numpy()

    found = np.concatenate(list(map_ordered(part, range(0, len(store), CHUNK), threads)))
    return found / np.linalg.norm(found, axis=1, keepdims=True), store.labels


def backbone_words(options: argparse.Namespace) -> list[Any]:
    """The options of `cts fit` that name the backbone."""
    size = [] if options.backbone_size is None else ["--backbone-size", options.backbone_size]
    return ["--backbone", options.backbone, *size]


def ours(source: str | Path, run: Path, words: Sequence[object]) -> dict[str, Any]:
    """One whole `cts fit` with more options; its scores are those of predictions, by both views."""
    began = time.perf_counter()
    printed = rows.cts("fit", source, "--out", run, *words, "--force")
    spent = time.perf_counter() - began
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    return {
        "n_clusters": result["n_clusters_both"],
        **{name: result[f"{name}_both"] for name in ("acc", "nmi", "ari")},
        "verdict": result["verdict"]["strength"],
        "levels": " ".join(str(level[0]) for level in (result["merge"] or {"levels": []})["levels"]),
        "seconds": round(spent, 1),
        "bank": "computed" if "features of pictures" in printed else "cached",
    }


def run_rival(
    request: Request, features: npt.NDArray[np.float32], classes: npt.NDArray[np.int64], process: RivalProcess
) -> dict[str, Any]:
    """The scores and the time of one rival."""
    if request.method != "k-means, K given":
        found = process.fit(request, features)
        times = {"seconds": found.seconds, "cpu_seconds": found.cpu_seconds, "versions": found.versions}
        return rivals.scores(found.labels, classes) | times
    from sklearn.cluster import KMeans

    began, cpu = time.perf_counter(), time.process_time()
    labels = KMeans(len(np.unique(classes)), n_init=10, random_state=request.seed).fit_predict(features)
    times = {"seconds": round(time.perf_counter() - began, 2), "cpu_seconds": round(time.process_time() - cpu, 2)}
    return rivals.scores(labels.astype(np.int64), classes) | times | {"versions": rows.versions(["scikit-learn"])}


def run_one(source: str, method: str, seed: int, process: RivalProcess, options: argparse.Namespace) -> dict[str, Any]:
    """The row of one run."""
    data = Path(source).name
    backbone = f"{Path(options.backbone).name} at {options.backbone_size or 'its own'} px"
    about = {"data": data, "method": method, "backbone": backbone, "seed": seed, "threads": options.threads}
    load = round(os.getloadavg()[0], 2)
    if method == "ours":
        words = ["--labels", "from-folders", "--seed", seed, "--threads", options.threads]
        found = ours(source, options.runs / f"{data}-{seed}", [*backbone_words(options), *words])
    else:
        some = features_and_classes(source, options.backbone, options.backbone_size, options.threads)
        found = run_rival(Request(method, seed, "cosine"), *some, process)
    return {**about, **found, "load": load}


def main() -> None:
    parser = rows.parser(__doc__, "photos.csv", threads=2)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--backbone-size", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--runs", type=Path, default=Path("runs/photos"), help="folder for our runs")
    parser.add_argument("--rivals-python", help="interpreter that has evoc, umap-learn and hdbscan")
    options = parser.parse_args()
    finished = {(row["data"], row["method"], row["seed"]) for row in rows.read_rows(options.save)}
    with RivalProcess(options.threads, options.rivals_python) as process:
        for source, seed, method in itertools.product(options.folders, options.seeds, options.methods):
            if (Path(source).name, method, str(seed)) not in finished:
                print(source, method, seed, flush=True)
                rows.append_rows(options.save, [run_one(source, method, seed, process, options)])
    print(readme_table.photos(options.save.parent))


if __name__ == "__main__":
    main()
