from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from converge_to_surprise.config import Augmentation
from converge_to_surprise.core import augment

FULL = Augmentation(
    rotation=25, rotation_prob=0.8, crop=3, crop_prob=0.8, zoom_out=(1, 4), zoom_out_prob=0.7, flip_prob=0.5,
    brightness=0.4, contrast=0.4, saturation=0.4,
)  # fmt: skip
STILL = replace(FULL, rotation=0.0)
BACKGROUND = replace(FULL, fill="background")


def views(count: int, channels: int, height: int, width: int, seed: int) -> Tensor:
    return torch.rand(count, channels, height, width, generator=torch.Generator().manual_seed(seed))


def step_by_step(view: Tensor, drawn: augment.Draw, index: int) -> Tensor:
    """The geometric part in the paper's order, one step after the other."""

    def number(name: str) -> float:
        return float(getattr(drawn, name)[index])

    def whole(*names: str) -> tuple[int, ...]:
        return tuple(int(number(name)) for name in names)

    image = []
    for plane in view.tolist():
        cut, top, left, tall, wide, above, before = whole(*augment.Draw._fields[:7])
        channel = reference.crop_and_zoom_out(plane, cut, top, left, (tall, wide), (above, before))
        channel = reference.mirror(channel) if number("flip") < 0 else channel
        image.append(reference.rotate(channel, number("angle")))
    return torch.tensor(image)


@given(st.sampled_from([1, 3]), st.integers(5, 10), st.integers(5, 10), st.integers(0, 10_000))
@settings(max_examples=60)
def test_crop_zoom_out_and_flip_agree_with_the_paper(channels: int, height: int, width: int, seed: int) -> None:
    batch = views(4, channels, height, width, seed)
    drawn = augment.draw(STILL, 4, torch.Generator().manual_seed(seed))
    fast = augment.warp(batch, drawn, STILL)
    slow = torch.stack([step_by_step(view, drawn, index) for index, view in enumerate(batch)])
    # Where a sampling position falls on the boundary of two pixels, rounding may take either.
    differing = (fast - slow).abs() > 1e-5
    on_boundary = _on_pixel_boundary(drawn, height, width)[:, None].expand_as(differing)
    assert not bool((differing & ~on_boundary).any())


@given(st.sampled_from([1, 3]), st.integers(1, 6), st.integers(1, 6), st.integers(0, 10_000))
@settings(max_examples=60)
def test_jitter_agrees_with_the_paper(channels: int, height: int, width: int, seed: int) -> None:
    batch = views(3, channels, height, width, seed)
    drawn = augment.draw(FULL, 3, torch.Generator().manual_seed(seed))
    fast = augment.jitter(batch, drawn, FULL)
    factors = zip(drawn.brightness.tolist(), drawn.contrast.tolist(), drawn.saturation.tolist(), strict=True)
    slow = [reference.jitter(view.tolist(), *three) for view, three in zip(batch, factors, strict=True)]
    torch.testing.assert_close(fast, torch.tensor(slow))


@given(st.sampled_from([1, 3]), st.integers(1, 6), st.integers(1, 6), st.integers(0, 10_000))
@settings(max_examples=60)
def test_signed_jitter_agrees_with_the_paper_and_is_odd(channels: int, height: int, width: int, seed: int) -> None:
    batch = 2 * views(3, channels, height, width, seed) - 1
    drawn = augment.draw(FULL, 3, torch.Generator().manual_seed(seed))
    fast = augment.jitter(batch, drawn, FULL, -1)
    factors = zip(drawn.brightness.tolist(), drawn.contrast.tolist(), drawn.saturation.tolist(), strict=True)
    slow = [reference.jitter(view.tolist(), *three, low=-1) for view, three in zip(batch, factors, strict=True)]
    torch.testing.assert_close(fast, torch.tensor(slow))
    torch.testing.assert_close(augment.jitter(-batch, drawn, FULL, -1), -fast)


def test_signed_values_are_clipped_to_minus_one() -> None:
    batch = views(3, 3, 8, 8, 0)
    drawn = augment.draw(FULL, 3, torch.Generator().manual_seed(0))
    warped = augment.warp(batch, drawn, FULL)
    assert torch.equal(augment.apply(batch, drawn, FULL, signed=False), augment.jitter(warped, drawn, FULL, 0))
    assert torch.equal(augment.apply(batch, drawn, FULL, signed=True), augment.jitter(warped, drawn, FULL, -1))
    assert bool((augment.augment(batch - 1, FULL, torch.Generator(), signed=True) < 0).any())


