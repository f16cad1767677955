"""Augmentation for photographs: crops by area, hue, removal of color, blur."""

from __future__ import annotations

from dataclasses import replace

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from converge_to_surprise.config import Augmentation
from converge_to_surprise.core import augment, blur, color

PAPER = Augmentation(
    rotation=25, crop=3, crop_prob=0.8, zoom_out=(1, 4), zoom_out_prob=0.7, flip_prob=0.5, brightness=0.4, contrast=0.4,
    saturation=0.4,
)  # fmt: skip
PHOTO = replace(PAPER, crop_area=0.3, crop_aspect=1.5, hue=0.2, gray_prob=0.3, blur=1.0, blur_prob=0.5)
SEEDS = st.integers(0, 10_000)


def views(count: int, channels: int, height: int, width: int, seed: int) -> Tensor:
    return torch.rand(count, channels, height, width, generator=torch.Generator().manual_seed(seed))


@given(SEEDS)
def test_what_was_drawn_before_stays_the_same(seed: int) -> None:
    """New settings draw after the old ones, and what is off draws nothing."""
    generators = [torch.Generator().manual_seed(seed) for _ in range(2)]
    old, new = (augment.draw(which, 16, generator) for which, generator in zip((PAPER, PHOTO), generators, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(old[:12], new[:12], strict=True))
    alone = torch.Generator().manual_seed(seed)
    torch.rand(15, 16, generator=alone)  # as many as the paper's augmentation draws
    assert torch.equal(torch.rand(3, generator=generators[0]), torch.rand(3, generator=alone))


@given(SEEDS)
def test_draws_keep_within_their_ranges(seed: int) -> None:
    drawn = augment.draw(PHOTO, 64, torch.Generator().manual_seed(seed))
    area = drawn.share_height * drawn.share_width
    assert bool((area >= 0.3 / 1.5 - 1e-6).all())
    assert bool((area <= 1).all())
    uncut = (drawn.share_height < 1) & (drawn.share_width < 1)  # an axis that would exceed the view is cut off
    ratio = (drawn.share_width / drawn.share_height)[uncut]
    assert bool(((ratio >= 1 / 1.5 - 1e-5) & (ratio <= 1.5 + 1e-5)).all())
    assert bool((area[uncut] >= 0.3 - 1e-6).all())
    for offset in (drawn.offset_y, drawn.offset_x):
        assert bool(((offset >= 0) & (offset <= 1)).all())
    assert bool((drawn.hue.abs() <= 0.2).all())
    assert set(drawn.gray.tolist()) <= {0.0, 1.0}
    assert bool(((drawn.sigma >= 0) & (drawn.sigma <= 1)).all())


def test_probabilities_are_respected() -> None:
    drawn = augment.draw(PHOTO, 20_000, torch.Generator().manual_seed(0))
    assert float(drawn.gray.mean()) == pytest.approx(0.3, abs=0.02)
    assert float((drawn.sigma > 0).float().mean()) == pytest.approx(0.5, abs=0.02)
    uncropped = (drawn.share_height == 1) & (drawn.share_width == 1)
    assert float(uncropped.float().mean()) == 0, "an aspect is drawn even where the whole area is kept"
    square = augment.draw(replace(PHOTO, crop_aspect=1.0), 20_000, torch.Generator().manual_seed(0))
    assert float((square.share_height == 1).float().mean()) == pytest.approx(0.2, abs=0.02)


@given(st.integers(5, 12), st.integers(5, 12), SEEDS)
@settings(max_examples=40)
def test_a_crop_by_area_agrees_with_a_slow_loop(height: int, width: int, seed: int) -> None:
    only = Augmentation(crop_area=0.2, crop_aspect=4 / 3)
    batch = views(3, 1, height, width, seed)
    drawn = augment.draw(only, 3, torch.Generator().manual_seed(seed))
    slow = []
    for index, view in enumerate(batch.tolist()):
        tall, wide = float(drawn.share_height[index]), float(drawn.share_width[index])
        top, left = float(drawn.offset_y[index]) * (1 - tall), float(drawn.offset_x[index]) * (1 - wide)
        slow.append([reference.crop_by_area(view[0], top, left, tall, wide)])
    # Positions within a rounding error of a pixel's boundary may fall on either side: allow a few.
    assert float(((augment.warp(batch, drawn, only) - torch.tensor(slow)).abs() > 1e-5).float().mean()) < 0.02


@given(SEEDS)
def test_a_crop_stays_inside_the_view(seed: int) -> None:
    """A view without black in it has none after a crop, neither by pixels nor by area nor by both."""
    both = Augmentation(crop=4, crop_area=0.2, crop_aspect=1.5)
    cropped = augment.augment(torch.ones(8, 1, 11, 9), both, torch.Generator().manual_seed(seed), signed=False)
    assert bool((cropped == 1).all())


@given(SEEDS, st.floats(-0.5, 0.5))
@settings(max_examples=50)
def test_hue_agrees_with_a_slow_loop_and_keeps_brightness(seed: int, shift: float) -> None:
    batch = views(1, 3, 3, 2, seed)
    turned = color.shift_hue(batch, torch.tensor([shift]))
    pixels = batch[0].flatten(1).t().tolist()
    slow = [reference.turned_color(red, green, blue, float(torch.tensor(shift))) for red, green, blue in pixels]
    torch.testing.assert_close(turned[0].flatten(1).t(), torch.tensor(slow), atol=2e-3, rtol=0)
    torch.testing.assert_close(color.gray(turned), color.gray(batch), atol=1e-5, rtol=0)


@given(SEEDS, st.floats(-0.5, 0.5), st.floats(-0.5, 0.5))
def test_two_turns_of_hue_are_their_sum_and_none_is_none(seed: int, a: float, b: float) -> None:
    batch = views(2, 3, 3, 3, seed)
    first, second = (torch.full((2,), shift) for shift in (a, b))
    twice = color.shift_hue(color.shift_hue(batch, first), second)
    torch.testing.assert_close(twice, color.shift_hue(batch, first + second), atol=1e-5, rtol=0)
    torch.testing.assert_close(color.shift_hue(batch, torch.zeros(2)), batch, atol=1e-6, rtol=0)


@given(st.sampled_from([1, 3]), st.integers(1, 7), st.integers(1, 7), SEEDS)
@settings(max_examples=30)
def test_blur_agrees_with_a_slow_loop(channels: int, height: int, width: int, seed: int) -> None:
    batch = views(3, channels, height, width, seed)
    sigma = torch.tensor([0.0, 0.4, 0.9])
    slow = [[reference.blurred(plane, s, 3) if s else plane for plane in view]
            for view, s in zip(batch.tolist(), sigma.tolist(), strict=True)]  # fmt: skip
    torch.testing.assert_close(blur.gaussian_blur(batch, sigma, 0.9), torch.tensor(slow), atol=1e-5, rtol=0)


@given(SEEDS)
def test_blur_keeps_the_range_and_one_color(seed: int) -> None:
    batch = views(4, 3, 6, 5, seed)
    sigma = torch.rand(4, generator=torch.Generator().manual_seed(seed)) * 2
    soft = blur.gaussian_blur(batch, sigma, 2.0)
    assert bool((soft.amin((2, 3)) >= batch.amin((2, 3)) - 1e-6).all())
    assert bool((soft.amax((2, 3)) <= batch.amax((2, 3)) + 1e-6).all())
    plain = batch[:, :, :1, :1].expand(4, 3, 6, 5)
    torch.testing.assert_close(blur.gaussian_blur(plain, sigma, 2.0), plain)


@given(st.booleans(), SEEDS)
def test_values_stay_in_their_range(signed: bool, seed: int) -> None:
    batch = views(6, 3, 9, 8, seed) * 2 - 1 if signed else views(6, 3, 9, 8, seed)
    changed = augment.augment(batch, PHOTO, torch.Generator().manual_seed(seed), signed=signed)
    assert float(changed.min()) >= (-1 if signed else 0) - 1e-6
    assert float(changed.max()) <= 1 + 1e-6


def test_color_comes_before_blur_and_removal_of_color_after_hue() -> None:
    batch = views(40, 3, 8, 8, 0)
    settings = replace(PHOTO, gray_prob=1.0, blur_prob=1.0)
    drawn = augment.draw(settings, 40, torch.Generator().manual_seed(0))
    found = augment.apply(batch, drawn, settings, signed=False)
    assert torch.equal(found[:, 0], found[:, 1])
    assert torch.equal(found[:, 0], found[:, 2])
    by_hand = replace(settings, hue=0.0, gray_prob=0.0, blur=0.0)
    steps = augment.jitter(augment.warp(batch, drawn, settings), drawn, by_hand)
    steps = color.gray(color.shift_hue(steps, drawn.hue).clamp(0, 1)).expand(-1, 3, -1, -1)
    torch.testing.assert_close(found, blur.gaussian_blur(steps, drawn.sigma, 1.0))


def test_gray_images_have_no_hue() -> None:
    batch = views(5, 1, 8, 8, 0)
    settings = Augmentation(hue=0.4, gray_prob=0.5)
    assert torch.equal(augment.augment(batch, settings, torch.Generator(), signed=False), batch)


def test_several_processes_draw_the_same() -> None:
    """Another process that skips a batch leaves the generator where one that makes it does."""
    from converge_to_surprise.config import Views
    from converge_to_surprise.core.views import make_views

    images = views(7, 3, 8, 8, 0)
    made, skipped = (torch.Generator().manual_seed(5) for _ in range(2))
    for view in make_views(images, Views(), made):
        augment.augment(view, PHOTO, made, signed=False)
    augment.skip(images, (Views(), PHOTO), 7, skipped)
    assert torch.equal(torch.rand(2, generator=made), torch.rand(2, generator=skipped))
