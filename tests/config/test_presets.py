"""The ``paper`` preset is the paper's. The numbers here were copied from its section 4.1 and table 4 and, where it is
silent, from the authors' public code, and not from the module under test.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch

from converge_to_surprise.config import Config, SearchName, Stage, presets
from converge_to_surprise.config.presets import AUGMENTATION, KNOWN_SIZES, UPSAMPLE, PresetName, canonical, resolve
from converge_to_surprise.data import datasets
from converge_to_surprise.search.evolution import fraction_perturbed
from converge_to_surprise.search.schedule import batch_positions, batches_per_epoch, count_steps, search_steps, steps

IMAGES = {"mnist": 60_000, "fashion-mnist": 60_000, "usps": 7_291}
SIDE = {"mnist": 28, "fashion-mnist": 28, "usps": 16}

# Table 4, row by row: MNIST, Fashion-MNIST, USPS. A dash in the paper is "off" here.
TABLE_4: dict[str, tuple[Any, Any, Any]] = {
    "side": (28, 28, 32),
    "rotation": (20, 20, 10),
    "rotation_prob": (1.0, 1.0, 0.5),
    "brightness": (0.3, 0.3, 0.15),
    "contrast": (0.3, 0.3, 0.15),
    "crop_edges": (range(24, 29), range(24, 29), range(30, 33)),
    "crop_prob": (1.0, 1.0, 1.0),
    "flip_prob": (0.0, 0.5, 0.0),
    "zoom_out_prob": (0.0, 0.0, 1.0),
    "zoom_out": (None, None, (2, 6)),
}


def paper(dataset: str) -> Config:
    side = SIDE[dataset]
    return resolve("paper", None, dataset, IMAGES[dataset], (1, side, side))


@pytest.mark.parametrize(("column", "dataset"), list(enumerate(IMAGES)))
def test_table_4(column: int, dataset: str) -> None:
    config = paper(dataset)
    table = {name: row[column] for name, row in TABLE_4.items()}
    augmentation = config.augmentation
    side = SIDE[dataset] * config.views.upsample
    assert side == table["side"]
    assert range(side - augmentation.crop, side + 1) == table["crop_edges"]
    for name in ("rotation", "rotation_prob", "brightness", "contrast", "crop_prob", "flip_prob", "zoom_out_prob"):
        assert getattr(augmentation, name) == table[name], name
    if table["zoom_out"]:
        assert augmentation.zoom_out == table["zoom_out"]
    assert augmentation.saturation == 0
    assert augmentation.sampling == "nearest"
    assert augmentation.fill == "black"


@pytest.mark.parametrize("dataset", IMAGES)
def test_views_and_network(dataset: str) -> None:
    config = paper(dataset)
    assert config.views.fill_masked is False  # hidden pixels are black
    assert config.views.upsample == (2 if dataset == "usps" else 1)
    assert config.max_clusters == 64
    assert config.network.width == 8
    assert config.network.min_active_outputs == 10


@pytest.mark.parametrize("dataset", IMAGES)
def test_evolution(dataset: str) -> None:
    settings = paper(dataset).evolution
    assert settings.population == 32
    assert settings.sigma == 0.02
    assert settings.learning_rate == 0.005
    assert settings.weight_decay == 0.005
    assert settings.batch_size == {"mnist": 3000, "fashion-mnist": 3000, "usps": 3650}[dataset]
    assert settings.score == "surprise"
    assert fraction_perturbed(0, settings) == 0.01
    assert fraction_perturbed(98, settings) == pytest.approx(1 - 0.99 / 99)
    assert fraction_perturbed(99, settings) == fraction_perturbed(2999, settings) == 1.0


@pytest.mark.parametrize("dataset", IMAGES)
def test_consolidation(dataset: str) -> None:
    settings = paper(dataset).consolidation
    assert settings.tau == 0.005
    assert settings.learning_rate == 1e-3
    assert settings.batch_size == 128
    assert settings.logit_scale == 1


def test_schedules() -> None:
    two = (("evolution", 2000, 0, 0), ("evolution", 1000, 4, 25))
    three = (("evolution", 4000, 0, 0), ("evolution", 4000, 2, 500), ("evolution", 1000, 4, 25))
    for dataset, expected in (("mnist", two), ("fashion-mnist", two), ("usps", three)):
        schedule = paper(dataset).schedule
        assert tuple((stage.kind, stage.epochs, stage.passes, stage.every) for stage in schedule) == expected


@pytest.mark.parametrize(
    ("dataset", "updates", "epochs", "passes"),
    # MNIST: 1000 / 25 rounds of 4. USPS: 4000 / 500 rounds of 2, then 1000 / 25 rounds of 4.
    [("mnist", 20, 3000, 160), ("fashion-mnist", 20, 3000, 160), ("usps", 2, 9000, 16 + 160)],
)
def test_number_of_steps(dataset: str, updates: int, epochs: int, passes: int) -> None:
    config, images = paper(dataset), IMAGES[dataset]
    assert batches_per_epoch(images, config.evolution.batch_size) == updates
    kinds = Counter(step.kind for step in steps(config, images))
    assert kinds == {"evolution": updates * epochs, "consolidate": passes}
    assert count_steps(config, images) == updates * epochs + passes


def test_consolidation_falls_on_the_epochs_of_algorithm_1() -> None:
    rounds = [step for step in steps(paper("usps"), 7_291) if step.kind == "consolidate" and step.first]
    ended = [step.epoch + 1 for step in rounds]  # algorithm 1 counts epochs from 1
    assert ended == [*range(4500, 8001, 500), *range(8025, 9001, 25)]


def test_usps_batches_are_nearly_equal() -> None:
    config = paper("usps")
    epoch = itertools.islice(steps(config, 7_291), 2)
    images = torch.zeros(7_291, 1, 1, 1, dtype=torch.uint8)
    parts = [batch_positions(step, images, 0) for step in epoch]
    assert [len(part) for part in parts] == [3646, 3645]
    assert sorted(position for part in parts for position in part.tolist()) == list(range(7_291))


def test_a_batch_never_exceeds_the_images() -> None:
    for preset in ("paper", "fast"):
        for search in ("evolution", "relaxed"):
            config = resolve(preset, search, "mine", 40, (1, 8, 8))
            batch_size = config.evolution.batch_size if search == "evolution" else config.relaxed.batch_size
            assert batch_size == 40


def work(images: int) -> tuple[int, float]:
    """Gradient steps of the fast preset, and how many images they see."""
    config = resolve("fast", None, "mine", images, (1, 28, 28))
    found = [step for step in steps(config, images) if step.kind != "merge"]
    assert len(found) == count_steps(config, images) - 1
    return len(found), sum(images / step.batches for step in found)


def test_very_few_images_have_fewer_steps() -> None:
    whole, _ = work(Config().relaxed.batch_size)
    assert [work(images)[0] for images in (12, 60, 120)] == pytest.approx([whole / 5, whole / 2, whole], rel=0.02)
    assert all(stage.epochs >= 1 for stage in resolve("fast", None, "mine", 2, (1, 28, 28)).schedule)


@pytest.mark.parametrize(("images", "batch_size"), [(150, 75), (250, 75), (304, 75), (600, 120), (1000, 200)])
def test_small_collections_have_smaller_batches_and_not_fewer_steps(images: int, batch_size: int) -> None:
    whole, seen = work(5 * Config().relaxed.batch_size)
    count, presented = work(images)
    assert count >= 0.99 * whole
    assert presented < 0.85 * seen
    assert resolve("fast", None, "mine", images, (1, 28, 28)).relaxed.batch_size == batch_size


@pytest.mark.parametrize("images", [1250, 5000, 60_000])
def test_other_collections_have_batches_of_250(images: int) -> None:
    config = resolve("fast", None, "mine", images, (1, 28, 28))
    assert config.relaxed.batch_size == 250
    more = {1250: 1.0, 5000: 1.0, 60_000: 6 ** (1 / 3)}[images]
    wanted = [round(more * steps) for pair in presets.ROUNDS + presets.MORE_ROUNDS for steps in pair]
    batches = batches_per_epoch(images, 250)
    assert [search_steps(stage, batches) for stage in config.schedule[:-2]] == wanted
    optional = [stage.optional for stage in config.schedule]
    assert optional == [False] * 6 + [True] * 6 + [False] * 2


@pytest.mark.parametrize(("preset", "kind"), [("paper", "evolution"), ("fast", "graph")])
def test_the_search_of_a_preset(preset: PresetName, kind: str) -> None:
    assert resolve(preset, None, "digits", 1797, (1, 8, 8)).schedule[0].kind == kind
    assert resolve(preset, "evolution", "digits", 1797, (1, 8, 8)).schedule[0].kind == "evolution"
    assert resolve(preset, "relaxed", "digits", 1797, (1, 8, 8)).schedule[1].kind == "relaxed"


def test_only_the_fast_search_of_our_own_network_takes_fewer_bits() -> None:
    def precision(preset: PresetName, search: SearchName | None = None, backbone: bool = False) -> str:
        return resolve(preset, search, "mine", 100, (1, 8, 8), backbone).precision

    assert precision("fast") == "auto"
    others = [precision("fast", backbone=True), precision("fast", "evolution"), precision("paper")]
    assert {*others, precision("paper", "relaxed")} == {"float32"}


def test_fast_is_rounds_of_graph_and_search_then_a_merge_then_refining() -> None:
    config = resolve("fast", None, "mnist", 60_000, (1, 28, 28))
    assert [stage.kind for stage in config.schedule] == [*["graph", "relaxed"] * 6, "merge", "refine"]
    assert [stage.epochs for stage in config.schedule][-2:] == [1, 3]
    assert resolve("fast", None, "usps", 7291, (1, 16, 16)).schedule[0].epochs == pytest.approx(5, abs=0.2)
    assert config.relaxed.grow
    assert config.views.fill_masked
    assert config.augmentation.sampling == "bilinear"


@pytest.mark.parametrize(
    ("shape", "scale", "crop", "saturation"),
    [((1, 28, 28), 1, 4, 0.0), ((3, 32, 70), 1, 5, 0.3), ((1, 16, 16), 2, 5, 0.0), ((1, 2, 2), 2, 1, 0.0)],
)
def test_own_images_get_an_augmentation_by_size_and_color(
    shape: tuple[int, int, int], scale: int, crop: int, saturation: float
) -> None:
    config = resolve("fast", None, "holiday", 500, shape)
    augmentation = config.augmentation
    assert config.views.upsample == scale
    assert (augmentation.crop, augmentation.saturation, augmentation.flip_prob) == (crop, saturation, 0)


@pytest.mark.parametrize(
    ("dataset", "channels", "backbone", "fill", "padding", "background"),
    [
        ("holiday", 3, False, "background", "background", "keep"),
        ("holiday", 1, False, "image", "black", "remove"),
        ("holiday", 1, True, "background", "background", "keep"),
        ("mnist", 1, False, "image", "black", "keep"),
        ("digits", 1, True, "image", "black", "keep"),
    ],
)
def test_beyond_pictures_of_ones_own_there_is_no_black(
    dataset: str, channels: int, backbone: bool, fill: str, padding: str, background: str
) -> None:
    """The named data sets have black background; a network of one's own may have been trained with any."""
    fast, paper = (resolve(name, None, dataset, 500, (channels, 28, 28), backbone) for name in get_args(PresetName))
    assert (fast.augmentation.fill, fast.network.padding, fast.views.background) == (fill, padding, background)
    assert (paper.augmentation.fill, paper.network.padding, paper.views.background) == ("black", "black", "keep")


