"""The paper's search from its first update to its last on real images, at the size of a small machine.

    python benchmarks/evolution_run.py [--search evolution|guided|relaxed] [--variant full|...] [--seeds 1 2 3]
        [--explore 150] [--strong 100] [--threads 1] [--folder runs/evolution]

The algorithm is the paper's: mirrored pairs, centered ranks, the surprise of hard labels, the ramp, and training on the
surprising clusters with median balance. The network is small, one hidden layer with batch normalization on the 8x8
pixels of the digits, because the cost of the search grows with the number of parameters; population and step sizes were
chosen on seed 0. ``guided`` runs the same schedule with guided evolution, ``relaxed`` as many steps of the gradient.

A row every 25 steps is appended to benchmarks/results/evolution.csv: S, surprising and active clusters of the training
batch, and the clusters of view i without augmentation compared with the classes. With ``--folder`` the state is saved
beside each row, and the same command continues from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import rows
import torch
from torch import nn

from converge_to_surprise.config import (
    Augmentation,
    Config,
    Consolidation,
    Evolution,
    Guided,
    Network,
    Relaxed,
    Stage,
    StageKind,
    Views,
)
from converge_to_surprise.core import rng
from converge_to_surprise.core.metrics import scores
from converge_to_surprise.data import datasets
from converge_to_surprise.model.backbone import Backbone
from converge_to_surprise.model.inference import label_views
from converge_to_surprise.runs import checkpoint
from converge_to_surprise.search.record import Record
from converge_to_surprise.search.trainer import Trainer

EVERY = 25
"""Steps between two rows."""
HIDDEN = 64
VARIANTS = ("full", "without augmentation", "without consolidation")
SEARCHES: tuple[StageKind, ...] = ("evolution", "guided", "relaxed")


def settings(search: StageKind, variant: str, explore: int, strong: int) -> Config:
    """Step sizes and population were found on seed 0."""
    passes, every = (0, 0) if variant == "without consolidation" or search == "relaxed" else (4, 10)
    then = Stage("strong", search, strong, passes, every)
    augmentation = Augmentation(rotation=10, crop=1, brightness=0.2, contrast=0.2, sampling="bilinear", fill="image")
    small = search == "guided"
    return Config(
        schedule=(Stage("explore", search, explore), *([] if search == "relaxed" else [then])),
        views=Views(fill_masked=True),
        augmentation=Augmentation() if variant == "without augmentation" else augmentation,
        network=Network(width=8),
        evolution=Evolution(
            population=32 if small else 64,
            batch_size=450 if small else 900,
            sigma=0.05,
            learning_rate=0.1 if small else 0.2,
            ramp_epochs=1 if small else 20,
        ),
        guided=Guided(),
        relaxed=Relaxed(heads=1, batch_size=250, calibrate=False, neighbor_prob=0.0, diversity=0.0, temperature=0.1),
        consolidation=Consolidation(logit_scale=10.0),
    )


def small_network(pixels: int, seed: int) -> nn.Module:
    """A hidden layer on the pixels of a view."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.torch_seed(seed, "hidden"))
        return nn.Sequential(nn.Flatten(), nn.Linear(pixels, HIDDEN, bias=False), nn.BatchNorm1d(HIDDEN), nn.ReLU())


def figures(trainer: Trainer, record: Record, classes: Any) -> dict[str, Any]:
    """The clusters as they are after a step."""
    labels, _ = label_views(trainer.network.single(), trainer.images, trainer.config.views)
    found = {name: 100 * value for name, value in scores(labels.numpy(), classes).items()}
    names = ("step", "epoch", "stage", "kind", "views", "surprise", "agreement", "surprising", "active", "seconds")
    return {name: getattr(record, name) for name in names} | {"clusters": len(labels.bincount().nonzero()), **found}


def run(config: Config, folder: Path | None) -> Iterator[dict[str, Any]]:
    """The rows of one run; of a run that was interrupted, those after its last checkpoint."""
    data = datasets.load("digits").train
    side = data.images.shape[2:]
    module = small_network(side.numel(), config.seed)
    trainer = Trainer(data.images, config, backbone=Backbone.probe(module, False, (1, *side)))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        saved, _ = checkpoint.load_newest(folder)
        if saved is not None:
            trainer.restore(saved)
    for record in trainer.run():
        if trainer.step % EVERY == 0 or trainer.step == trainer.total:
            yield figures(trainer, record, data.labels)
            if folder is not None:
                checkpoint.save(folder, trainer.snapshot())


def main() -> None:
    parser = rows.parser(__doc__, "evolution.csv", explore=150, strong=100, threads=1)
    parser.add_argument("--search", choices=SEARCHES, default="evolution")
    parser.add_argument("--variant", choices=VARIANTS, default="full")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--folder", type=Path, help="where to save the state of each run")
    options = parser.parse_args()
    config = replace(
        settings(options.search, options.variant, options.explore, options.strong), threads=options.threads
    )
    for seed in options.seeds:
        about = {"data": "digits", "search": options.search, "variant": options.variant, "seed": seed}
        place = options.folder and options.folder / f"{options.search}-{options.variant.replace(' ', '-')}-{seed}"
        for row in run(replace(config, seed=seed), place):
            shown = "  ".join(f"{name} {row[name]:.3g}" for name in ("surprise", "agreement", "acc", "nmi"))
            print(f"seed {seed} step {row['step']} {row['stage']}: {shown}  clusters {row['clusters']}", flush=True)
            rows.append_rows(options.save, [about | row])


if __name__ == "__main__":
    main()
