"""The numbers of a run: ``paper`` to the letter, ``fast`` for a laptop.

Only the augmentation depends on the data set, as in the paper's table 4, and whether small views are enlarged. For
images of the user's own it follows from their size and color, and so does what becomes of their background, which is black
in the named sets.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from . import Augmentation, Config, Consolidation, Evolution, Network, SearchName, Stage, Views

PresetName = Literal["fast", "paper"]

AUGMENTATION = {
    "mnist": Augmentation(rotation=20.0, crop=4, brightness=0.3, contrast=0.3),
    "fashion-mnist": Augmentation(rotation=20.0, crop=4, brightness=0.3, contrast=0.3, flip_prob=0.5),
    "usps": Augmentation(
        rotation=10.0, rotation_prob=0.5, crop=2, brightness=0.15, contrast=0.15, zoom_out=(2, 6), zoom_out_prob=1.0
    ),
    # Not in the paper: USPS's at half the size, with the rotation of a cleaner hand.
    "digits": Augmentation(rotation=15.0, crop=2, brightness=0.2, contrast=0.2, zoom_out=(1, 3), zoom_out_prob=1.0),
}
UPSAMPLE = {"usps": 2, "digits": 2, "mnist": 1, "fashion-mnist": 1}
SMALL = 16
"""Views of pictures with a side up to this long are enlarged, as the paper does with those of USPS."""

TWO_STAGES = (Stage("explore", "evolution", 2000), Stage("strong", "evolution", 1000, passes=4, every=25))
THREE_STAGES = (
    Stage("explore", "evolution", 4000),
    Stage("weak", "evolution", 4000, passes=2, every=500),
    Stage("strong", "evolution", 1000, passes=4, every=25),
)
FEW_IMAGES = 10_000
"""Below this the paper's longer schedule is used: an epoch holds fewer updates."""

RELAXED_STEPS = 600
"""Gradient steps of the fast search: at least so many ..."""
RELAXED_EPOCHS = 10
"""... and at least so many times through all images. Refining takes half as long."""
STARTS = 2
"""Of two runs the one with the better balanced clusters is on the average the better one, and never worse by much."""
WARM = 0.1
"""Temperature of the fast search's refining, four times that of the search itself."""


def auto_augmentation(channels: int, height: int, width: int) -> Augmentation:
    """For views that no table lists: rotation and jitter as for MNIST, the crop in proportion, no mirror images."""
    return Augmentation(
        rotation=15.0,
        crop=round(min(height, width) / 7),
        brightness=0.3,
        contrast=0.3,
        saturation=0.3 if channels == 3 else 0.0,
    )


def resolve(
    preset: PresetName,
    search: SearchName | None,
    dataset: str,
    images: int,
    shape: tuple[int, int, int],
    backbone: bool = False,
) -> Config:
    """The configuration of a preset for ``images`` images of ``shape`` (C, H, W) from a data set of this name.

    ``search`` overrides the preset's own: evolution for ``paper``, relaxed for ``fast``. With a ``backbone`` of the
    user's, views keep the values that it may have been trained with.
    """
    channels, height, width = shape
    scale = UPSAMPLE.get(dataset) or (2 if max(height, width) <= SMALL else 1)
    views = Views(upsample=scale)
    augmentation = AUGMENTATION.get(dataset) or auto_augmentation(channels, height * scale, width * scale)
    search = search or ("evolution" if preset == "paper" else "relaxed")
    config = Config(views=views, augmentation=augmentation)
    if preset == "fast":
        # Pictures of one's own are seldom black at their edges. Black beyond them would show where the edge was and so
        # where a thing lies in its picture, which crops are to make meaningless: clusters would be split by place.
        # Gray ones are freed of their background; in color it says more than that, and it goes on beyond the edge instead.
        own = dataset not in AUGMENTATION
        removed = own and channels == 1 and not backbone
        beyond = own and not removed
        config = replace(
            config,
            views=replace(views, fill=True, background="removed" if removed else "kept"),
            augmentation=replace(augmentation, sampling="bilinear", outside="background" if beyond else "image"),
            network=Network(folded=True, boundary="background" if beyond else "black"),
            consolidation=Consolidation(logit_scale=10.0),
        )
    if search == "relaxed":
        return replace(_relaxed(config, images), starts=STARTS if preset == "fast" else 1)
    return _paper_evolution(config, dataset, images) if preset == "paper" else _small_evolution(config, images)


def _paper_evolution(config: Config, dataset: str, images: int) -> Config:
    batch = 3650 if dataset == "usps" else 3000
    schedule = THREE_STAGES if images < FEW_IMAGES else TWO_STAGES
    return replace(config, schedule=schedule, evolution=Evolution(batch=min(batch, images)))


def _small_evolution(config: Config, images: int) -> Config:
    """The paper's search on a laptop's budget: fewer epochs, larger steps."""
    schedule = (Stage("explore", "evolution", 150), Stage("strong", "evolution", 50, passes=2, every=10))
    evolution = Evolution(batch=min(1000, images), learning_rate=0.05, sigma=0.05, ramp_epochs=20)
    return replace(config, schedule=schedule, evolution=evolution)


def _relaxed(config: Config, images: int) -> Config:
    batch = min(config.relaxed.batch, images)
    steps_per_epoch = math.ceil(images / batch)
    epochs = max(RELAXED_EPOCHS, round(RELAXED_STEPS / steps_per_epoch))
    schedule = (
        Stage("search", "relaxed", epochs),
        Stage("merge", "merge", 1),
        Stage("refine", "refine", -(-epochs // 2)),
    )
    return replace(config, schedule=schedule, relaxed=replace(config.relaxed, batch=batch, refine_temperature=WARM))
