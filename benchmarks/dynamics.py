"""The paper's dynamics at small scale: evolution over-produces clusters, consolidation brings the count down again.

    python benchmarks/dynamics.py [--seeds 0 1 2] [--explore 12] [--strong 12] [--threads 2]

Images of bars that lie or stand, so two classes. The evolution strategy runs alone for ``--explore`` epochs and then
for ``--strong`` epochs twice over: alone as before, and with four passes of consolidation every four epochs. Printed
for the end of each, as the mean over the last four updates: surprise, agreement of the two augmented views, surprising
clusters (D_k >= tau) and active clusters. Appends the figures to benchmarks/results/dynamics.csv.
"""

from __future__ import annotations

import statistics

import rows

from converge_to_surprise.config import Augmentation, Config, Evolution, Network, Stage, Views
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.search.record import Record
from converge_to_surprise.search.threads import available_threads
from converge_to_surprise.search.trainer import Trainer


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
    parser = rows.parser(__doc__, "dynamics.csv", explore=12, strong=12, seeds=[0, 1, 2], threads=available_threads())
    options = parser.parse_args()
    images, _ = striped_images(600, side=12)
    explore = Stage("explore", "evolution", options.explore)
    for seed in options.seeds:
        found: dict[str, dict[str, float]] = {}
        for name, passes, every in (("alone", 0, 0), ("consolidated", 4, 4)):
            then = Stage(name, "evolution", options.strong, passes, every)
            records = list(Trainer(images, settings(seed, options.threads, explore, then)).run())
            found |= {"explore": summary(records, "explore"), name: summary(records, name)}
        for stage, figures in found.items():
            shown = "  ".join(f"{key} {value}" for key, value in figures.items())
            print(f"seed {seed}  {stage:<12}  {shown}", flush=True)
        about = {"seed": seed, "threads": options.threads}
        stages = [{**about, "stage": stage, **figures} for stage, figures in found.items()]
        rows.append_rows(options.save, stages)


if __name__ == "__main__":
    main()
