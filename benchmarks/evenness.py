"""Would the run with the most even clusters be the one to take? Over the runs of the README's first table.

    python benchmarks/evenness.py [--table benchmarks/results/table1.json] [--out benchmarks/results/evenness.json]

Evenness is exp H of the clusters' sizes over their number, 1 if all are of one size. For each data set: its rank
correlation (Spearman) with ACC, NMI and ARI, and what the most even of n runs reaches on average over all choices of n
among them. Classes serve for this evaluation only; sizes and scores are those of the test split.
"""

from __future__ import annotations

import argparse
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import entropy, spearmanr

from converge_to_surprise.run.files import write_json
from converge_to_surprise.run.session import versions

RESULTS = Path(__file__).parent / "results"
MEASURES = ("acc", "nmi", "ari")


def evenness(row: dict[str, Any]) -> float:
    """1 if all clusters are of one size, less the more they differ."""
    sizes = [cluster["size"] for cluster in row["clusters"]]
    return float(np.exp(entropy(sizes))) / len(sizes)


def most_even(rows: list[dict[str, Any]], count: int) -> dict[str, float]:
    """Mean scores of the most even of ``count`` runs, over all choices."""
    chosen = [max(some, key=evenness) for some in combinations(rows, count)]
    return {name: round(100 * float(np.mean([row["metrics"][name] for row in chosen])), 2) for name in MEASURES}


def judged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    values = [evenness(row) for row in rows]
    return {
        "seeds": [row["seed"] for row in rows],
        "evenness": [round(value, 3) for value in values],
        "rank correlation": {
            name: round(float(spearmanr(values, [row["metrics"][name] for row in rows]).statistic), 2)
            for name in MEASURES
        },
        "most even of": {count: most_even(rows, count) for count in range(1, len(rows) + 1)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, default=RESULTS / "table1.json")
    parser.add_argument("--out", type=Path, default=RESULTS / "evenness.json")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(options.table.read_text(encoding="utf-8"))["runs"]
    found = {}
    for name in dict.fromkeys(row["dataset"] for row in rows):
        found[name] = judged([row for row in rows if row["dataset"] == name and row["variant"] == "full"])
        print(name, json.dumps(found[name]), flush=True)
    write_json(options.out, {"command": "python benchmarks/evenness.py", "versions": versions(), "sets": found})


if __name__ == "__main__":
    main()
