"""Would the run with the most even clusters be the one to take? Over the runs of the README's first table.

    python benchmarks/evenness.py [--table benchmarks/results/table1.json] [--out benchmarks/results/evenness.json]

Evenness is exp H of the clusters' sizes over their number, 1 if all are of one size. For each data set: its rank
correlation (Spearman) with ACC, NMI and ARI, and what the most even of n runs reaches on average over all choices of n
among them. Classes serve for this evaluation only; sizes and scores are those that the table has.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import entropy, spearmanr

from converge_to_surprise.reproduce.tables import METRICS, Row, cells
from converge_to_surprise.reproduce.variants import FULL
from converge_to_surprise.run.files import write_json
from converge_to_surprise.run.session import versions

RESULTS = Path(__file__).parent / "results"


def evenness(row: Row) -> float:
    """1 if all clusters are of one size, less the more they differ."""
    sizes = [cluster["size"] for cluster in row["clusters"]]
    return float(np.exp(entropy(sizes))) / len(sizes)


def most_even(rows: list[Row], count: int) -> dict[str, float]:
    """Mean scores of the most even of ``count`` runs, over all choices."""
    chosen = [max(some, key=evenness) for some in combinations(rows, count)]
    return {name: round(100 * float(np.mean([row["metrics"][name] for row in chosen])), 2) for name in METRICS}


def judged(rows: list[Row]) -> dict[str, Any]:
    """How evenness orders the runs, and what choosing by it would give."""
    values = [evenness(row) for row in rows]
    return {
        "seeds": [row["seed"] for row in rows],
        "evenness": [round(value, 3) for value in values],
        "rank correlation": {
            name: round(float(spearmanr(values, [row["metrics"][name] for row in rows]).statistic), 2)
            for name in METRICS
        },
        "most even of": {count: most_even(rows, count) for count in range(1, len(rows) + 1)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, default=RESULTS / "table1.json")
    parser.add_argument("--out", type=Path, default=RESULTS / "evenness.json")
    options = parser.parse_args()
    rows: list[Row] = json.loads(options.table.read_text(encoding="utf-8"))["runs"]
    found = {name: judged(cell.rows) for (name, variant), cell in cells(rows).items() if variant == FULL}
    for name, figures in found.items():
        print(name, json.dumps(figures))
    command = shlex.join(["python", "benchmarks/evenness.py", *sys.argv[1:]])
    write_json(options.out, {"command": command, "versions": versions(), "sets": found})


if __name__ == "__main__":
    main()
