from __future__ import annotations

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from converge_to_surprise.config import Views
from converge_to_surprise.core import edges
from converge_to_surprise.core.views import chessboard, make_views

EDGES = Views(fill_masked=True, edges=True)
SEEDS = st.integers(0, 10_000)


def pictures(count: int, channels: int, height: int, width: int, seed: int) -> Tensor:
    return torch.rand(count, channels, height, width, generator=torch.Generator().manual_seed(seed))


@given(st.sampled_from([1, 3]), st.integers(2, 14), st.integers(2, 14), SEEDS)
@settings(max_examples=30)
def test_edges_agree_with_a_slow_loop(channels: int, height: int, width: int, seed: int) -> None:
    batch = pictures(2, channels, height, width, seed)
    slow = [[reference.edge_strength(picture, edges.FAINT)] for picture in batch.tolist()]
    torch.testing.assert_close(edges.edge_map(batch), torch.tensor(slow), atol=1e-5, rtol=0)


@given(st.sampled_from([1, 3]), SEEDS)
def test_edges_lie_between_0_and_1_and_plain_pictures_have_none(channels: int, seed: int) -> None:
    batch = pictures(3, channels, 9, 12, seed)
    found = edges.edge_map(batch)
    assert found.shape == (3, 1, 9, 12)
    assert bool(((found >= 0) & (found < 1)).all())
    plain = batch[:, :, :1, :1].expand(3, channels, 9, 12)
    torch.testing.assert_close(edges.edge_map(plain), torch.zeros(3, 1, 9, 12), atol=1e-4, rtol=0)


@given(SEEDS, st.floats(0.5, 1.0), st.floats(-0.2, 0.2))
def test_edges_hardly_depend_on_the_light(seed: int, contrast: float, brightness: float) -> None:
    batch = pictures(3, 3, 12, 12, seed)
    changed = edges.edge_map(batch * contrast + brightness)
    torch.testing.assert_close(changed, edges.edge_map(batch), atol=0.05, rtol=0)


@given(st.sampled_from([1, 3]), st.integers(4, 12), st.integers(4, 12), SEEDS)
@settings(max_examples=40)
def test_the_edges_of_the_two_views_share_no_pixel(channels: int, height: int, width: int, seed: int) -> None:
    """Whatever happens to the black squares, the edges of the view of the white ones stay the same, and vice versa."""
    images, others = pictures(2, channels, height, width, seed), pictures(2, channels, height, width, seed + 1)
    white = chessboard(height, width)
    view_i, view_j = make_views(images, EDGES)
    assert torch.equal(make_views(torch.where(white, images, others), EDGES)[0], view_i)
    assert torch.equal(make_views(torch.where(white, others, images), EDGES)[1], view_j)


@given(st.sampled_from([1, 3]), SEEDS)
@settings(max_examples=5, deadline=None)
def test_edge_histograms_are_those_of_a_slow_loop(channels: int, seed: int) -> None:
    batch = pictures(1, channels, 32, 32, seed)
    expected = reference.edge_histogram(batch[0].tolist(), edges.ORIENTATIONS, edges.CELL, edges.FAINT)
    torch.testing.assert_close(edges.edge_histograms(batch)[0], torch.tensor(expected), atol=1e-4, rtol=1e-3)


@given(SEEDS)
@settings(deadline=None)
def test_edge_histograms_follow_mirror_images(seed: int) -> None:
    """The mirror image of a picture has the mirrored cells, with mirrored directions."""
    batch = pictures(2, 1, 32, 32, seed)
    cells, mirrored = (
        edges.edge_histograms(part).reshape(2, edges.ORIENTATIONS, 7, 7) for part in (batch, batch.flip(3))
    )
    half = edges.ORIENTATIONS // 2
    swapped = [(half - direction) % edges.ORIENTATIONS for direction in range(edges.ORIENTATIONS)]
    torch.testing.assert_close(mirrored[:, swapped].flip(3), cells, atol=1e-3, rtol=0)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (32, 32), (100, 100), (6, 900), (900, 6)])
def test_edge_histograms_tell_directions_apart(height: int, width: int) -> None:
    across = (torch.arange(width) >= width // 2).float().expand(height, width)
    down = (torch.arange(height) >= height // 2).float()[:, None].expand(height, width)
    batch = torch.stack([across, down, 1 - across, 1 - down])[:, None]
    found = edges.edge_histograms(batch)
    assert found.shape == (4, edges.ORIENTATIONS * 7 * 7)  # at any size and shape
    assert found.reshape(4, edges.ORIENTATIONS, -1).sum(2).argmax(1).tolist() == [0, 3, 6, 9]


@given(SEEDS, st.floats(0.3, 1.0), st.floats(-0.2, 0.2))
@settings(deadline=None)
def test_edge_histograms_hardly_depend_on_the_light(seed: int, contrast: float, brightness: float) -> None:
    batch = pictures(3, 3, 32, 32, seed)
    changed = edges.edge_histograms(batch * contrast + brightness)
    torch.testing.assert_close(changed, edges.edge_histograms(batch), atol=0.02, rtol=0)


def test_edges_between_colors_of_one_brightness_count() -> None:
    """Red and green that look equally bright."""
    red, green = torch.tensor([0.587, 0.0, 0.0]), torch.tensor([0.0, 0.299, 0.0])
    left = (torch.arange(32) < 16)[:, None]
    batch = torch.where(left, red, green).t()[None, :, None, :].expand(1, 3, 32, 32).contiguous()
    assert float(edges.edge_map(batch).abs().max()) < 1e-6
    assert float(edges.edge_histograms(batch).max()) > 0.1


def test_light_that_falls_off_is_no_edge() -> None:
    light = torch.linspace(0.2, 0.9, 24).expand(1, 3, 24, 24)
    step = (torch.arange(24) >= 12).float().expand(1, 3, 24, 24)
    assert float(edges.edge_map(light)[..., 5:-5].max()) < 0.01
    assert float(edges.edge_map(step)[..., 11:13].min()) > 0.5


def test_edges_without_filled_views_are_refused() -> None:
    with pytest.raises(ValueError, match=r"views\.edges is True"):
        Views(edges=True)
    with pytest.raises(ValueError, match=r"views\.edges is True"):
        Views(fill_masked=True, background="remove", edges=True)
