"""Presets: ``paper`` follows the paper's hyper-parameters exactly, ``fast`` is made for a laptop.

Between data sets only the augmentation differs, as in the paper's table 4, and whether small views are enlarged. For
the user's own images both follow from size and color, and so does the treatment of the background, which is black in
the named data sets.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, get_args

from .checks import check
from .settings import Augmentation, Config, Consolidation, Evolution, Guided, KindOption, Network, SearchName, Views
from .stage import EVOLVING, Stage, StageKind

PresetName = Literal["fast", "paper"]

AUGMENTATION = {
    "mnist": Augmentation(rotation=20.0, crop=4, brightness=0.3, contrast=0.3),
    "fashion-mnist": Augmentation(rotation=20.0, crop=4, brightness=0.3, contrast=0.3, flip_prob=0.5),
    "usps": Augmentation(
        rotation=10.0, rotation_prob=0.5, crop=2, brightness=0.15, contrast=0.15, zoom_out=(2, 6), zoom_out_prob=1.0
    ),
    # Not in the paper: the augmentation of USPS at half the size, with more rotation.
    "digits": Augmentation(rotation=15.0, crop=2, brightness=0.2, contrast=0.2, zoom_out=(1, 3), zoom_out_prob=1.0),
}
UPSAMPLE = {"usps": 2, "digits": 2, "mnist": 1, "fashion-mnist": 1}
KNOWN_SIZES: dict[str, tuple[int, tuple[int, int, int]]] = {
    "mnist": (60_000, (1, 28, 28)),
    "fashion-mnist": (60_000, (1, 28, 28)),
    "usps": (7_291, (1, 16, 16)),
    "digits": (1_797, (1, 8, 8)),
}
"""Number and shape (C, H, W) of the training images of the named data sets."""
SMALL = 16
"""Views of images whose longer side is at most this are enlarged, as the paper does for USPS."""

TWO_STAGES = (Stage("explore", "evolution", 2000), Stage("strong", "evolution", 1000, passes=4, every=25))
THREE_STAGES = (
    Stage("explore", "evolution", 4000),
    Stage("weak", "evolution", 4000, passes=2, every=500),
    Stage("strong", "evolution", 1000, passes=4, every=25),
)
FEW_IMAGES = 10_000
"""Below this number of images the paper's longer schedule is used, because an epoch has fewer updates."""

ROUNDS = ((150, 75), (40, 60), (40, 80))
"""Steps of each round of the relaxed search: towards clusterings of the neighbor graph, then on the surprise."""
MORE_ROUNDS = ((40, 80),) * 3
"""The same of the rounds that follow while the number of clusters that hold grows."""
RANDOM_HEADS = 4
"""Heads that start from random directions, beside eight that start from the neighbor graph."""
REFINE_STEPS = 150
"""Least number of steps of refining ..."""
REFINE_EPOCHS = 3
"""... and of its epochs: all images have a share in the boundaries."""
BATCHES = 5
"""Batches of an epoch, at least, ..."""
SMALLEST_BATCH = 75
"""... if they have so many images."""
FEW_FOR_STEPS = 120
"""Fewer images have fewer steps, in proportion, ..."""
LEAST_STEPS = 0.2
"""... but no less than this share of them."""
MANY_FOR_STEPS = 10_000
"""More images have more steps of search, in proportion to the cube root of their number."""
REFINE_TEMPERATURE = 0.1
"""Temperature of refining in the fast preset, four times that of the search."""

HIDDEN = 32
"""Units of the hidden layer on which evolution works for small images."""
PIXEL_BATCH = 900
"""Images per update there."""
PIXEL_UPDATES = (20, 50, 100, 4)
"""Updates there: of the ramp, alone, with consolidation, and between two consolidations."""
PIXEL_PASSES = 400
"""Passes of consolidation at the end there if all images were one batch; of more images there are fewer."""
PIXEL_INITIALIZATIONS = 3
"""Initializations of evolution there: each takes half a minute on the digits, and they differ by 10 points."""
GUIDED_UPDATES = (40, 40, 2)
"""Updates of guided evolution there: alone, with consolidation, and between two consolidations."""
GUIDED_INITIALIZATIONS = 5
"""Its initializations: together they see a fifth of the views of those of evolution."""