def test_few_images_of_ones_own_get_the_longer_schedule() -> None:
    assert sum(stage.epochs for stage in resolve("paper", None, "mine", 9_999, (1, 8, 8)).schedule) == 9000
    assert sum(stage.epochs for stage in resolve("paper", None, "mine", 10_000, (1, 8, 8)).schedule) == 3000
    assert resolve("paper", None, "mine", 10_000, (1, 8, 8)).schedule[-1] == Stage("strong", "evolution", 1000, 4, 25)


def test_known_sizes_are_those_of_the_data_sets() -> None:
    """Only the digits come with a library; the other sizes are the published ones."""
    store = datasets.load("digits").train
    assert KNOWN_SIZES["digits"] == (len(store), store.shape)
    assert {name: count for name, (count, _) in KNOWN_SIZES.items() if name in IMAGES} == IMAGES
    assert {name: shape for name, (_, shape) in KNOWN_SIZES.items() if name in SIDE} == {
        name: (1, side, side) for name, side in SIDE.items()
    }


def test_everything_that_is_known_of_data_sets_is_known_of_the_same_ones() -> None:
    assert set(KNOWN_SIZES) == set(AUGMENTATION) == set(UPSAMPLE)


@pytest.mark.parametrize(
    ("source", "name"),
    [("mnist", "mnist"), ("MNIST", "mnist"), ("Fashion_MNIST", "fashion-mnist"), ("fashion-mnist", "fashion-mnist"),
     ("USPS", "usps"), ("Digits", "digits"), ("fashionmnist", None), ("mnist.npz", None), ("./mnist", None),
     ("", None)],
)  # fmt: skip
def test_names_of_data_sets(source: str, name: str | None) -> None:
    assert canonical(source) == name


