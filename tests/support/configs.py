"""Small configurations and sequences of steps that tests of several rooms share."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from converge_to_surprise.config import Augmentation, Config, Evolution, Network, Relaxed, Stage, Views
from converge_to_surprise.model.inference import view_features
from converge_to_surprise.model.network import ClusterNetwork
from converge_to_surprise.search.evolution import Score
from converge_to_surprise.search.record import Record
from converge_to_surprise.search.snapshot import Snapshot
from converge_to_surprise.search.trainer import Trainer

CLIMBING = Config(
    threads=1,
    schedule=(Stage("explore", "evolution", 40),),
    max_clusters=16,
    network=Network(width=4, min_active_outputs=4),
    evolution=Evolution(population=16, batch_size=100, sigma=0.05, learning_rate=0.2, ramp_epochs=2),
    augmentation=Augmentation(rotation=10, crop=1, brightness=0.2, contrast=0.2),
)
"""Evolution that finds the classes of striped images within seconds."""


def few_initializations(small: Config, n_init: int) -> Config:
    """Short relaxed searches with a merge that end in different clusters."""
    return replace(
        small,
        n_init=n_init,
        n_clusters=6,
        schedule=(Stage("search", "relaxed", 4), Stage("merge", "merge", 1), Stage("refine", "refine", 1)),
        network=replace(small.network, width=4),
        relaxed=Relaxed(heads=2, batch_size=10, temperature=0.1, diversity_floor=(4.0, 4.0)),
    )


def stored(snapshot: Snapshot) -> Snapshot:
    """A snapshot as it is read from a file."""
    return Snapshot.from_bytes(snapshot.to_bytes())


def trained(images: Tensor, config: Config, score: Score | None = None) -> Trainer:
    """A trainer after its last step."""
    trainer = Trainer(images, config, score)
    for _ in trainer.run():
        pass
    return trainer


def timeless(record: Record) -> Record:
    """A record without its duration, which differs from run to run."""
    return replace(record, seconds=0.0)


def centered(network: ClusterNetwork, images: Tensor) -> ClusterNetwork:
    """The network with a bias at which many outputs win some view: a random one gives all images the same label."""
    features = view_features(network, images, Views()).mean((0, 1))
    with torch.no_grad():
        network.head.bias.copy_(-network.head.weight @ features)
    return network