COMPONENTS = 128
"""Principal components of a backbone's features on which the search works."""
FEATURE_BATCH = 1000
"""Images per step of a search on stored features."""
FEATURE_STEPS = (200, 600)
"""Steps of the relaxed search on stored features, as in ``ROUNDS``."""
FEATURE_REFINE_STEPS = 200
"""Steps of refining on stored features."""
FEATURE_UPDATES = (60, 105, 3)
"""Updates of evolution on stored features: alone, with consolidation, and between two consolidations."""
FEATURE_SETTLE = 120_000
"""Images that consolidation alone sees at the end."""
FEATURE_TEMPERATURE = 0.15
"""Softmax temperature on stored features: a frozen backbone separates less than one that is trained."""


def canonical(source: str) -> str | None:
    """The named data set that ``source`` means, or None: ``Fashion_MNIST`` is ``fashion-mnist``."""
    name = source.lower().replace("_", "-")
    return name if name in KNOWN_SIZES else None


def auto_augmentation(channels: int, height: int, width: int) -> Augmentation:
    """Augmentation for the user's own images: rotation and jitter as for MNIST, a crop in proportion, no flips."""
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
    """The configuration of a preset for ``images`` images of ``shape`` (C, H, W) from the named data set.

    ``search`` replaces the preset's search: evolution for ``paper``, relaxed for ``fast``. With the user's own
    ``backbone`` the background is kept, because the backbone may have been trained on images that have one.
    """
    check(preset in get_args(PresetName), "preset", preset, "one of " + ", ".join(get_args(PresetName)))
    searches = get_args(SearchName)
    check(search is None or search in searches, "search", search, "one of " + ", ".join(searches))
    channels, height, width = shape
    scale = UPSAMPLE.get(dataset) or (2 if max(height, width) <= SMALL else 1)
    views = Views(upsample=scale)
    augmentation = AUGMENTATION.get(dataset) or auto_augmentation(channels, height * scale, width * scale)
    search = search or ("evolution" if preset == "paper" else "relaxed")
    config = Config(views=views, augmentation=augmentation)
    if preset == "fast":
        # Most pictures are not black at their edges. Black padding would reveal where the edge was, and with it the
        # position of the object, which crops are meant to hide: clusters would be split by position. So gray images
        # lose their background; in color images it carries information and is continued beyond the edge instead.
        own = dataset not in AUGMENTATION
        removed = own and channels == 1 and not backbone
        extended = own and not removed
        config = replace(
            config,
            views=replace(views, fill_masked=True, background="remove" if removed else "keep"),
            augmentation=replace(augmentation, sampling="bilinear", fill="background" if extended else "image"),
            network=Network(space_to_depth=True, padding="background" if extended else "black"),
            consolidation=Consolidation(logit_scale=10.0),
        )
    if search in EVOLVING and preset == "fast" and not backbone and max(height, width) <= SMALL:
        config = _hidden_layer(config, shape)
    if search == "guided":
        return _guided(config, images)
    if search == "relaxed":
        # Whether the user's own backbone can be trained in 16 bits is not known.
        lowered = preset == "fast" and not backbone
        return replace(_relaxed(config, images), precision="auto" if lowered else "float32")
    return _paper_evolution(config, dataset, images) if preset == "paper" else _small_evolution(config, images)


def _paper_evolution(config: Config, dataset: str, images: int) -> Config:
    batch_size = 3650 if dataset == "usps" else 3000
    schedule = THREE_STAGES if images < FEW_IMAGES else TWO_STAGES
    return replace(config, schedule=schedule, evolution=Evolution(batch_size=min(batch_size, images)))