def test_heads_do_not_grow_beyond_a_number_that_the_user_gave() -> None:
    preset = resolve("fast", None, "auto", 500, (1, 28, 28))
    assert presets.keep_bound(preset, preset) == preset
    assert not presets.keep_bound(replace(preset, max_clusters=20), preset).relaxed.grow


@pytest.mark.parametrize("search", ["evolution", "guided"])
def test_evolution_on_stored_features_has_a_schedule_of_its_own_and_the_same_merging(search: SearchName) -> None:
    pixels = presets.resolve("fast", search, "auto", 2000, (3, 64, 64))
    config = presets.with_backbone(pixels, 128, 2000)
    assert [stage.kind for stage in config.schedule] == [search, search, "consolidate", "merge"]
    explore, strong, settle, _ = config.schedule
    assert (explore.epochs, strong.epochs, strong.passes, strong.every, settle.epochs) == (30, 52, 4, 2, 60)
    assert count_steps(config, 2000) == 2 * (30 + 52) + 4 * 26 + 60 + 1
    other = presets.with_backbone(presets.resolve("fast", None, "auto", 2000, (3, 64, 64)), 128, 2000)
    assert config.merge == other.merge
    assert (pixels.evolution.neighbor_prob, config.evolution.neighbor_prob) == (0.0, 0.0)
    assert presets.with_embeddings(pixels, 500, 1).evolution.neighbor_prob == 1.0, "one view has no other pairs"


