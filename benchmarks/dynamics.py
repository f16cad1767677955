"""The paper's dynamics at small scale: evolution over-produces clusters, consolidation brings the count down again.

    python benchmarks/dynamics.py [--seeds 0 1 2] [--explore 12] [--strong 12] [--threads 2]

Images of bars that lie or stand, so two classes. The evolution strategy runs alone for ``--explore`` epochs and then
for ``--strong`` epochs twice over: alone as before, and with four passes of consolidation every four epochs. Printed
for the end of each, as the mean over the last four updates: surprise, agreement of the two augmented views, surprising
clusters (D_k >= tau) and active clusters. Writes the figures to benchmarks/results/dynamics.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import statistics
import sys
from pathlib import Path
from typing import Any

import torch

from converge_to_surprise import __version__
from converge_to_surprise.config import Augmentation, Config, Evolution, Network, Stage, Views
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.search.record import Record
from converge_to_surprise.search.trainer import Trainer, available_threads

RESULTS = Path(__file__).parent / "results" / "dynamics.json"


def settings(seed: int, threads: int, *stages: Stage) -> Config:
    """A small network, and larger steps than the paper's because there are few of them."""
    return Config(
        seed=seed,
        threads=threads,
        schedule=stages,
        views=Views(fill_masked=True),
        augmentation=Augmentation(rotation=10, crop=1, brightness=0.2, contrast=0.2),
        network=Network(width=4),
        evolution=Evolution(batch_size=300, learning_rate=0.1, sigma=0.03, ramp_epochs=2, ramp_start=0.5),
    )


def summary(records: list[Record], stage: str) -> dict[str, float]:
    """Means over the last four updates of a stage."""
    last = [record for record in records if record.stage == stage and record.kind == "evolution"][-4:]
    names = ("surprise", "orderliness", "agreement", "surprising", "active")
    return {name: round(statistics.mean(getattr(record, name) for record in last), 3) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--explore", type=int, default=12, help="epochs of pure evolution")
    parser.add_argument("--strong", type=int, default=12, help="epochs with, and for comparison without, consolidation")
    parser.add_argument("--threads", type=int, default=available_threads())
    options = parser.parse_args()
    images, _ = striped_images(600, side=12)
    explore = Stage("explore", "evolution", options.explore)
    runs = []
    for seed in options.seeds:
        row: dict[str, Any] = {"seed": seed}
        for name, passes, every in (("alone", 0, 0), ("consolidated", 4, 4)):
            then = Stage(name, "evolution", options.strong, passes, every)
            records = list(Trainer(images, settings(seed, options.threads, explore, then)).run())
            row |= {"explore": summary(records, "explore"), name: summary(records, name)}
        runs.append(row)
        for stage in ("explore", "alone", "consolidated"):
            figures = "  ".join(f"{key} {value}" for key, value in row[stage].items())
            print(f"seed {seed}  {stage:<12}  {figures}", flush=True)
        result = {
            "command": "python " + shlex.join(sys.argv),
            "versions": {"torch": torch.__version__, "python": platform.python_version(), "program": __version__},
            "runs": runs,
        }
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
