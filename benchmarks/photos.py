"""Folders of pictures on the features of one backbone: ours beside EVoC, UMAP + HDBSCAN and k-means with K given.

    pip install '.[benchmarks,photos]'
    python benchmarks/photos.py FOLDER... --backbone FILE [--backbone-size 128] [--seeds 0 1 2 3 4] [--rivals-python P]

The folders directly below FOLDER are its classes, for evaluation only. Every method gets the features of the same views
from the same file: the rivals the mean of both un-augmented views as unit vectors. UMAP + HDBSCAN has the settings of
its documentation with the cosine metric, EVoC its defaults; what they call noise counts as one more cluster. k-means is
told the number of classes and takes the best of 10 initializations. ``seconds`` of ours are those of the whole command,
with the features in the cache from the second seed on (``bank`` says whether they were); those of the rivals are of
clustering alone, after compilation.

Each run appends a row to benchmarks/results/photos.csv; runs that have one are not repeated. Then the table is printed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import rivals
import rows
from rival_process import Request, RivalProcess

METHODS = ("ours", "evoc", "umap+hdbscan", "k-means, K given")


def unit_features(run: Path) -> npt.NDArray[np.float32]:
    """The features of the un-augmented views of a finished run's pictures, as unit vectors. (N, D)"""
    from converge_to_surprise.data import datasets
    from converge_to_surprise.data.cache import cache_folder
    from converge_to_surprise.data.store import fingerprint
    from converge_to_surprise.runs.folder import RunFolder

    description = RunFolder.open(run).description()
    assert description.recipe is not None
    images = datasets.load(description.source, shape=description.shape).train.images
    folder = cache_folder() / f"features-{description.recipe.key(fingerprint(images))}"
    stored = np.load(folder / "features.npy", mmap_mode="r")[:, :, 0].astype(np.float32).mean(1)
    return np.asarray(stored / np.linalg.norm(stored, axis=1, keepdims=True), dtype=np.float32)


def classes_of(run: Path, source: str) -> npt.NDArray[np.int64]:
    from converge_to_surprise.config.images import ImageOptions
    from converge_to_surprise.data import datasets
    from converge_to_surprise.runs.folder import RunFolder

    shape = RunFolder.open(run).description().shape
    labels = datasets.load(source, options=ImageOptions(labels="from-folders"), shape=shape).train.labels
    assert labels is not None
    return labels


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
    method: str,
    features: npt.NDArray[np.float32],
    classes: npt.NDArray[np.int64],
    seed: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """The scores of one rival, in a fresh process."""
    from sklearn.cluster import KMeans

    if method == "k-means, K given":
        began = time.perf_counter()
        labels = KMeans(len(np.unique(classes)), n_init=10, random_state=seed).fit_predict(features).astype(np.int64)
        spent = time.perf_counter() - began
    else:
        with RivalProcess(options.threads, options.rivals_python) as process:
            labels, spent, *_ = process.fit(Request(method, seed, "cosine"), features)
    return {**rivals.scores(labels, classes), "seconds": round(spent, 1)}


def table(found: list[dict[str, str]]) -> str:
    """Mean ± standard deviation over the seeds, as Markdown."""
    lines = ["| pictures | method | ACC | NMI | ARI | clusters | seconds |", "|---|---|---|---|---|---|---|"]
    for data in dict.fromkeys(row["data"] for row in found):
        for method in METHODS:
            some = [row for row in found if (row["data"], row["method"]) == (data, method)]
            if some:
                columns = [[100 * float(row[name]) for row in some] for name in ("acc", "nmi", "ari")]
                cells = [f"{np.mean(values):.1f} ± {np.std(values):.1f}" for values in columns]
                numbers = " ".join(sorted({row["n_clusters"] for row in some}, key=int))
                seconds = f"{np.median([float(row['seconds']) for row in some]):.0f}"
                lines.append(f"| {data} | {method} | {' | '.join(cells)} | {numbers} | {seconds} |")
    return "\n".join(lines)


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
    for source in options.folders:
        data = Path(source).name
        for seed in options.seeds:
            run = options.runs / f"{data}-{seed}"
            for method in options.methods:
                if (data, method, str(seed)) in finished:
                    continue
                print(data, method, seed, flush=True)
                if method == "ours":
                    words = ["--labels", "from-folders", "--seed", seed, "--threads", options.threads]
                    found = ours(source, run, [*backbone_words(options), *words])
                else:
                    first = options.runs / f"{data}-{options.seeds[0]}"
                    found = run_rival(method, unit_features(first), classes_of(first, source), seed, options)
                backbone = f"{Path(options.backbone).name} at {options.backbone_size or 'its own'} px"
                about = {"data": data, "method": method, "backbone": backbone, "seed": seed, "threads": options.threads}
                rows.append_rows(options.save, [{**about, **found}])
    print(table(rows.read_rows(options.save)))


if __name__ == "__main__":
    main()
