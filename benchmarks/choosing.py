"""Which label-free measure tells good runs from bad ones? Over the runs of an ablation, all variants and seeds.

    python benchmarks/choosing.py runs/reproduce/runs [--data-dir DIR] [--out benchmarks/results/choosing.json]

For each data set: rank correlation (Spearman) of the measure with the adjusted Rand index against the true classes,
which serve for this evaluation only. Measured are the training images.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from converge_to_surprise.config.storage import write_json
from converge_to_surprise.core.metrics import accuracy, adjusted_rand_index
from converge_to_surprise.core.rng import APART
from converge_to_surprise.data import datasets
from converge_to_surprise.report.comparison import found_clusters, likeness, matrix
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.result import read_result
from converge_to_surprise.runs.session import versions

SETS = ("usps", "digits")


def judged(runs: list[RunFolder], classes: npt.NDArray[np.int64]) -> dict[str, Any]:
    """How each measure orders the runs, and the accuracy of the run that it would choose."""
    labels = [found_clusters(run, len(classes)) for run in runs]
    results = [read_result(run.result) for run in runs]
    truth = [adjusted_rand_index(found, classes) for found in labels]
    right = [accuracy(found, classes) for found in labels]
    measures = {
        "like the others": likeness(matrix(labels, adjusted_rand_index)),
        "orderliness": [result["orderliness"] for result in results],
        "surprise": [result["surprise"] for result in results],
    }
    return {
        "runs": len(runs),
        "acc": {"mean": round(100 * float(np.mean(right)), 2), "best": round(100 * max(right), 2)},
        "measures": {
            name: {
                "rank correlation": round(float(spearmanr(values, truth).statistic), 3),
                "acc of its choice": round(100 * right[int(np.argmax(values))], 2),
            }
            for name, values in measures.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "choosing.json")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for name in SETS:
        classes = datasets.load(name, options.data_dir).train.labels
        assert classes is not None
        finished = [RunFolder(path.parent) for path in sorted(options.runs.glob(f"{name}-*/result.json"))]
        finished = [run for run in finished if run.description().config.seed < APART]  # the others are later starts
        full = [run for run in finished if run.path.name.startswith(f"{name}-full-")]
        for title, some in (("all variants", finished), ("full method", full)):
            if len(some) > 2:
                found[f"{name}, {title}"] = judged(some, classes)
                print(name, title, json.dumps(found[f"{name}, {title}"]), flush=True)
    command = "python benchmarks/choosing.py RUNS"
    write_json(options.out, {"command": command, "versions": versions(), "sets": found})


if __name__ == "__main__":
    main()
