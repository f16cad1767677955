from __future__ import annotations

from typing import Literal

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
from converge_to_surprise.search import neighbors


def search_all(points: Tensor, count: int, positions: Tensor) -> Tensor:
    """Neighbors of all points among those at some positions."""
    pool = neighbors.NeighborPool(points[positions], positions, threads=1)
    return pool.search_all(lambda start, stop: points[start:stop], len(points), count)


@given(st.integers(3, 40), st.integers(1, 6), st.integers(0, 999))
def test_the_nearest_other_points_are_found(count: int, wanted: int, seed: int) -> None:
    points = torch.from_numpy(np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32))
    found = search_all(points, wanted, torch.arange(count))
    distance = torch.cdist(points.double(), points.double())
    distance.fill_diagonal_(torch.inf)
    kept = min(wanted, count - 1)
    expected = distance.sort(dim=1).values[:, :kept]
    torch.testing.assert_close(distance.gather(1, found), expected, atol=1e-3, rtol=1e-3)


def test_no_image_is_its_own_neighbor_even_among_identical_ones() -> None:
    points = torch.zeros(6, 2)
    found = search_all(points, 2, torch.arange(6))
    assert found.shape == (6, 2)
    assert not bool((found == torch.arange(6)[:, None]).any())


def test_neighbors_come_from_the_pool() -> None:
    points = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    positions = torch.arange(0, 30, 3)
    found = search_all(points, 4, positions)
    assert set(found.flatten().tolist()) <= set(positions.tolist())
    assert not bool((found == torch.arange(30)[:, None]).any())


def test_neighbors_by_pixels_and_by_features_have_the_same_class(small: Config) -> None:
    images, classes = striped_images(300)
    network = random_network(Config(seed=0, max_clusters=8, network=Network(width=4)), 1, 1)
    for given_network in (None, network):
        found = neighbors.nearest_neighbors(images, small, 1, given_network)
        assert found.shape == (300, small.relaxed.neighbors)
        same = classes[found.numpy()] == classes[:, None]
        assert same.mean() > 0.9


