from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.config import Config, Network
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.learn import neighbours
from converge_to_surprise.learn.backbone import fresh_network


@given(st.integers(3, 40), st.integers(1, 6), st.integers(0, 999))
def test_the_nearest_others_are_found(count: int, wanted: int, seed: int) -> None:
    points = torch.from_numpy(np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32))
    found = neighbours.nearest(points, wanted, torch.arange(count), 1)
    distance = torch.cdist(points.double(), points.double())
    distance.fill_diagonal_(torch.inf)
    kept = min(wanted, count - 1)
    expected = distance.sort(dim=1).values[:, :kept]
    torch.testing.assert_close(distance.gather(1, found), expected, atol=1e-3, rtol=1e-3)


def test_twins_are_each_others_neighbours_and_nobody_is_his_own() -> None:
    points = torch.zeros(6, 2)
    found = neighbours.nearest(points, 2, torch.arange(6), 1)
    assert found.shape == (6, 2)
    assert not bool((found == torch.arange(6)[:, None]).any())


def test_neighbours_come_from_the_pool() -> None:
    points = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    pool = torch.arange(0, 30, 3)
    found = neighbours.nearest(points, 4, pool, 1)
    assert set(found.flatten().tolist()) <= set(pool.tolist())
    assert not bool((found == torch.arange(30)[:, None]).any())


def test_neighbours_by_pixels_and_by_features_share_the_kind(small: Config) -> None:
    images, kinds = striped_images(300)
    network = fresh_network(1, Network(clusters=8, width=4), 1, 0)
    for given_network in (None, network):
        found = neighbours.alike(given_network, images, small, 1)
        assert found.shape == (300, small.relaxed.neighbours)
        same = kinds[found.numpy()] == kinds[:, None]
        assert same.mean() > 0.9


def test_large_images_are_compared_at_a_small_size() -> None:
    plain = torch.full((1, 1, 96, 96), 100, dtype=torch.uint8)
    striped = torch.tensor([50, 100, 150], dtype=torch.uint8).repeat(32).expand(1, 1, 96, 96)
    others = torch.randint(0, 256, (10, 1, 96, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    points = neighbours.pixel_points(torch.cat([plain, striped, others]), torch.Generator().manual_seed(0))
    assert points.shape == (12, 12)
    assert float((points[0] - points[1]).norm()) < 1e-3 * float((points[0] - points[2]).norm())


def test_whitened_features_vary_alike_in_all_directions() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(4000, 3, generator=generator) * torch.tensor([1.0, 5.0, 20.0])
    spread = neighbours.whitened(features).std(0)
    assert float(spread.max() / spread.min()) < 2


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (1.0, 1000)])
def test_partners_are_neighbours_in_a_share_of_the_pairs(share: float, expected: int) -> None:
    table = torch.stack([torch.arange(1000) + 1000, torch.arange(1000) + 2000], 1)
    positions = torch.arange(1000)
    partners = neighbours.partners(table, positions, share, torch.Generator().manual_seed(0))
    assert int((partners != positions).sum()) == expected
    assert set((partners - positions).tolist()) <= ({0} if share == 0 else {1000, 2000})


def test_half_of_the_partners_are_neighbours() -> None:
    table = torch.arange(1000)[:, None] + 1000
    partners = neighbours.partners(table, torch.arange(1000), 0.5, torch.Generator().manual_seed(0))
    assert 400 < int((partners >= 1000).sum()) < 600