@pytest.mark.parametrize("search", ["evolution", "guided"])
def test_evolution_takes_the_pixels_of_small_images_as_they_are(search: SearchName) -> None:
    config = resolve("fast", search, "usps", 7291, (1, 16, 16))
    assert config.network.pixels == 256
    assert config.network.hidden
    assert config.views.upsample == 1
    enlarged = resolve("fast", "relaxed", "usps", 7291, (1, 16, 16))
    assert enlarged.views.upsample == 2
    assert config.augmentation == replace(enlarged.augmentation, crop=1, zoom_out=(1, 3))
    assert presets.with_embeddings(config, 500, 1).network.convolutional, "stored features take its place"


@pytest.mark.parametrize(
    ("search", "name", "updates", "passes"),
    [
        ("evolution", "digits", (50, 100), (100, 200)),
        ("evolution", "usps", (54, 108), (48, 49)),
        ("guided", "digits", (40, 40), (80, 200)),
        ("guided", "usps", (45, 45), (20, 49)),
    ],
)
def test_evolution_on_pixels_has_about_as_many_updates_for_every_number_of_images(
    search: SearchName, name: str, updates: tuple[int, int], passes: tuple[int, int]
) -> None:
    images, shape = KNOWN_SIZES[name]
    config = resolve("fast", search, name, images, shape)
    kinds = Counter((step.stage, step.kind) for step in steps(config, images))
    assert (kinds["explore", search], kinds["strong", search]) == updates
    assert (kinds["strong", "consolidate"], kinds["settle", "consolidate"]) == passes
    assert config.n_init == (3 if search == "evolution" else 5)


def test_larger_images_own_backbones_other_searches_and_the_paper_keep_the_network() -> None:
    small, large = (1, 16, 16), (3, 17, 17)
    others = [
        resolve("fast", "evolution", "mine", 500, large),
        resolve("fast", "evolution", "mine", 500, small, backbone=True),
        resolve("fast", "relaxed", "mine", 500, small),
        resolve("paper", None, "usps", 7291, small),
        resolve("paper", "guided", "usps", 7291, small),
    ]
    assert all(config.network.convolutional for config in others)


def test_guided_evolution_is_never_part_of_the_paper_preset() -> None:
    assert all(
        stage.kind == "evolution" for stage in presets.resolve("paper", None, "mnist", 60_000, (1, 28, 28)).schedule
    )