def _on_pixel_boundary(drawn: augment.Draw, height: int, width: int) -> Tensor:
    result = torch.zeros(len(drawn.cut), height, width, dtype=torch.bool)
    for index in range(len(drawn.cut)):
        tall = height - float(drawn.cut[index]) + float(drawn.pad_height[index])
        wide = width - float(drawn.cut[index]) + float(drawn.pad_width[index])
        for r in range(height):
            for c in range(width):
                y, x = (r + 0.5) * tall / height, (c + 0.5) * wide / width
                result[index, r, c] = min(abs(y - round(y)), abs(x - round(x))) < 1e-4
    return result


@given(st.integers(7, 12), st.integers(7, 12), st.integers(0, 10_000))
@settings(max_examples=40)
def test_rotation_agrees_with_the_paper(height: int, width: int, seed: int) -> None:
    only = Augmentation(rotation=90)
    batch = views(3, 1, height, width, seed)
    drawn = augment.draw(only, 3, torch.Generator().manual_seed(seed))
    fast = augment.apply(batch, drawn, only, signed=False)
    slow = torch.stack(
        [torch.tensor([reference.rotate(view[0].tolist(), float(drawn.angle[i]))]) for i, view in enumerate(batch)]
    )
    # Positions within a rounding error of a pixel's boundary may fall on either side: allow a handful.
    assert float(((fast - slow).abs() > 1e-5).float().mean()) < 0.02


def test_crop_and_rotation_in_one_warp_equal_two_steps_on_smooth_images() -> None:
    """Composed, an image is sampled once instead of twice: on a smooth image the results agree closely."""
    rows, columns = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")
    smooth = (0.5 + 0.4 * torch.sin(rows / 6) * torch.cos(columns / 7))[None, None].repeat(20, 1, 1, 1)
    both = Augmentation(rotation=20, crop=4, zoom_out=(1, 3), zoom_out_prob=0.5, flip_prob=0.5)
    drawn = augment.draw(both, 20, torch.Generator().manual_seed(3))
    fast = augment.apply(smooth, drawn, both, signed=False)
    slow = torch.stack([step_by_step(view, drawn, index) for index, view in enumerate(smooth)])
    black_differs = ((fast == 0) != (slow == 0)).float().mean()
    close = ((fast - slow).abs() < 0.12).float().mean()
    assert float(black_differs) < 0.02
    assert float(close) > 0.97


def test_the_area_outside_the_crop_is_black_or_the_rest_of_the_image() -> None:
    white = torch.ones(200, 1, 20, 20)
    rotated_crop = Augmentation(rotation=45, crop=6, crop_prob=1.0)
    generator = torch.Generator().manual_seed(0)
    drawn = augment.draw(rotated_crop, 200, generator)
    black = augment.apply(white, drawn, rotated_crop, signed=False)
    image = augment.apply(white, drawn, replace(rotated_crop, fill="image"), signed=False)
    rotated = drawn.angle.abs() > 0.3
    assert bool((black[rotated].flatten(1).min(1).values == 0).all())
    assert float(image.mean()) > float(black.mean())
    assert bool((image[rotated & (drawn.cut == 0)][:, 0, 0, 0] == 0).all()), "beyond the image it is black"


@given(st.sampled_from([1, 3]), st.integers(5, 10), st.integers(5, 10), st.integers(0, 10_000))
@settings(max_examples=40)
def test_background_fill_agrees_with_a_slow_loop(
    channels: int, height: int, width: int, seed: int
) -> None:
    batch = views(3, channels, height, width, seed)
    settings = replace(BACKGROUND, sampling="bilinear")
    drawn = augment.draw(settings, 3, torch.Generator().manual_seed(seed))
    slow = []
    for index, view in enumerate(batch.tolist()):
        cut, top, left, *pad = (int(value[index]) for value in drawn[:7])
        flip, angle = float(drawn.flip[index]), float(drawn.angle[index])
        slow.append([reference.warp_on_background(plane, (cut, top, left), tuple(pad), flip, angle) for plane in view])
    torch.testing.assert_close(augment.warp(batch, drawn, settings), torch.tensor(slow), atol=1e-4, rtol=0)


@given(st.sampled_from(["nearest", "bilinear"]), st.integers(0, 10_000))
def test_background_fill_leaves_an_image_of_one_color_unchanged(
    sampling: Literal["nearest", "bilinear"], seed: int
) -> None:
    """No view gets a frame that reveals how the image was rotated or cropped."""
    generator = torch.Generator().manual_seed(seed)
    settings = replace(BACKGROUND, sampling=sampling)
    color = torch.rand(4, 3, 1, 1, generator=generator).expand(4, 3, 9, 7)
    torch.testing.assert_close(augment.warp(color, augment.draw(settings, 4, generator), settings), color)


