from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.neighbor_table import nearest_neighbors
from torch import Tensor

from converge_to_surprise.config import Config, Network, Views
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.model.inference import view_features
from converge_to_surprise.model.network import ClusterNetwork
from converge_to_surprise.search import neighbors
from converge_to_surprise.search.trainer import Trainer


@given(st.integers(3, 40), st.integers(1, 6), st.integers(0, 999))
def test_the_nearest_other_points_are_found(count: int, wanted: int, seed: int) -> None:
    points = torch.from_numpy(np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32))
    found = neighbors.exact_neighbors(points, wanted, threads=1)
    distance = torch.cdist(points.double(), points.double())
    distance.fill_diagonal_(torch.inf)
    kept = min(wanted, count - 1)
    expected = distance.sort(dim=1).values[:, :kept]
    torch.testing.assert_close(distance.gather(1, found), expected, atol=1e-3, rtol=1e-3)


def test_no_image_is_its_own_neighbor_even_among_identical_ones() -> None:
    points = torch.zeros(6, 2)
    found = neighbors.exact_neighbors(points, 2, threads=1)
    assert found.shape == (6, 2)
    assert not bool((found == torch.arange(6)[:, None]).any())


def test_neighbors_by_edges_and_by_features_have_the_same_class(small: Config) -> None:
    images, classes = striped_images(300)
    network = random_network(Config(seed=0, max_clusters=8, network=Network(width=4)), 1, 1)
    for given_network in (None, network):
        found = nearest_neighbors(images, small, 1, given_network)
        assert found.shape == (300, small.relaxed.neighbors)
        same = classes[found.numpy()] == classes[:, None]
        assert same.mean() > 0.9


