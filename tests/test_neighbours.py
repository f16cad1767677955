from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from converge_to_surprise.config import Config, Network, Relaxed, Views
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.learn import neighbours
from converge_to_surprise.learn.backbone import fresh_network
from converge_to_surprise.learn.labelling import view_features
from converge_to_surprise.learn.nearest import stretches
from converge_to_surprise.learn.neighbours import Neighbours
from converge_to_surprise.learn.network import ClusterNetwork


def test_neighbours_by_pixels_and_by_features_share_the_kind(small: Config) -> None:
    images, kinds = striped_images(300)
    network = fresh_network(1, Network(clusters=8, width=4), 1, 0)
    for given_network in (None, network):
        found = neighbours.alike(given_network, images, small, 1).positions
        assert found.shape == (300, small.relaxed.neighbours)
        same = kinds[found.numpy()] == kinds[:, None]
        assert same.mean() > 0.9


def test_large_images_are_compared_at_a_small_size() -> None:
    plain = torch.full((1, 1, 96, 96), 100, dtype=torch.uint8)
    striped = torch.tensor([50, 100, 150], dtype=torch.uint8).repeat(32).expand(1, 1, 96, 96)
    others = torch.randint(0, 256, (10, 1, 96, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images = torch.cat([plain, striped, others])
    points = neighbours.pixel_space(images, torch.Generator().manual_seed(0))(images)
    assert points.shape == (12, 12)
    assert float((points[0] - points[1]).norm()) < 1e-3 * float((points[0] - points[2]).norm())


def test_without_their_ground_images_are_neighbours_on_any_paper() -> None:
    generator = torch.Generator().manual_seed(0)
    things = torch.zeros(40, 3, 12, 12)
    things[..., 3:-3, 3:-3] = torch.rand(40, 1, 6, 6, generator=generator).round() * 0.3
    papers = 0.7 * torch.rand(80, 3, 1, 1, generator=generator)
    images = ((torch.cat([things, things]) + papers) * 255).round().to(torch.uint8)
    twins = (torch.arange(80) + 40) % 80
    share = {}
    for ground in ("kept", "removed"):
        found = neighbours.alike(None, images, Config(views=Views(fill=True, ground=ground)), 1).positions
        share[ground] = float((found[:, 0] == twins).float().mean())
    assert share["removed"] == 1
    assert share["kept"] < 0.5


def test_whitened_features_vary_alike_in_all_directions() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(4000, 3, generator=generator) * torch.tensor([1.0, 5.0, 20.0])
    spread = neighbours.Whitening.of(features)(features).std(0)
    assert float(spread.max() / spread.min()) < 2


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (1.0, 1000)])
def test_partners_are_neighbours_in_a_share_of_the_pairs(share: float, expected: int) -> None:
    table = torch.stack([torch.arange(1000) + 1000, torch.arange(1000) + 2000], 1)
    positions = torch.arange(1000)
    partners = neighbours.partners(Neighbours(table), positions, share, torch.Generator().manual_seed(0))
    assert int((partners != positions).sum()) == expected
    assert set((partners - positions).tolist()) <= ({0} if share == 0 else {1000, 2000})


