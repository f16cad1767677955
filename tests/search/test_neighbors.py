from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from converge_to_surprise.config import Config, Network, Views
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.model.inference import view_features
from converge_to_surprise.model.network import ClusterNetwork
from converge_to_surprise.search import neighbors as neighbors


@given(st.integers(3, 40), st.integers(1, 6), st.integers(0, 999))
def test_the_nearest_others_are_found(count: int, wanted: int, seed: int) -> None:
    points = torch.from_numpy(np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32))
    found = neighbors.nearest(points, wanted, torch.arange(count), 1)
    distance = torch.cdist(points.double(), points.double())
    distance.fill_diagonal_(torch.inf)
    kept = min(wanted, count - 1)
    expected = distance.sort(dim=1).values[:, :kept]
    torch.testing.assert_close(distance.gather(1, found), expected, atol=1e-3, rtol=1e-3)


def test_twins_are_each_others_neighbors_and_nobody_is_his_own() -> None:
    points = torch.zeros(6, 2)
    found = neighbors.nearest(points, 2, torch.arange(6), 1)
    assert found.shape == (6, 2)
    assert not bool((found == torch.arange(6)[:, None]).any())


def test_neighbors_come_from_the_pool() -> None:
    points = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    pool = torch.arange(0, 30, 3)
    found = neighbors.nearest(points, 4, pool, 1)
    assert set(found.flatten().tolist()) <= set(pool.tolist())
    assert not bool((found == torch.arange(30)[:, None]).any())


def test_neighbors_by_pixels_and_by_features_share_the_kind(small: Config) -> None:
    images, kinds = striped_images(300)
    network = random_network(Config(seed=0, max_clusters=8, network=Network(width=4)), 1, 1)
    for given_network in (None, network):
        found = neighbors.alike(given_network, images, small, 1)
        assert found.shape == (300, small.relaxed.neighbors)
        same = kinds[found.numpy()] == kinds[:, None]
        assert same.mean() > 0.9


def test_large_images_are_compared_at_a_small_size() -> None:
    plain = torch.full((1, 1, 96, 96), 100, dtype=torch.uint8)
    striped = torch.tensor([50, 100, 150], dtype=torch.uint8).repeat(32).expand(1, 1, 96, 96)
    others = torch.randint(0, 256, (10, 1, 96, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images = torch.cat([plain, striped, others])
    points = neighbors.pixel_space(images, torch.Generator().manual_seed(0))(images)
    assert points.shape == (12, 12)
    assert float((points[0] - points[1]).norm()) < 1e-3 * float((points[0] - points[2]).norm())


def test_without_their_ground_images_are_neighbors_on_any_paper() -> None:
    generator = torch.Generator().manual_seed(0)
    things = torch.zeros(40, 3, 12, 12)
    things[..., 3:-3, 3:-3] = torch.rand(40, 1, 6, 6, generator=generator).round() * 0.3
    papers = 0.7 * torch.rand(80, 3, 1, 1, generator=generator)
    images = ((torch.cat([things, things]) + papers) * 255).round().to(torch.uint8)
    twins = (torch.arange(80) + 40) % 80
    share = {}
    for background in ("kept", "removed"):
        found = neighbors.alike(None, images, Config(views=Views(fill_masked=True, background=background)), 1)
        share[background] = float((found[:, 0] == twins).float().mean())
    assert share["removed"] == 1
    assert share["kept"] < 0.5


def test_whitened_features_vary_alike_in_all_directions() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(4000, 3, generator=generator) * torch.tensor([1.0, 5.0, 20.0])
    spread = neighbors.Whitening.of(features)(features).std(0)
    assert float(spread.max() / spread.min()) < 2


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (1.0, 1000)])
def test_partners_are_neighbors_in_a_share_of_the_pairs(share: float, expected: int) -> None:
    table = torch.stack([torch.arange(1000) + 1000, torch.arange(1000) + 2000], 1)
    positions = torch.arange(1000)
    partners = neighbors.partners(table, positions, share, torch.Generator().manual_seed(0))
    assert int((partners != positions).sum()) == expected
    assert set((partners - positions).tolist()) <= ({0} if share == 0 else {1000, 2000})


