"""The paper's search from its first update to its last on real images, at the size of a small machine.

    python benchmarks/evolution_run.py [--data digits|usps] [--search evolution|guided|relaxed] [--variant full|...]
        [--seeds 1 2 3] [--initializations 0] [--threads 1] [--folder runs/evolution]

The algorithm is the paper's: mirrored pairs, centered ranks, the surprise of hard labels, the ramp, and training on the
surprising clusters with median balance. Network, population, step sizes and schedule are those of the fast preset
(``cts fit digits --search evolution``), found on seed 0 of the digits. ``guided`` is guided evolution as the preset has
it, ``relaxed`` gradient ascent of one head on the same network.

A row every 25 steps is appended to benchmarks/results/evolution.csv: S, agreement, surprising and active clusters of
all images without augmentation, whatever the step was, the mutual information of both views' labels, and the clusters
of view i compared with the classes. The last row of a run is its result. ``--initializations 0 1 2``: those of
``cts fit --n-init 3``, which selects the one with the largest mutual information. With ``--folder`` the state is saved
beside each row, and the same command continues from there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import rows

from converge_to_surprise.config import Augmentation, Config, Relaxed, Stage, presets
from converge_to_surprise.config.settings import SearchName
from converge_to_surprise.core.measures import measure
from converge_to_surprise.core.metrics import scores
from converge_to_surprise.core.rng import init_seed
from converge_to_surprise.core.surprise import joint_counts, mutual_information
from converge_to_surprise.data import datasets
from converge_to_surprise.model.inference import label_views
from converge_to_surprise.runs import checkpoint
from converge_to_surprise.search.record import Record
from converge_to_surprise.search.trainer import Trainer

EVERY = 25
"""Steps between two rows."""
VARIANTS = ("full", "without augmentation", "without consolidation")
SEARCHES: tuple[SearchName, ...] = ("evolution", "guided", "relaxed")


def settings(data: str, search: SearchName, variant: str) -> Config:
    """The fast preset, or what a variant leaves of it."""
    evolved: SearchName = "guided" if search == "guided" else "evolution"
    config = presets.resolve("fast", evolved, data, *presets.KNOWN_SIZES[data])
    if search == "relaxed":
        one = Relaxed(heads=1, calibrate=False, neighbor_prob=0.0, diversity=0.0, temperature=0.1)
        config = replace(config, schedule=(Stage("explore", "relaxed", 40),), relaxed=one)
    if variant == "without augmentation":
        return replace(config, augmentation=Augmentation())
    if variant == "without consolidation":
        evolving = [stage for stage in config.schedule if stage.kind != "consolidate"]
        return replace(config, schedule=tuple(replace(stage, passes=0, every=0) for stage in evolving))
    return config


def figures(trainer: Trainer, record: Record, classes: Any) -> dict[str, Any]:
    """The clusters as they are after a step."""
    network = trainer.network.single()
    labels = label_views(network, trainer.images, trainer.config.views)
    found = measure(*labels, network.n_outputs, trainer.config.consolidation.tau)._asdict()
    found["information"] = float(mutual_information(joint_counts(*labels, network.n_outputs)))
    names = ("step", "epoch", "stage", "kind", "views")
    measures = ("surprise", "agreement", "surprising", "active", "information")
    return {
        **{name: getattr(record, name) for name in names},
        **{name: found[name] for name in measures},
        "seconds": record.seconds,
        "clusters": len(labels[0].bincount().nonzero()),
        **{name: 100 * value for name, value in scores(labels[0].numpy(), classes).items()},
    }


def run(data: str, config: Config, folder: Path | None) -> Iterator[dict[str, Any]]:
    """The rows of one run; of a run that was interrupted, those after its last checkpoint."""
    train = datasets.load(data).train
    trainer = Trainer(train.images, config)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        saved, _ = checkpoint.load_newest(folder)
        if saved is not None:
            trainer.restore(saved)
    for record in trainer.run():
        if trainer.step % EVERY == 0 or trainer.step == trainer.total:
            yield figures(trainer, record, train.labels)
            if folder is not None:
                checkpoint.save(folder, trainer.snapshot())


def main() -> None:
    parser = rows.parser(__doc__, "evolution.csv", threads=1)
    parser.add_argument("--data", choices=("digits", "usps"), default="digits")
    parser.add_argument("--search", choices=SEARCHES, default="evolution")
    parser.add_argument("--variant", choices=VARIANTS, default="full")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--initializations", type=int, nargs="+", default=[0])
    parser.add_argument("--folder", type=Path, help="where to save the state of each run")
    options = parser.parse_args()
    config = replace(settings(options.data, options.search, options.variant), threads=options.threads)
    for seed, number in itertools.product(options.seeds, options.initializations):
        about = {"data": options.data, "search": options.search, "variant": options.variant, "seed": seed}
        about["initialization"] = number
        place = options.folder and options.folder / "-".join(map(str, about.values())).replace(" ", "-")
        about["network"] = f"{config.network.hidden} units, centered"
        for row in run(options.data, replace(config, seed=init_seed(seed, number)), place):
            shown = "  ".join(f"{name} {row[name]:.3g}" for name in ("surprise", "agreement", "acc", "nmi"))
            where = f"seed {seed}, initialization {number}, step {row['step']} {row['stage']}"
            print(f"{where}: {shown}  clusters {row['clusters']}", flush=True)
            rows.append_rows(options.save, [about | row])


if __name__ == "__main__":
    main()