@pytest.mark.parametrize(
    ("mutual", "shares"),
    [
        ("yyyyyy", {100: 1, 101: 1, 102: 1, 103: 1, 104: 1, 105: 1}),
        ("nynnyy", {101: 2, 104: 2, 105: 2}),
        ("ynyyyn", {100: 2, 102: 2, 103: 1, 104: 1}),  # the nearest come up to twice as often
        ("nnnnny", {105: 6}),
        ("nnnnnn", {0: 6}),
    ],
)
def test_partners_are_neighbours_on_both_sides(mutual: str, shares: dict[int, int]) -> None:
    table = Neighbours(torch.arange(100, 106)[None], torch.tensor([[letter == "y" for letter in mutual]]))
    drawn = neighbours.partners(table, torch.zeros(6000, dtype=torch.long), 1.0, torch.Generator().manual_seed(0))
    values, counts = np.unique(drawn.numpy(), return_counts=True)
    assert values.tolist() == list(shares)
    np.testing.assert_allclose(counts / 1000, list(shares.values()), rtol=0.1)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_partners_are_what_they_were_before_it_mattered_who_is_mutual(kind: torch.dtype) -> None:
    """A run of before goes on as it began."""
    table, positions = torch.randint(0, 100, (100, 5), generator=torch.Generator().manual_seed(0)), torch.arange(100)
    drawn = neighbours.partners(Neighbours(table.to(kind)), positions, 0.5, torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(1)
    column = torch.randint(5, (100,), generator=generator)
    chosen = torch.rand(100, generator=generator) < 0.5
    expected = [int(table[i, column[i]]) if chosen[i] else i for i in range(100)]
    assert drawn.dtype == torch.int64
    assert drawn.tolist() == expected


def test_half_of_the_partners_are_neighbours() -> None:
    table = Neighbours(torch.arange(1000)[:, None] + 1000)
    partners = neighbours.partners(table, torch.arange(1000), 0.5, torch.Generator().manual_seed(0))
    assert 400 < int((partners >= 1000).sum()) < 600


def test_the_answer_does_not_depend_on_how_many_rows_are_looked_at_together(
    small: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = striped_images(900)[0]
    network = fresh_network(1, Network(clusters=8, width=4), 1, 0)
    config = replace(small, relaxed=Relaxed(mutual=8))
    whole = [neighbours.alike(given_network, images, config, 1).tensors for given_network in (None, network)]
    monkeypatch.setattr(stretches, "__defaults__", (256,))
    for given_network, expected in zip((None, network), whole, strict=True):
        found = neighbours.alike(given_network, images, config, 1).tensors
        assert found.keys() == expected.keys() == {"neighbours", "mutual"}
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_many_images_are_whitened_by_the_pool(small: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit no more than the pool's features are held; the neighbours are as good."""
    images, kinds = striped_images(300)
    network = fresh_network(1, Network(clusters=8, width=4), 1, 0)
    few = neighbours.alike(network, images, small, 1).positions
    monkeypatch.setattr(neighbours, "LIMIT", 299)
    looked_at: list[int] = []

    def counted(network: ClusterNetwork, part: Tensor, settings: Views) -> Tensor:
        looked_at.append(len(part))
        return view_features(network, part, settings)

    monkeypatch.setattr(neighbours, "view_features", counted)
    # A pool of all images has their whitening.
    assert torch.equal(neighbours.alike(network, images, small, 1).positions, few)
    monkeypatch.setattr(neighbours, "POOL", 120)
    monkeypatch.setattr(stretches, "__defaults__", (64,))
    found = neighbours.alike(network, images, small, 1).positions
    assert max(looked_at[2:]) < 128
    assert set(found.flatten().tolist()) <= set(neighbours.pool_positions(300, small.seed).tolist())
    assert (kinds[found.numpy()] == kinds[:, None]).mean() > 0.9


@pytest.mark.parametrize(("limit", "room"), [(299, 2**29), (299, 300), (300, 2**29)])
def test_partners_have_the_same_pixels_in_memory_and_on_disk(
    limit: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LIMIT", limit), ("POOL", 100), ("POOL_BYTES", room)):
        monkeypatch.setattr(neighbours, name, value)
    images = torch.randint(0, 256, (300, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    members = neighbours.pool_positions(300, 7)
    positions = torch.arange(40, 90)
    partners = torch.where(torch.arange(50) % 3 == 0, positions, members[torch.arange(50) * 2])
    pool = neighbours.Pool(images, 7)
    assert torch.equal(pool.partners(images[positions], positions, partners), images[partners])
    assert (pool._kept is not None) == (limit == 299 and room > 300)
