"""Clusters against classes, over seeds: every run is one ``cts fit`` and one ``cts evaluate``.

    python benchmarks/accuracy.py digits usps [--seeds 0 1 2 3 4] [--jobs 2] [--data-dir DIR] [--table]

Each run computes with one thread; ``--jobs`` of them go on at the same time. Results go to
benchmarks/results/accuracy-NAME.json with the commands, and are kept: seeds that are there are not run again.
``--table`` only prints the table of what is there, as Markdown.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from converge_to_surprise import __version__

RESULTS = Path(__file__).parent / "results"


def run(name: str, seed: int, data_dir: list[str]) -> dict[str, Any]:
    """Fit and evaluate once."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "run")
        program = [sys.executable, "-m", "converge_to_surprise"]
        fit = ["fit", name, "--out", out, "--seed", str(seed), "--threads", "1", *data_dir]
        subprocess.run([*program, *fit], check=True, stdout=subprocess.DEVNULL)
        evaluate = [*program, "evaluate", out, name, "--json", *data_dir]
        scores = json.loads(subprocess.run(evaluate, check=True, stdout=subprocess.PIPE).stdout)
        seconds = json.loads((Path(out) / "result.json").read_text(encoding="utf-8"))["seconds"]
    command = f"cts fit {name} --out RUN --seed {seed} --threads 1"
    versions = {"converge-to-surprise": __version__, "torch": torch.__version__, "python": platform.python_version()}
    return {"seed": seed, **scores, "seconds": round(seconds, 1), "command": command, "versions": versions}


def results_of(name: str) -> list[dict[str, Any]]:
    path = RESULTS / f"accuracy-{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


def table() -> str:
    """All results as Markdown: mean ± standard deviation over seeds."""
    lines = [
        "| data | ACC | NMI | ARI | clusters | seeds | seconds a run, one thread |",
        "|---|---|---|---|---|---|---|",
    ]
    for path in sorted(RESULTS.glob("accuracy-*.json")):
        name = path.stem.removeprefix("accuracy-")
        runs = results_of(name)

        def spread(key: str, scale: float = 100, runs: list[dict[str, Any]] = runs) -> str:
            values = [scale * row[key] for row in runs]
            return f"{statistics.mean(values):.1f} ± {statistics.pstdev(values):.1f}"

        seeds = ", ".join(str(row["seed"]) for row in runs)
        seconds = f"{statistics.median(row['seconds'] for row in runs):.0f}"
        cells = [spread("acc"), spread("nmi"), spread("ari"), spread("n_clusters", 1), seeds, seconds]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["digits"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--data-dir")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if not options.table:
        data_dir = ["--data-dir", options.data_dir] if options.data_dir else []
        for name in options.names:
            done = results_of(name)
            missing = [seed for seed in options.seeds if seed not in {row["seed"] for row in done}]
            with ThreadPoolExecutor(options.jobs) as pool:
                for row in pool.map(lambda seed, name=name: run(name, seed, data_dir), missing):
                    done = sorted([*done, row], key=lambda row: row["seed"])
                    path = RESULTS / f"accuracy-{name}.json"
                    path.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
                    print(json.dumps(row), flush=True)
    print(table())


if __name__ == "__main__":
    main()