def test_half_of_the_partners_are_neighbors() -> None:
    table = torch.arange(1000)[:, None] + 1000
    partners = neighbors.partners(table, torch.arange(1000), 0.5, torch.Generator().manual_seed(0))
    assert 400 < int((partners >= 1000).sum()) < 600


@given(st.integers(0, 10_000), st.integers(1, 600))
def test_stretches_cover_all_rows_and_none_is_tiny(rows: int, least: int) -> None:
    parts = list(neighbors.stretches(rows, least))
    assert [row for start, stop in parts for row in range(start, stop)] == list(range(rows))
    assert all(stop - start >= min(rows, least) and stop - start < 2 * least for start, stop in parts)


def test_rows_are_searched_alone_as_among_all() -> None:
    """Any stretch of rows can be left to another process."""
    points = torch.randn(3000, 4, generator=torch.Generator().manual_seed(0))
    pool = torch.arange(0, 3000, 2)
    whole = neighbors.nearest(points, 3, pool, 1)
    part = neighbors.search(points[512:1024], 512, points[pool], pool, 3, 1)
    assert torch.equal(part, whole[512:1024])


def test_the_answer_does_not_depend_on_how_many_rows_are_looked_at_together(
    small: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = striped_images(900)[0]
    network = random_network(Config(seed=0, max_clusters=8, network=Network(width=4)), 1, 1)
    whole = [neighbors.alike(given_network, images, small, 1) for given_network in (None, network)]
    monkeypatch.setattr(neighbors.stretches, "__defaults__", (256,))
    for given_network, expected in zip((None, network), whole, strict=True):
        assert torch.equal(neighbors.alike(given_network, images, small, 1), expected)


def test_many_images_are_whitened_by_the_pool(small: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit no more than the pool's features are held; the neighbors are as good."""
    images, kinds = striped_images(300)
    network = random_network(Config(seed=0, max_clusters=8, network=Network(width=4)), 1, 1)
    few = neighbors.alike(network, images, small, 1)
    monkeypatch.setattr(neighbors, "LIMIT", 299)
    looked_at: list[int] = []

    def counted(network: ClusterNetwork, part: Tensor, settings: Views) -> Tensor:
        looked_at.append(len(part))
        return view_features(network, part, settings)

    monkeypatch.setattr(neighbors, "view_features", counted)
    assert torch.equal(neighbors.alike(network, images, small, 1), few)  # a pool of all images has their whitening
    monkeypatch.setattr(neighbors, "POOL", 120)
    monkeypatch.setattr(neighbors.stretches, "__defaults__", (64,))
    found = neighbors.alike(network, images, small, 1)
    assert max(looked_at[2:]) < 128
    assert set(found.flatten().tolist()) <= set(neighbors.pool_positions(300, small.seed).tolist())
    assert (kinds[found.numpy()] == kinds[:, None]).mean() > 0.9


@pytest.mark.parametrize(("limit", "room"), [(299, 2**29), (299, 300), (300, 2**29)])
def test_partners_have_the_same_pixels_in_memory_and_on_disk(
    limit: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LIMIT", limit), ("POOL", 100), ("POOL_BYTES", room)):
        monkeypatch.setattr(neighbors, name, value)
    images = torch.randint(0, 256, (300, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    members = neighbors.pool_positions(300, 7)
    positions = torch.arange(40, 90)
    partners = torch.where(torch.arange(50) % 3 == 0, positions, members[torch.arange(50) * 2])
    pool = neighbors.Pool(images, 7)
    assert torch.equal(pool.partners(images[positions], positions, partners), images[partners])
    assert (pool._kept is not None) == (limit == 299 and room > 300)
