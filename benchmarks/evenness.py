"""Is the run with the best balanced clusters the one to take? Over all starts of the README's first table.

    python benchmarks/balance.py [--table benchmarks/results/table1.json] [--out benchmarks/results/balance.json]

For each data set, over all starts and over the first and the second ones alone: the rank correlation (Spearman) of the
balance of the training images' clusters with ACC, NMI and ARI, and what the best balanced of n starts reaches on average
over all choices of n among them. Classes serve for this evaluation only.
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
from converge_to_surprise.reproduce.tables import METRICS, Row, cells
from converge_to_surprise.reproduce.taking import most_even
from converge_to_surprise.reproduce.variants import FULL
from scipy.stats import spearmanr

from converge_to_surprise.config.storage import write_json
from converge_to_surprise.runs.session import versions

RESULTS = Path(__file__).parent / "results"
MOST = 3
"""Starts to choose among; a data set with fewer seeds is left out."""


def mean_of_choices(starts: list[Row], count: int) -> dict[str, float]:
    """Mean scores of the best balanced of ``count`` starts, over all choices."""
    chosen = [most_even(some) for some in combinations(starts, count)]
    return {name: round(100 * float(np.mean([row["metrics"][name] for row in chosen])), 2) for name in METRICS}


def judged(starts: list[Row]) -> dict[str, Any]:
    """How balance orders the starts, and what choosing by it would give."""
    values = [row["balance"] for row in starts]
    return {
        "seeds": [row["seed"] for row in starts],
        "balance": [round(value, 4) for value in values],
        "acc": [round(100 * row["metrics"]["acc"], 2) for row in starts],
        "rank correlation": {
            name: round(float(spearmanr(values, [row["metrics"][name] for row in starts]).statistic), 2)
            for name in METRICS
        },
        "best balanced of": {count: mean_of_choices(starts, count) for count in range(1, MOST + 1)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, default=RESULTS / "table1.json")
    parser.add_argument("--out", type=Path, default=RESULTS / "balance.json")
    options = parser.parse_args()
    rows: list[Row] = json.loads(options.table.read_text(encoding="utf-8"))["runs"]
    found: dict[str, Any] = {}
    for (name, variant), cell in cells(rows).items():
        if variant == FULL and len(cell.rows) >= MOST:
            firsts, seconds = ([row["starts"][start] for row in cell.rows] for start in (0, 1))
            found[name] = {
                "first starts": judged(firsts),
                "second starts": judged(seconds),
                "all starts": judged([*firsts, *seconds]),
            }
    for name, parts in found.items():
        for which, figures in parts.items():
            print(name, which, json.dumps(figures))
    command = shlex.join(["python", "benchmarks/balance.py", *sys.argv[1:]])
    write_json(options.out, {"command": command, "versions": versions(), "sets": found})


if __name__ == "__main__":
    main()