@given(st.sampled_from([1, 3]), st.sampled_from(["nearest", "bilinear"]), st.integers(0, 10_000))
def test_background_fill_changes_only_the_area_outside_the_image(
    channels: int, sampling: Literal["nearest", "bilinear"], seed: int
) -> None:
    batch = views(4, channels, 9, 7, seed)
    background, image = replace(BACKGROUND, sampling=sampling), replace(BACKGROUND, sampling=sampling, fill="image")
    drawn = augment.draw(background, 4, torch.Generator().manual_seed(seed))
    within = augment.warp(torch.ones_like(batch), drawn, image) > 1 - 1e-6
    torch.testing.assert_close(
        augment.warp(batch, drawn, background)[within], augment.warp(batch, drawn, image)[within]
    )


@given(st.integers(0, 10_000))
def test_draws_keep_within_their_ranges(seed: int) -> None:
    drawn = augment.draw(FULL, 64, torch.Generator().manual_seed(seed))
    assert set(drawn.cut.tolist()) <= {0.0, 1.0, 2.0, 3.0}
    assert bool((drawn.top <= drawn.cut).all() and (drawn.left <= drawn.cut).all())
    padded = drawn.pad_height + drawn.pad_width
    assert bool(((drawn.pad_height == 0) | (drawn.pad_width == 0)).all()), "zoom-out touches one axis only"
    assert set(padded.tolist()) <= {0.0, 1.0, 2.0, 3.0, 4.0}
    assert bool((drawn.pad_top <= drawn.pad_height).all())
    assert bool((drawn.angle.abs() <= math.radians(25)).all())
    for name in ("brightness", "contrast", "saturation"):
        assert bool(((getattr(drawn, name) >= 0.6) & (getattr(drawn, name) <= 1.4)).all())


def test_every_crop_edge_of_table_4_is_drawn_equally_often() -> None:
    drawn = augment.draw(Augmentation(crop=4), 20_000, torch.Generator().manual_seed(0))
    shares = torch.bincount(drawn.cut.long(), minlength=5).double() / 20_000
    torch.testing.assert_close(shares, torch.full((5,), 0.2, dtype=torch.double), atol=0.015, rtol=0)


def test_probabilities_are_respected() -> None:
    drawn = augment.draw(FULL, 20_000, torch.Generator().manual_seed(0))
    assert float((drawn.angle != 0).float().mean()) == pytest.approx(0.8, abs=0.02)
    assert float((drawn.flip < 0).float().mean()) == pytest.approx(0.5, abs=0.02)
    assert float((drawn.pad_height + drawn.pad_width > 0).float().mean()) == pytest.approx(0.7, abs=0.02)


def test_no_augmentation_changes_nothing() -> None:
    batch = views(3, 3, 6, 5, 0)
    assert torch.equal(augment.augment(batch, Augmentation(), torch.Generator(), signed=False), batch)


def test_the_generator_alone_decides() -> None:
    batch = views(5, 3, 9, 9, 0)
    first = augment.augment(batch, FULL, torch.Generator().manual_seed(1), signed=False)
    assert torch.equal(first, augment.augment(batch, FULL, torch.Generator().manual_seed(1), signed=False))
    assert not torch.equal(first, augment.augment(batch, FULL, torch.Generator().manual_seed(2), signed=False))


def test_a_quarter_turn_by_hand() -> None:
    drawn = augment.draw(Augmentation(rotation=90), 1, torch.Generator())
    drawn = drawn._replace(angle=torch.tensor([math.pi / 2]))
    image = torch.tensor([[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]]]) / 10
    turned = augment.warp(image, drawn, Augmentation(rotation=90))
    torch.testing.assert_close(turned * 10, torch.tensor([[[[3.0, 6.0, 9.0], [2.0, 5.0, 8.0], [1.0, 4.0, 7.0]]]]))


def test_bilinear_sampling_of_half_a_pixel_by_hand() -> None:
    drawn = augment.draw(Augmentation(crop=1, sampling="bilinear"), 1, torch.Generator())
    drawn = drawn._replace(cut=torch.tensor([1.0]), top=torch.tensor([0.0]), left=torch.tensor([0.0]))
    image = torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]])
    # The window is one pixel: the second row and column of the output lie 1/4 beyond its middle.
    warped = augment.warp(image, drawn, Augmentation(crop=1, sampling="bilinear", fill="image"))
    torch.testing.assert_close(warped[0, 0, 1], torch.tensor([0.0, 0.25]))


def test_widening_adds_to_rotation_and_crop() -> None:
    wide = augment.widened(Augmentation(rotation=10, rotation_prob=0.5, crop=2), 15, 3)
    assert (wide.rotation, wide.rotation_prob, wide.crop) == (25, 1.0, 5)