def _hidden_layer(config: Config, shape: tuple[int, int, int]) -> Config:
    """A hidden layer on the pixels as they are, because the cost of evolution grows with the number of parameters.

    It learns to ignore changes of a view less easily than convolutions do, so that the rotation is smaller.
    """
    scale, changes = config.views.upsample, config.augmentation
    low, high = (pixels // scale for pixels in changes.zoom_out)
    augmentation = replace(
        changes,
        rotation=min(10.0, changes.rotation),
        crop=changes.crop // scale,
        zoom_out=(low, high) if low else (0, 0),
        zoom_out_prob=changes.zoom_out_prob if low else 0.0,
    )
    network = Network(hidden=HIDDEN, pixels=math.prod(shape))
    return replace(config, views=replace(config.views, upsample=1), augmentation=augmentation, network=network)


def _small_evolution(config: Config, images: int) -> Config:
    """The paper's search with fewer epochs and larger steps."""
    if config.network.pixels:
        return _evolution_on_pixels(config, images)
    schedule = (Stage("explore", "evolution", 150), Stage("strong", "evolution", 50, passes=2, every=10))
    evolution = Evolution(batch_size=min(1000, images), learning_rate=0.05, sigma=0.05, ramp_epochs=20)
    return replace(config, schedule=schedule, evolution=evolution)


def _evolution_on_pixels(config: Config, images: int) -> Config:
    """The paper's stages with more members, larger steps and far more consolidation per update."""
    batch_size = min(PIXEL_BATCH, images)
    ramp, explore, strong, every = (max(1, round(n * batch_size / images)) for n in PIXEL_UPDATES)
    evolution = Evolution(population=64, batch_size=batch_size, sigma=0.03, learning_rate=0.3, ramp_epochs=ramp)
    schedule = _settling("evolution", (explore, strong, every), PIXEL_PASSES * batch_size / images)
    return replace(config, schedule=schedule, evolution=evolution, n_init=PIXEL_INITIALIZATIONS)


def _settling(kind: StageKind, epochs: tuple[int, int, int], passes: float) -> tuple[Stage, ...]:
    """Evolution alone, then with consolidation every so many epochs, then passes of consolidation alone until the views
    agree.
    """
    explore, strong, every = epochs
    settle = Stage("settle", "consolidate", max(1, round(passes)))
    return Stage("explore", kind, explore), Stage("strong", kind, strong, 4, every), settle


def _guided_on_pixels(config: Config, images: int) -> Config:
    """Few members, which the gradients send where S grows, and far fewer updates.

    In the subspace noise is larger than elsewhere by the root of the number of parameters per dimension, so that its
    deviation is smaller. At a low temperature the gradients keep many clusters.
    """
    batch_size = min(PIXEL_BATCH, images)
    explore, strong, every = (max(1, round(n * batch_size / images)) for n in GUIDED_UPDATES)
    evolution = Evolution(population=8, batch_size=batch_size, sigma=0.01, learning_rate=0.1, ramp_epochs=1)
    schedule = _settling("guided", (explore, strong, every), PIXEL_PASSES * batch_size / images)
    guided = Guided(temperature=0.025, batch_size=450)
    return replace(config, schedule=schedule, evolution=evolution, guided=guided, n_init=GUIDED_INITIALIZATIONS)


def _guided(config: Config, images: int) -> Config:
    """Evolution in fewer and smaller batches, because the subspace of gradients tells where to look."""
    if config.network.pixels:
        return _guided_on_pixels(config, images)
    schedule = (Stage("explore", "guided", 60), Stage("strong", "guided", 20, passes=2, every=5))
    evolution = Evolution(batch_size=min(500, images), learning_rate=0.1, sigma=0.05, ramp_epochs=1)
    return replace(config, schedule=schedule, evolution=evolution)


def _relaxed(config: Config, images: int) -> Config:
    largest = config.relaxed.batch_size
    batch_size = relaxed_batch(images, largest)
    more = max(1.0, (images / MANY_FOR_STEPS) ** (1 / 3))
    rounds = tuple((round(more * graph), round(more * search)) for graph, search in ROUNDS + MORE_ROUNDS)
    schedule = _relaxed_schedule(rounds, REFINE_STEPS, _epochs_per_step(images, batch_size, largest), len(ROUNDS))
    relaxed = replace(
        config.relaxed,
        batch_size=batch_size,
        refine_temperature=REFINE_TEMPERATURE,
        random_heads=RANDOM_HEADS,
        grow=True,
    )
    return replace(config, schedule=schedule, relaxed=relaxed)


def relaxed_batch(images: int, largest: int) -> int:
    """Images per step of the relaxed search: a fifth of a small collection, because the number of steps counts there
    and not their size.

    >>> [relaxed_batch(images, 250) for images in (12, 150, 300, 600, 1250, 60_000)]
    [12, 75, 75, 120, 250, 250]
    """
    return min(images, largest, max(SMALLEST_BATCH, -(-images // BATCHES)))


def _epochs_per_step(images: int, batch_size: int, largest: int) -> float:
    """Epochs for each of the steps that a large collection has.

    Smaller batches do not change the number of steps: it is that of nearly equal batches of at most ``largest`` images.
    Only very few images have fewer steps.
    """
    share = min(1.0, max(LEAST_STEPS, images / FEW_FOR_STEPS))
    whole = min(images, largest) / images
    return share * whole * (-(-images // largest) / -(-images // batch_size))


def _relaxed_schedule(
    rounds: tuple[tuple[int, int], ...], refining: int, epochs_per_step: float, always: int
) -> tuple[Stage, ...]:
    """Rounds of imitating the neighbor graph and of going on from there, merging, refining. Those after the first
    ``always`` are optional.
    """

    def epochs(steps: int) -> float:
        return float(f"{steps * epochs_per_step:.4g}")

    stages = [
        stage
        for number, (imitating, searching) in enumerate(rounds, start=1)
        for stage in (
            Stage(f"graph {number}", "graph", epochs(imitating), optional=number > always),
            Stage(f"search {number}", "relaxed", epochs(searching), optional=number > always),
        )
    ]
    return (*stages, Stage("merge", "merge", 1), Stage("refine", "refine", max(REFINE_EPOCHS, epochs(refining))))


def photo_augmentation(side: int, kind: KindOption = "auto") -> Augmentation:
    """Augmentation for pictures of ``side`` pixels that a backbone sees, as in contrastive learning: crops from a third
    of the area on, light and color, and mirror images, which mean something else for letters only.
    """
    return Augmentation(
        rotation=15.0,
        crop=round(0.41 * side),
        flip_prob=0.0 if kind == "glyph" else 0.5,
        brightness=0.4,
        contrast=0.4,
        saturation=0.6,
        sampling="bilinear",
        fill="background",
    )


def with_backbone(config: Config, side: int, images: int) -> Config:
    """The configuration of a run on the stored features of ``images`` pictures, which a backbone takes at ``side``
    pixels.
    """
    return _stored(
        replace(config, views=Views(fill_masked=True), augmentation=photo_augmentation(side, config.kind)), images
    )


def with_embeddings(config: Config, items: int, views: int) -> Config:
    """The configuration of a run on embeddings of ``items`` items, with so many views of each.

    A single view says nothing about itself, so there all pairs are neighbors.
    """
    config = _stored(replace(config, views=Views(stored=True), augmentation=Augmentation()), items)
    if views > 1:
        return config
    return replace(
        config,
        relaxed=replace(config.relaxed, neighbor_prob=1.0),
        evolution=replace(config.evolution, neighbor_prob=1.0),
    )


def _stored(config: Config, images: int) -> Config:
    """The configuration of a search on stored features.

    A step takes milliseconds, so batches are larger and the number of steps does not depend on the number of images.
    """
    batch_size = min(FEATURE_BATCH, images)
    config = replace(config, merge=replace(config.merge, number_by="agreement"))
    if config.schedule[0].kind in EVOLVING:
        return _evolution_on_features(config, batch_size, images)
    relaxed = replace(config.relaxed, batch_size=batch_size, temperature=FEATURE_TEMPERATURE, learning_rate=5e-3)
    relaxed = replace(relaxed, random_heads=0)  # they were tried on pixels only
    # One round: the features, and with them the neighbor graph, stay the same.
    schedule = _relaxed_schedule((FEATURE_STEPS,), FEATURE_REFINE_STEPS, batch_size / images, always=1)
    return replace(config, schedule=schedule, relaxed=relaxed)


def keep_bound(config: Config, preset: Config) -> Config:
    """The configuration with heads that do not grow if the user gave a ``max_clusters`` other than the preset's."""
    if config.max_clusters == preset.max_clusters:
        return config
    return replace(config, relaxed=replace(config.relaxed, grow=False))


def _evolution_on_features(config: Config, batch_size: int, images: int) -> Config:
    """The paper's stages with the larger steps that a linear head allows, and the merging of the relaxed search."""
    kind, per_epoch = config.schedule[0].kind, -(-images // batch_size)
    explore, strong, every = (max(1, round(steps / per_epoch)) for steps in FEATURE_UPDATES)
    stages = _settling(kind, (explore, strong, every), FEATURE_SETTLE / images)
    schedule = (*stages, Stage("merge", "merge", 1))
    evolution = Evolution(batch_size=batch_size, sigma=0.1, learning_rate=0.2, ramp_epochs=1)
    return replace(config, schedule=schedule, evolution=evolution, guided=Guided(), network=Network(), n_init=1)


def on_features(config: Config, inputs: int) -> Config:
    """The configuration of the search itself, on ``inputs`` stored features per view.

    Views and augmentation of ``config`` were used to make the features and are not used again.
    """
    network = replace(config.network, inputs=inputs)
    return replace(config, views=Views(stored=True), augmentation=Augmentation(), network=network)
