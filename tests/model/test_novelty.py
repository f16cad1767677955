"""Novelty: the share of held-out images that are less unlike the training images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import centered
from torch import Tensor

from converge_to_surprise.config import Augmentation, Config, Network
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model import model_file
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.model.cluster_model import UNCALIBRATED, CalibratedNetwork, Model, Prediction
from converge_to_surprise.model.limits import Limits
from converge_to_surprise.model.novelty import POINTS, Novelty, descriptors, fit_novelty

D = 6


def gaussian(count: int, seed: int, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Features of two views that are alike."""
    generator = torch.Generator().manual_seed(seed)
    base = scale * torch.randn(count, D, generator=generator)
    first, second = (base + 0.1 * torch.randn(count, D, generator=generator) for _ in range(2))
    return first, second


def fitted(count: int = 600, seed: int = 0) -> Novelty:
    return fit_novelty(descriptors(*gaussian(count, seed), None), D)


@pytest.mark.parametrize("count", [60, 600, 2000])
def test_of_images_of_the_same_kind_five_percent_are_above_095(count: int) -> None:
    novelty = fitted(count)
    found = novelty(*gaussian(3000, 1), None)
    share = float((found > 0.95).float().mean())
    assert abs(share - 0.05) < 3 * (0.05 * 0.95 / count) ** 0.5 + 0.015
    assert abs(float(found.mean()) - 0.5) < 0.1


def test_images_of_another_kind_are_above_099() -> None:
    novelty = fitted()
    first, second = gaussian(50, 2)
    for other in ((first + 8, second + 8), (first * 6, second * 6), (first, -second)):
        assert float(novelty(*other, None).min()) > 0.97, "far off, too large, or views that differ"


def test_novelty_by_a_slow_loop() -> None:
    novelty = fitted(40)
    first, second = gaussian(30, 3, scale=2.0)
    center, directions, points, table, top = (value.double() for value in novelty)
    places = ((descriptors(first, second, None).double() - center) @ directions).tolist()
    wanted = [reference.novelty(place, points.tolist(), table.tolist(), float(top)) for place in places]
    np.testing.assert_allclose(novelty(first, second, None).numpy(), wanted, atol=2e-4)


@settings(max_examples=30, deadline=None)
@given(count=st.integers(1, 30), columns=st.integers(2, 40), constant=st.booleans(), seed=st.integers(0, 100))
def test_few_equal_or_constant_images_give_finite_numbers_from_0_to_1(
    count: int, columns: int, constant: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(count, columns, generator=generator)
    first = values * 0 + 0.5 if constant else values
    novelty = fit_novelty(descriptors(first, first, None), columns)
    for images in (first, first + 1, 1e4 * first, first * 0):
        found = novelty(images, images, None)
        assert bool(found.isfinite().all())
        assert 0 <= float(found.min()) <= float(found.max()) <= 1


def test_no_more_than_so_many_points_are_kept_and_more_distance_is_more_novel() -> None:
    novelty = fitted(POINTS + 500)
    assert len(novelty.points) == POINTS
    steps = torch.linspace(0, 30, 60)[:, None].expand(-1, D)
    assert bool((novelty(steps, steps, None)[10:].diff() >= 0).all())


@pytest.fixture(scope="module")
def model() -> Model:
    images, _ = striped_images(300)
    config = Config(max_clusters=4, network=Network(width=2), augmentation=Augmentation(rotation=20))
    network = random_network(config, 1, 1)
    centered(network, images)
    calibrated, _ = CalibratedNetwork.fit(network.eval(), images, config)
    return Model(config, (1, 8, 8), calibrated)


def predicted(model: Model, images: Tensor) -> Prediction:
    (found,) = model.predict(images)
    return found


def test_noise_and_single_pixels_are_novel_and_own_images_are_not(model: Model) -> None:
    own, _ = striped_images(200, seed=5)
    pixels = torch.zeros(64, 1, 8, 8, dtype=torch.uint8)
    pixels.flatten(1)[torch.arange(64), torch.arange(64)] = 255
    noise = torch.randint(0, 256, (64, 1, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    usual = predicted(model, own).novelty
    assert float((usual > 0.95).float().mean()) < 0.15
    for foreign in (pixels, noise, torch.zeros_like(pixels)):
        assert float(predicted(model, foreign).novelty.min()) > 0.95


def test_limits_refuse_what_lies_beyond_them(model: Model) -> None:
    images = torch.cat([striped_images(20)[0], torch.zeros(1, 1, 8, 8, dtype=torch.uint8)])
    found = predicted(model, images)
    assert torch.equal(Limits().clusters(found), found.cluster)
    assert int(Limits(max_novelty=0.99).clusters(found)[-1]) == -1
    limit = float(found.novelty[0])
    assert int(Limits(max_novelty=limit).clusters(found)[0]) == int(found.cluster[0])
    refused = Limits(min_confidence=1.0).clusters(found) == -1
    assert torch.equal(refused, found.confidence < 1)


def test_a_model_file_keeps_novelty(model: Model, tmp_path: Path) -> None:
    images, _ = striped_images(30)
    model_file.save(tmp_path / "model", model)
    loaded = model_file.load(tmp_path / "model")[0]
    assert torch.equal(predicted(loaded, images).novelty, predicted(model, images).novelty)


def test_a_model_without_novelty_says_so_where_it_is_needed(model: Model, tmp_path: Path) -> None:
    bare = replace(model, final=replace(model.final, calibration=UNCALIBRATED))
    model_file.save(tmp_path / "model", bare)
    loaded = model_file.load(tmp_path / "model")[0]
    found = predicted(loaded, striped_images(3)[0])
    assert bool(found.novelty.isnan().all())
    Limits(0.5).check(loaded)
    with pytest.raises(ValueError, match=r"max_novelty is 0\.9, but this model does not hold"):
        Limits(max_novelty=0.9).check(loaded)


def test_a_forged_novelty_is_refused(model: Model, tmp_path: Path) -> None:
    novelty = model.final.calibration.novelty
    assert novelty is not None
    forged = {
        "center": novelty.center[:-1],
        "points": novelty.points.repeat(5, 1),
        "distances": novelty.distances.flip(0),
        "directions": novelty.directions * torch.nan,
    }
    for name, value in forged.items():
        calibration = model.final.calibration._replace(novelty=novelty._replace(**{name: value}))
        bad = replace(model, final=replace(model.final, calibration=calibration))
        model_file.save(tmp_path / "model", bad)
        with pytest.raises(ValueError, match="its novelty is not valid"):
            model_file.load(tmp_path / "model")
