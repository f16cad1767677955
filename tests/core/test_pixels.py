"""Statistics of pixels: what they see and what they do not."""

from __future__ import annotations

import math

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from converge_to_surprise.core.pixels import STEPS, contrasts, statistics, step_shares


@settings(max_examples=40, deadline=None)
@given(channels=st.sampled_from([1, 3]), height=st.integers(1, 20), width=st.integers(1, 20), seed=st.integers(0, 1000))
def test_images_of_any_size_have_finite_statistics_of_their_own(
    channels: int, height: int, width: int, seed: int
) -> None:
    images = torch.rand(3, channels, height, width, generator=torch.Generator().manual_seed(seed))
    images[0] = 0
    found = statistics(images)
    assert found.shape == (3, statistics(images[:1]).shape[1])
    assert bool(found.isfinite().all())
    torch.testing.assert_close(found[1:2], statistics(images[1:2]))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_mirrored_images_have_the_same_statistics(seed: int) -> None:
    images = torch.rand(4, 3, 8, 12, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(statistics(images.flip(3)), statistics(images))


def test_contrast_by_hand() -> None:
    stripes = torch.tensor([0.0, 1.0]).repeat(4).expand(1, 1, 8, 8)
    across, down, coarse, *_ = contrasts(stripes, 3)[0].tolist()
    assert across == pytest.approx(0, abs=1e-4)
    assert down == coarse == pytest.approx(math.log(1e-5), rel=1e-4)


@settings(max_examples=20, deadline=None)
@given(height=st.integers(2, 9), width=st.integers(2, 9), seed=st.integers(0, 1000))
def test_shares_of_steps_by_a_slow_loop(height: int, width: int, seed: int) -> None:
    levels = torch.randint(0, 80, (2, 1, height, width), generator=torch.Generator().manual_seed(seed))
    found = step_shares(levels.float() / 255, 1)
    for image, shares in zip(levels[:, 0].tolist(), found.tolist(), strict=True):
        assert shares == pytest.approx(reference.step_shares(image, [255 * step for step in STEPS]), rel=1e-4)


def test_edges_on_a_smooth_ground_differ_from_texture_of_the_same_contrast() -> None:
    edge, texture = torch.zeros(2, 1, 1, 16, 16)
    edge[..., 8:] = 1
    texture[..., ::2] = 1 / 15**0.5  # each of 15 steps across has 1/15 of the square of the one step of the edge
    torch.testing.assert_close(contrasts(edge, 1), contrasts(texture, 1), atol=1e-3, rtol=0)
    assert float((step_shares(edge, 1) - step_shares(texture, 1)).abs().max()) > 1


def test_a_gray_image_in_color_differs_from_a_colored_one_of_the_same_brightness() -> None:
    gray = torch.full((1, 3, 8, 8), 0.5)
    colored = gray + torch.tensor([0.2, -0.1, -0.1])[:, None, None]
    assert float((statistics(gray) - statistics(colored)).abs().max()) > 0.1
    torch.testing.assert_close(statistics(gray)[:, :30], statistics(colored)[:, :30])