def test_large_images_are_compared_at_a_small_size() -> None:
    plain = torch.full((1, 1, 96, 96), 100, dtype=torch.uint8)
    striped = torch.tensor([50, 100, 150], dtype=torch.uint8).repeat(32).expand(1, 1, 96, 96)
    others = torch.randint(0, 256, (10, 1, 96, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images = torch.cat([plain, striped, others])
    points = neighbors.pixel_embedding(images, torch.Generator().manual_seed(0), Config())(images)
    assert points.shape == (12, 12)
    assert float((points[0] - points[1]).norm()) < 1e-3 * float((points[0] - points[2]).norm())


def test_with_the_background_removed_neighbors_do_not_depend_on_it() -> None:
    generator = torch.Generator().manual_seed(0)
    foregrounds = torch.zeros(40, 3, 12, 12)
    foregrounds[..., 3:-3, 3:-3] = torch.rand(40, 1, 6, 6, generator=generator).round() * 0.3
    backgrounds = 0.7 * torch.rand(80, 3, 1, 1, generator=generator)
    images = ((torch.cat([foregrounds, foregrounds]) + backgrounds) * 255).round().to(torch.uint8)
    twins = (torch.arange(80) + 40) % 80

    def fraction_of_twins(background: Literal["keep", "remove"]) -> float:
        config = Config(views=Views(fill_masked=True, background=background))
        found = neighbors.nearest_neighbors(images, config, 1)
        return float((found[:, 0] == twins).float().mean())

    assert fraction_of_twins("remove") == 1
    assert fraction_of_twins("keep") < 0.5


def test_whitened_features_have_nearly_the_same_spread_in_all_directions() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(4000, 3, generator=generator) * torch.tensor([1.0, 5.0, 20.0])
    spread = neighbors.Whitening.of(features)(features).std(0)
    assert float(spread.max() / spread.min()) < 2


@pytest.mark.parametrize(("probability", "expected"), [(0.0, 0), (1.0, 1000)])
def test_partners_are_neighbors_with_the_given_probability(probability: float, expected: int) -> None:
    table = torch.stack([torch.arange(1000) + 1000, torch.arange(1000) + 2000], 1)
    positions = torch.arange(1000)
    partners = neighbors.draw_partners(table, positions, probability, torch.Generator().manual_seed(0))
    assert int((partners != positions).sum()) == expected
    assert set((partners - positions).tolist()) == ({0} if probability == 0 else {1000, 2000})


def test_half_of_the_partners_are_neighbors() -> None:
    table = torch.arange(1000)[:, None] + 1000
    partners = neighbors.draw_partners(table, torch.arange(1000), 0.5, torch.Generator().manual_seed(0))
    assert 400 < int((partners >= 1000).sum()) < 600


@given(st.integers(0, 10_000), st.integers(1, 600))
def test_stretches_cover_all_rows_and_none_is_tiny(rows: int, least: int) -> None:
    parts = list(neighbors.stretches(rows, least))
    assert [row for start, stop in parts for row in range(start, stop)] == list(range(rows))
    assert all(stop - start >= min(rows, least) and stop - start < 2 * least for start, stop in parts)


def test_a_stretch_of_rows_gets_the_same_neighbors_as_within_all_rows() -> None:
    """So another process can search it."""
    points = torch.randn(3000, 4, generator=torch.Generator().manual_seed(0))
    positions = torch.arange(0, 3000, 2)
    whole = search_all(points, 3, positions)
    part = neighbors.NeighborPool(points[positions], positions, threads=1).search(points[512:1024], 512, 3)
    assert torch.equal(part, whole[512:1024])


def test_neighbors_do_not_depend_on_the_number_of_rows_searched_at_once(
    small: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = striped_images(900)[0]
    network = random_network(Config(seed=0, max_clusters=8, network=Network(width=4)), 1, 1)
    whole = [neighbors.nearest_neighbors(images, small, 1, given_network) for given_network in (None, network)]
    monkeypatch.setattr(neighbors.stretches, "__defaults__", (256,))
    for given_network, expected in zip((None, network), whole, strict=True):
        assert torch.equal(neighbors.nearest_neighbors(images, small, 1, given_network), expected)


def test_features_of_many_images_are_whitened_on_the_pool(small: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit at most the features of the pool are kept in memory; the neighbors are as good."""
    images, classes = striped_images(300)
    network = random_network(Config(seed=0, max_clusters=8, network=Network(width=4)), 1, 1)
    few = neighbors.nearest_neighbors(images, small, 1, network)
    monkeypatch.setattr(neighbors, "LIMIT", 299)
    chunks: list[int] = []

    def counted(network: ClusterNetwork, part: Tensor, settings: Views) -> Tensor:
        chunks.append(len(part))
        return view_features(network, part, settings)

    monkeypatch.setattr(neighbors, "view_features", counted)
    # The pool holds all images, so the whitening is the same.
    assert torch.equal(neighbors.nearest_neighbors(images, small, 1, network), few)
    chunks.clear()
    monkeypatch.setattr(neighbors, "POOL", 120)
    monkeypatch.setattr(neighbors.stretches, "__defaults__", (64,))
    found = neighbors.nearest_neighbors(images, small, 1, network)
    assert max(chunks) < 128
    assert set(found.flatten().tolist()) <= set(neighbors.pool_positions(300, small.seed).tolist())
    assert (classes[found.numpy()] == classes[:, None]).mean() > 0.9


@pytest.mark.parametrize(("limit", "pool_bytes"), [(299, 2**29), (299, 300), (300, 2**29)])
def test_partners_have_the_same_pixels_from_memory_and_from_disk(
    limit: int, pool_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LIMIT", limit), ("POOL", 100), ("POOL_BYTES", pool_bytes)):
        monkeypatch.setattr(neighbors, name, value)
    images = torch.randint(0, 256, (300, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    members = neighbors.pool_positions(300, 7)
    positions = torch.arange(40, 90)
    partners = torch.where(torch.arange(50) % 3 == 0, positions, members[torch.arange(50) * 2])
    pool = neighbors.PoolImages(images, 7)
    assert torch.equal(pool.partners(images[positions], positions, partners), images[partners])
    assert (pool._in_memory is not None) == (limit == 299 and pool_bytes > 300)
