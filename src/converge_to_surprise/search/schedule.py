"""The schedule: stages unrolled into numbered steps.

The number of completed steps is the whole position of an initialization: to resume is to skip them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..config import Config, Stage, StageKind
from ..config.stage import EVOLVING
from . import sampler
from .sampler import announce


@dataclass(frozen=True)
class Step:
    """One unit of work: an update on one batch, a merge, or one pass of consolidation."""

    number: int
    """Steps before this one; the random numbers of a step depend on it."""
    stage: str
    kind: StageKind
    epoch: int
    """Epochs of search begun before this one, over all stages."""
    batch: int
    batches: int
    first: bool
    """Whether a sequence of steps of this kind begins here, with a new optimizer."""
    in_stage: int
    """Steps of the stage before this one."""
    progress: float
    """Fraction of the stage before this step, from 0 to 1."""
    graph_ahead: bool
    """Whether this stage or a later one clusters the neighbor graph; optional ones do not count."""
    optional: bool
    """Whether the step is skipped once the number of clusters that hold has stopped growing."""


def batches_per_epoch(images: int, batch_size: int) -> int:
    """Number of nearly equal batches of at most ``batch_size`` images.

    >>> batches_per_epoch(60_000, 3000), batches_per_epoch(7291, 3650), batches_per_epoch(7301, 3650)
    (20, 2, 3)
    """
    return -(-images // batch_size)


def batch_sizes(config: Config) -> Mapping[str, int]:
    """Images per step of each kind of search."""
    relaxed = config.relaxed.batch_size
    evolving = dict.fromkeys(EVOLVING, config.evolution.batch_size)
    return {**evolving, "graph": relaxed, "relaxed": relaxed, "refine": relaxed}


def steps(config: Config, images: int) -> Iterator[Step]:
    """Every step of one initialization, in order."""
    number = epoch = 0
    for index, stage in enumerate(config.schedule):
        unrolled = _stage_steps(stage, config, images, epoch)
        ahead = any(later.kind == "graph" and not later.optional for later in config.schedule[index:])
        for in_stage, (kind, batch, batches, first, progress, epochs) in enumerate(unrolled):
            place = epoch + epochs, batch, batches, first, in_stage, progress
            yield Step(number, stage.name, kind, *place, graph_ahead=ahead, optional=stage.optional)
            number += 1
        if stage.kind in batch_sizes(config):
            epoch += math.ceil(stage.epochs)


def _stage_steps(
    stage: Stage, config: Config, images: int, epochs_before: int
) -> Iterator[tuple[StageKind, int, int, bool, float, int]]:
    if stage.kind == "merge":
        yield "merge", 0, 1, True, 0.0, 0
        return
    if stage.kind == "consolidate":
        passes = int(stage.epochs)
        for index in range(passes):
            yield "consolidate", index, passes, index == 0, index / passes, 0
        return
    batches = batches_per_epoch(images, batch_sizes(config)[stage.kind])
    count = search_steps(stage, batches)
    for index in range(count):
        epoch, batch = divmod(index, batches)
        yield stage.kind, batch, batches, index == 0, index / count, epoch
        # Algorithm 1 counts epochs from 1 over the whole run.
        if stage.every and batch == batches - 1 and (epochs_before + epoch + 1) % stage.every == 0:
            for index in range(stage.passes):
                yield "consolidate", index, stage.passes, index == 0, (epoch + 1) / stage.epochs, epoch


def search_steps(stage: Stage, batches: int) -> int:
    """Steps of a stage of search if an epoch has ``batches`` of them.

    >>> [search_steps(Stage("search", "relaxed", epochs), 240) for epochs in (2, 0.625, 0.001)]
    [480, 150, 1]
    """
    return max(1, round(stage.epochs * batches))


def count_steps(config: Config, images: int) -> int:
    """Number of steps of one initialization, as many as ``steps`` yields, in closed form."""
    total = epochs = 0
    for stage in config.schedule:
        if stage.kind in batch_sizes(config):
            total += search_steps(stage, batches_per_epoch(images, batch_sizes(config)[stage.kind]))
            after = epochs + math.ceil(stage.epochs)
            if stage.every:
                total += stage.passes * (after // stage.every - epochs // stage.every)
            epochs = after
        else:
            total += 1 if stage.kind == "merge" else int(stage.epochs)
    return total


def batch_positions(step: Step, images: Tensor, seed: int) -> Tensor:
    """Positions of the images (N, C, H, W) of one search step: the epoch's random order in nearly equal batches.

    Where images are read from disk, those of the coming steps are announced to the operating system.
    """
    size, larger = divmod(len(images), step.batches)
    start = step.batch * size + min(step.batch, larger)
    stop = start + size + (step.batch < larger)
    if blocks := sampler.upcoming_blocks(len(images), start, stop, seed, step.epoch):
        announce(images, blocks)
    return sampler.epoch_indices(len(images), start, stop, seed, step.epoch)


def check_images(images: Tensor, config: Config) -> None:
    """Refuse images and settings that do not fit each other."""
    if config.views.stored:
        if images.dtype != torch.float16 or images.ndim != 4 or images.shape[3] != config.network.inputs:
            raise ValueError(
                f"stored features are {images.dtype} of shape {tuple(images.shape)}; "
                f"they must be float16 (N, sides, copies, {config.network.inputs})"
            )
    elif images.dtype != torch.uint8 or images.ndim != 4:
        raise ValueError(f"images are {images.dtype} of shape {tuple(images.shape)}; they must be uint8 (N, C, H, W)")
    kinds = {stage.kind for stage in config.schedule}
    for kind, batch_size in batch_sizes(config).items():
        if kind in kinds and batch_size > len(images):
            section = "evolution" if kind in EVOLVING else "relaxed"
            raise ValueError(
                f"{section}.batch_size is {batch_size} but there are only {len(images)} images; "
                f"set it to {len(images)} or less"
            )
    scale, taken = config.views.upsample, config.network.pixels
    given = config.views.channels(images.shape[1]) * images.shape[2:].numel() * scale**2
    if taken not in (0, given):
        raise ValueError(
            f"network.pixels is {taken} but a view has {given} values; set it to {given}, or to 0 for ResNet-9"
        )
    side = min(images.shape[2:]) * scale
    if config.augmentation.crop >= side and not config.views.stored:
        raise ValueError(
            f"augmentation.crop is {config.augmentation.crop} but the views are only {side} pixels wide or high"
        )
