"""The schedule as data: stages unrolled into numbered steps.

How many steps were done is a run's whole position: to resume is to skip them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from ..config import Config, Stage, StageKind
from . import sampler as order
from .readahead import announce


@dataclass(frozen=True)
class Step:
    """One piece of work: an update on one batch, a merge, or one pass of consolidation."""

    number: int
    """Steps of this start before this one: what is drawn in a step depends on it."""
    stage: str
    kind: StageKind
    epoch: int
    """Epochs of search begun before this one, over all stages."""
    batch: int
    batches: int
    first: bool
    """Whether a round of consecutive steps of this kind begins here (a fresh optimizer is due)."""
    in_stage: int
    """Steps of the stage before this one."""
    progress: float
    """How much of the stage lies behind this step, from 0 to 1."""
    start: int = 0
    """Starts of the run before this one."""


def batches_per_epoch(images: int, batch: int) -> int:
    """Near-equal batches of at most ``batch`` images.

    >>> batches_per_epoch(60_000, 3000), batches_per_epoch(7291, 3650), batches_per_epoch(7301, 3650)
    (20, 2, 3)
    """
    return -(-images // batch)


def batch_sizes(config: Config) -> Mapping[str, int]:
    """Images per step of each search."""
    return {"evolution": config.evolution.batch, "relaxed": config.relaxed.batch, "refine": config.relaxed.batch}


def steps(config: Config, images: int) -> Iterator[Step]:
    """Every step of a run, in order: the whole schedule, once for each start."""
    for start in range(config.starts):
        number = epoch = 0
        for stage in config.schedule:
            unrolled = _stage_steps(stage, config, images, epoch)
            for in_stage, (kind, batch, batches, first, progress, epochs) in enumerate(unrolled):
                yield Step(number, stage.name, kind, epoch + epochs, batch, batches, first, in_stage, progress, start)
                number += 1
            if stage.kind in batch_sizes(config):
                epoch += stage.epochs


def _stage_steps(
    stage: Stage, config: Config, images: int, epochs_before: int
) -> Iterator[tuple[StageKind, int, int, bool, float, int]]:
    if stage.kind == "merge":
        yield "merge", 0, 1, True, 0.0, 0
        return
    if stage.kind == "consolidate":
        for index in range(stage.epochs):
            yield "consolidate", index, stage.epochs, index == 0, index / stage.epochs, 0
        return
    batches = batches_per_epoch(images, batch_sizes(config)[stage.kind])
    for epoch in range(stage.epochs):
        for batch in range(batches):
            done = (epoch + batch / batches) / stage.epochs
            yield stage.kind, batch, batches, epoch == batch == 0, done, epoch
        # Algorithm 1 counts epochs from 1 over the whole run.
        if stage.every and (epochs_before + epoch + 1) % stage.every == 0:
            for index in range(stage.passes):
                yield "consolidate", index, stage.passes, index == 0, (epoch + 1) / stage.epochs, epoch


def count_steps(config: Config, images: int) -> int:
    """Number of steps of a run, as many as ``steps`` yields, without walking through them."""
    total = epochs = 0
    for stage in config.schedule:
        if stage.kind in batch_sizes(config):
            total += stage.epochs * batches_per_epoch(images, batch_sizes(config)[stage.kind])
            if stage.every:
                total += stage.passes * ((epochs + stage.epochs) // stage.every - epochs // stage.every)
            epochs += stage.epochs
        else:
            total += 1 if stage.kind == "merge" else stage.epochs
    return total * config.starts


def batch_positions(step: Step, images: int, seed: int, pixels: Tensor | None = None) -> Tensor:
    """The images of one search step: the epoch's random order cut into near-equal batches.

    Given the ``pixels`` (N, C, H, W) from which they will be read, the system is told what comes.
    """
    size, larger = divmod(images, step.batches)
    start = step.batch * size + min(step.batch, larger)
    stop = start + size + (step.batch < larger)
    if pixels is not None and (coming := order.stretches(images, start, stop, seed, step.epoch)):
        announce(pixels, coming)
    return order.epoch_indices(images, start, stop, seed, step.epoch)