def test_large_images_are_compared_at_a_small_size() -> None:
    plain = torch.full((1, 1, 96, 96), 100, dtype=torch.uint8)
    striped = torch.tensor([50, 100, 150], dtype=torch.uint8).repeat(32).expand(1, 1, 96, 96)
    others = torch.randint(0, 256, (10, 1, 96, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images = torch.cat([plain, striped, others])
    points = neighbors.picture_embedding(images, torch.Generator().manual_seed(0))(images)
    assert points.shape == (12, 12)
    assert float((points[0] - points[1]).norm()) < 0.2 * float((points[0] - points[2]).norm())


def test_neighbors_do_not_depend_on_light_and_color() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = torch.zeros(40, 3, 12, 12)
    shapes[..., 3:-3, 3:-3] = torch.rand(40, 1, 6, 6, generator=generator).round() * 0.3
    light = 0.7 * torch.rand(80, 3, 1, 1, generator=generator)
    images = ((torch.cat([shapes, shapes]) + light) * 255).round().to(torch.uint8)
    found = nearest_neighbors(images, Config(views=Views(fill_masked=True)), 1)
    assert torch.equal(found[:, 0], (torch.arange(80) + 40) % 80)


def test_what_pixels_say_is_asked_apart_from_edges_unless_color_does_not_count(small: Config) -> None:
    """Bars of four kinds, two of them lighter: a bar is nearest to its kind by edges, to its brightness by pixels."""
    images, kinds = striped_images(200)
    dark = torch.arange(200) % 2 == 0
    images[dark] //= 3
    trainer = Trainer(images, small)
    by_all_edges = trainer.nearest_neighbors()
    both = trainer._unlearned_neighbors(torch.arange(200))
    count = small.relaxed.neighbors
    assert both.shape == (200, 2 * count)
    by_edges, by_pixels = both[:, :count], both[:, count:]
    assert torch.equal(by_edges, by_all_edges)
    some = torch.arange(0, 200, 2)
    assert int(trainer._unlearned_neighbors(some).max()) == 99
    as_dark = [float((dark[near] == dark[:, None]).float().mean()) for near in (by_pixels, by_edges)]
    assert as_dark[0] > 0.95 > 0.8 > as_dark[1]
    assert (kinds[by_edges.numpy()] == kinds[:, None]).mean() > 0.9
    outlines = replace(small, views=Views(fill_masked=True, edges=True))
    colored = Trainer(images, outlines)
    colored.nearest_neighbors()
    assert colored._unlearned_neighbors(some).shape == (100, count)


def test_paper_of_any_brightness_looks_the_same_where_the_background_is_removed() -> None:
    generator = torch.Generator().manual_seed(0)
    ink = torch.zeros(30, 1, 12, 12)
    ink[..., 3:-3, 3:-3] = 0.5 * torch.rand(30, 1, 6, 6, generator=generator)
    paper = 0.5 * torch.rand(60, 1, 1, 1, generator=generator)
    images = ((torch.cat([ink, ink]) + paper) * 255).round().to(torch.uint8)
    nearest = {}
    for background in ("keep", "remove"):
        config = Config(views=Views(fill_masked=True, background=background))
        points = neighbors.pixel_embedding(images, config)(images)
        nearest[background] = neighbors.exact_neighbors(points, 1, threads=1)[:, 0]
    assert torch.equal(nearest["remove"], (torch.arange(60) + 30) % 60)
    assert not torch.equal(nearest["keep"], nearest["remove"])


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


def test_neighbors_do_not_depend_on_the_number_of_rows_searched_at_once(
    small: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = striped_images(900)[0]
    network = random_network(Config(seed=0, max_clusters=8, network=Network(width=4)), 1, 1)
    whole = [nearest_neighbors(images, small, 1, given_network) for given_network in (None, network)]
    monkeypatch.setattr(neighbors.stretches, "__defaults__", (256,))
    for given_network, expected in zip((None, network), whole, strict=True):
        assert torch.equal(nearest_neighbors(images, small, 1, given_network), expected)


def test_features_of_many_images_are_whitened_on_the_pool(small: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit at most the features of the pool are kept in memory; the neighbors are as good."""
    images, classes = striped_images(300)
    network = random_network(Config(seed=0, max_clusters=8, network=Network(width=4)), 1, 1)
    few = nearest_neighbors(images, small, 1, network)
    monkeypatch.setattr(neighbors, "LIMIT", 299)
    chunks: list[int] = []

    def counted(network: ClusterNetwork, part: Tensor, settings: Views) -> Tensor:
        chunks.append(len(part))
        return view_features(network, part, settings)

    monkeypatch.setattr(neighbors, "view_features", counted)
    # The pool holds all images, so the whitening is the same.
    assert torch.equal(nearest_neighbors(images, small, 1, network), few)
    chunks.clear()
    monkeypatch.setattr(neighbors, "POOL", 120)
    monkeypatch.setattr(neighbors.stretches, "__defaults__", (64,))
    found = nearest_neighbors(images, small, 1, network)
    assert max(chunks) < 128
    assert (classes[found.numpy()] == classes[:, None]).mean() > 0.9


@pytest.mark.parametrize("by_features", [False, True])
def test_many_images_find_their_neighbors_in_cells_and_points_lie_in_a_file(
    by_features: bool, small: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, _ = striped_images(900)
    network = random_network(Config(seed=0, max_clusters=8, network=Network(width=4)), 1, 1) if by_features else None
    exact = nearest_neighbors(images, small, 1, network)
    for name, value in (("EXACT", 500), ("LIMIT", 500), ("POINT_BYTES", 1000)):
        monkeypatch.setattr(neighbors, name, value)
    monkeypatch.setattr(neighbors.stretches, "__defaults__", (256,))
    found = nearest_neighbors(images, small, 1, network)
    assert found.shape == exact.shape
    assert not bool((found == torch.arange(900)[:, None]).any())
    assert (found[:, :, None] == exact[:, None, :]).any(2).double().mean() > 0.9
    assert len(set(found.flatten().tolist())) > 500, "all images are searched, not a pool"
    assert torch.equal(nearest_neighbors(images, small, 2, network), found)


@pytest.mark.parametrize("limit", [299, 300])
def test_partners_are_read_from_anywhere(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "LIMIT", limit)
    images = torch.randint(0, 256, (300, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    partners = torch.tensor([299, 0, 7, 7, 250])
    assert torch.equal(neighbors.partner_images(images, partners), images[partners])
