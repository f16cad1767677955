from __future__ import annotations

from dataclasses import replace

import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from converge_to_surprise.config import Views
from converge_to_surprise.core import views

sizes = st.tuples(
    st.integers(1, 3), st.sampled_from([1, 3]), st.integers(1, 7), st.integers(1, 7), st.integers(0, 2**31)
)


def random_images(count: int, channels: int, height: int, width: int, seed: int) -> Tensor:
    return torch.rand(count, channels, height, width, generator=torch.Generator().manual_seed(seed))


@given(sizes, st.one_of(st.none(), st.integers(0, 1000)))
def test_views_are_disjoint_and_sum_to_the_image(size: tuple[int, int, int, int, int], coin: int | None) -> None:
    images = random_images(*size)
    generator = None if coin is None else torch.Generator().manual_seed(coin)
    first, second = views.make_views(images, Views(), generator)
    assert torch.equal(first + second, images)
    assert not bool(((first != 0) & (second != 0)).any())


@given(sizes, st.booleans())
def test_views_agree_with_the_paper(size: tuple[int, int, int, int, int], fill: bool) -> None:
    images = random_images(*size)
    slow = reference.filled_view if fill else reference.masked_view
    for view, white in zip(views.make_views(images, Views(fill_masked=fill)), (True, False), strict=True):
        expected = torch.tensor([slow(image.tolist(), white) for image in images])
        torch.testing.assert_close(view, expected)


def test_a_hand_computed_split() -> None:
    image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    white, black = views.make_views(image, Views())
    assert white.tolist() == [[[[1.0, 0.0], [0.0, 4.0]]]]
    assert black.tolist() == [[[[0.0, 2.0], [3.0, 0.0]]]]
    white, black = views.make_views(image, Views(fill_masked=True))
    assert white.tolist() == [[[[1.0, 2.5], [2.5, 4.0]]]]
    assert black.tolist() == [[[[2.5, 2.0], [3.0, 2.5]]]]


def test_the_coin_is_fair_and_drawn_per_image() -> None:
    masks = views.split_masks(2000, 3, 3, torch.Generator().manual_seed(0))
    corner = masks[:, 0, 0, 0].float().mean()
    assert 0.45 < float(corner) < 0.55
    assert torch.equal(masks[:, 0, 0, 0], ~masks[:, 0, 0, 1])


def test_without_a_generator_view_i_is_always_white() -> None:
    masks = views.split_masks(5, 4, 5, None)
    assert bool(masks[:, 0, 0, 0].all())
    assert not bool(masks[:, 0, 0, 1].any())


@pytest.mark.parametrize("fill", [False, True])
def test_view_j_can_come_from_a_partner(fill: bool) -> None:
    """The partner is masked with the color that view i does not show, as if it were the image itself."""
    images, partners = random_images(6, 1, 5, 7, 0), random_images(6, 1, 5, 7, 1)

    def both(first: Tensor, second: Tensor | None) -> tuple[Tensor, Tensor]:
        return views.make_views(first, Views(fill_masked=fill), torch.Generator().manual_seed(3), second)

    view_i, view_j = both(images, partners)
    assert torch.equal(view_i, both(images, None)[0])
    assert torch.equal(view_j, both(partners, None)[1])


@given(sizes, st.integers(0, 1000))
def test_a_filled_view_depends_on_its_own_pixels_only(size: tuple[int, int, int, int, int], seed: int) -> None:
    images = random_images(*size)
    other = torch.rand_like(images)
    white = views.chessboard(size[2], size[3])
    changed = torch.where(white, images, other)  # black pixels replaced: the white view must not change
    same, _ = views.make_views(changed, Views(fill_masked=True))
    before, _ = views.make_views(images, Views(fill_masked=True))
    assert torch.equal(same, before)


def test_upsampling_is_bilinear_and_matches_the_brightness() -> None:
    images = random_images(3, 1, 16, 16, 1)
    first, _ = views.make_views(images, Views(upsample=2))
    assert first.shape == (3, 1, 32, 32)
    for image, large in zip(images, first, strict=True):
        masked = reference.masked_view(image.tolist(), white=True)
        plain = torch.tensor([reference.bilinear_double(channel) for channel in masked])
        source = sorted(image.flatten().tolist())[int(0.99 * 256) - 1]
        enlarged = sorted(plain.flatten().tolist())[int(0.99 * 1024) - 1]
        torch.testing.assert_close(large, (plain * (source / enlarged)).clamp(0, 1))


def test_a_black_image_stays_black_when_upsampled() -> None:
    black = torch.zeros(1, 1, 4, 4)
    assert not bool(torch.stack(views.make_views(black, Views(upsample=2))).any())


@pytest.mark.parametrize(("value", "expected"), [(0, 0.0), (255, 1.0), (51, 0.2)])
def test_bytes_become_fractions(value: int, expected: float) -> None:
    assert views.to_float(torch.tensor([value], dtype=torch.uint8)).item() == pytest.approx(expected)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10_000))
def test_the_background_is_the_median_of_the_outermost_pixels(height: int, width: int, seed: int) -> None:
    images = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(seed))
    slow = torch.tensor([[reference.background(channel) for channel in image] for image in images.tolist()])
    torch.testing.assert_close(views.background(images)[..., 0, 0], slow)


SIGNED = Views(fill_masked=True, background="remove")


@given(st.integers(3, 9), st.integers(3, 9), st.integers(0, 10_000))
def test_signed_views_are_differences_from_their_background(height: int, width: int, seed: int) -> None:
    images = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(seed))
    for white, fast in zip((True, False), views.make_views(images, SIGNED), strict=True):
        slow = []
        for image in images.tolist():
            filled = reference.filled_view(image, white)
            slow.append([[[value - reference.background(plane) for value in row] for row in plane] for plane in filled])
        torch.testing.assert_close(fast, torch.tensor(slow))


@given(st.sampled_from([1, 2]), st.integers(4, 9), st.integers(0, 10_000))
def test_signed_views_do_not_depend_on_the_background_color_and_invert_with_the_image(scale: int, side: int, seed: int) -> None:
    """The same picture on a lighter background gives the same views; the negative of an image gives negative views."""
    generator = torch.Generator().manual_seed(seed)
    foreground = torch.zeros(2, 3, side, side)
    foreground[..., 2:-2, 2:-2] = 0.4 * torch.rand(2, 3, side - 4, side - 4, generator=generator)
    color = 0.5 * torch.rand(2, 3, 1, 1, generator=generator)
    settings = replace(SIGNED, upsample=scale)
    expected = torch.stack(views.make_views(foreground, settings))
    torch.testing.assert_close(torch.stack(views.make_views(color + foreground, settings)), expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(torch.stack(views.make_views(1 - foreground, settings)), -expected, atol=1e-4, rtol=0)


@given(st.sampled_from([1, 2]), st.integers(0, 10_000))
def test_signed_views_share_no_pixel_either(scale: int, seed: int) -> None:
    """Each view subtracts its own background: changing the pixels of view j does not change view i."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(1, 1, 6, 7, generator=generator)
    settings = replace(SIGNED, upsample=scale)
    mask = views.split_masks(1, 6, 7, None)
    changed = torch.where(mask, images, torch.rand(images.shape, generator=generator))
    before, after = views.make_views(images, settings), views.make_views(changed, settings)
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])


def test_views_that_are_not_filled_keep_their_background() -> None:
    """Half of their outermost pixels are masked, so their median is not the background."""
    images = random_images(2, 1, 6, 6, 0)
    ours, plain = (torch.stack(views.make_views(images, each)) for each in (Views(background="remove"), Views()))
    assert torch.equal(ours, plain)
