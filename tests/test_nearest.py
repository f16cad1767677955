from __future__ import annotations

import numpy as np
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.learn.nearest import Found, nearest, on_both_sides, search, stretches


@given(st.integers(3, 40), st.integers(1, 6), st.integers(0, 999))
def test_the_nearest_others_are_found(count: int, wanted: int, seed: int) -> None:
    points = torch.from_numpy(np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32))
    found, distances = nearest(points, wanted, torch.arange(count), 1)
    distance = torch.cdist(points.double(), points.double())
    distance.fill_diagonal_(torch.inf)
    kept = min(wanted, count - 1)
    expected = distance.sort(dim=1).values[:, :kept]
    torch.testing.assert_close(distance.gather(1, found), expected, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(distances.double(), expected, atol=1e-3, rtol=1e-3)


def test_twins_are_each_others_neighbours_and_nobody_is_his_own() -> None:
    points = torch.zeros(6, 2)
    found = nearest(points, 2, torch.arange(6), 1).positions
    assert found.shape == (6, 2)
    assert not bool((found == torch.arange(6)[:, None]).any())


def test_neighbours_come_from_the_pool() -> None:
    points = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    pool = torch.arange(0, 30, 3)
    found = nearest(points, 4, pool, 1).positions
    assert set(found.flatten().tolist()) <= set(pool.tolist())
    assert not bool((found == torch.arange(30)[:, None]).any())


@given(st.integers(3, 40), st.integers(1, 8), st.integers(0, 999))
def test_neighbours_on_both_sides_have_each_other_in_their_lists(count: int, most: int, seed: int) -> None:
    points = torch.from_numpy(np.random.default_rng(seed).normal(size=(count, 2)).astype(np.float32))
    everybody = torch.arange(count)
    found = nearest(points, 6, everybody, 1)
    mutual = on_both_sides(found, everybody, most)
    ours = {(i, int(j)) for i in range(count) for j in found.positions[i][mutual[i]]}
    expected = set(reference.mutual_neighbours(points.tolist(), min(most, 6)))
    assert ours >= expected
    distance = torch.cdist(points.double(), points.double())
    for i, j in ours - expected:  # as near as the farthest of the list, but for rounding
        farthest = distance[j].sort().values[min(most, 6, count - 1)]
        assert float(distance[i, j] - farthest) < 1e-3


def test_an_image_beyond_the_pool_is_a_neighbour_if_it_is_as_near_as_the_neighbours_own() -> None:
    """On a line: the pool's 0, 1, 2 and 10, 11, 12, and two images beyond the pool at 1.5 and 5."""
    points = torch.tensor([0.0, 1.0, 2.0, 10.0, 11.0, 12.0, 1.5, 5.0])[:, None]
    pool = torch.arange(6)
    found = nearest(points, 2, pool, 1)
    mutual = on_both_sides(found, pool, 2)
    assert set(found.positions[6].tolist()) == {1, 2}
    assert mutual[6].tolist() == [True, True]
    assert found.positions[7].tolist() == [2, 1]
    assert mutual[7].tolist() == [False, False]


def test_rounding_does_not_part_neighbours() -> None:
    """Two that are each other's farthest, at a distance that differs in its last bits."""
    found = Found(torch.tensor([[1], [0]]), torch.tensor([[1.0], [1.0 - 1e-6]]))
    assert on_both_sides(found, torch.arange(2), 1).tolist() == [[True], [True]]


def test_copies_are_neighbours_on_both_sides() -> None:
    """However many there are: none of them is left out by who comes first in the list."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(30, 50, generator=generator).repeat(20, 1) * 1e3
    found = nearest(points, 10, torch.arange(600), 1)
    assert bool(on_both_sides(found, torch.arange(600), 10).all())


@given(st.integers(0, 10_000), st.integers(1, 600))
def test_stretches_cover_all_rows_and_none_is_tiny(rows: int, least: int) -> None:
    parts = list(stretches(rows, least))
    assert [row for start, stop in parts for row in range(start, stop)] == list(range(rows))
    assert all(stop - start >= min(rows, least) and stop - start < 2 * least for start, stop in parts)


def test_rows_are_searched_alone_as_among_all() -> None:
    """Any stretch of rows can be left to another process."""
    points = torch.randn(3000, 4, generator=torch.Generator().manual_seed(0))
    pool = torch.arange(0, 3000, 2)
    whole = nearest(points, 3, pool, 1)
    part = search(points[512:1024], 512, points[pool], pool, 3, 1)
    assert torch.equal(part.positions, whole.positions[512:1024])
    assert torch.equal(part.distances, whole.distances[512:1024])
