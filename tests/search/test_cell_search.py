from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from converge_to_surprise.search import cell_search


def clouds(count: int, seed: int, dimensions: int = 5) -> Tensor:
    """Points in clouds of different density."""
    generator = torch.Generator().manual_seed(seed)
    middle = torch.randn(7, dimensions, generator=generator) * 10
    place = torch.randint(7, (count,), generator=generator)
    return middle[place] + torch.randn(count, dimensions, generator=generator) * (1 + place[:, None])


def exact(points: Tensor, count: int) -> Tensor:
    distance = torch.cdist(points.double(), points.double())
    distance.fill_diagonal_(torch.inf)
    return distance.topk(count, largest=False).indices


def searched(points: Tensor, count: int, threads: int = 1, seed: int = 0) -> Tensor:
    return cell_search.search(points, count, threads, torch.Generator().manual_seed(seed))


@settings(max_examples=25)
@given(st.integers(10, 120), st.integers(1, 6), st.integers(0, 999))
def test_if_all_cells_are_searched_the_result_is_exact(count: int, wanted: int, seed: int) -> None:
    points = clouds(count, seed)
    assert math.isqrt(count) <= cell_search.PROBED
    distance = torch.cdist(points.double(), points.double())
    found, expected = searched(points, wanted), exact(points, wanted)
    torch.testing.assert_close(distance.gather(1, found), distance.gather(1, expected), atol=1e-3, rtol=1e-3)
    assert not bool((found == torch.arange(count)[:, None]).any())


def test_with_a_fraction_of_the_cells_nearly_all_neighbors_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    points = clouds(4000, 0)
    monkeypatch.setattr(cell_search, "ROWS", 300)
    monkeypatch.setattr(cell_search, "QUERIES", 1500)
    found, expected = searched(points, 5), exact(points, 5)
    recall = (found[:, :, None] == expected[:, None, :]).any(2).double().mean()
    assert 0.97 < recall < 1, "nearly exact, and not by looking everywhere"


def test_a_result_repeats_with_its_seed_and_any_number_of_threads() -> None:
    points = clouds(3000, 1)
    found = searched(points, 4)
    assert torch.equal(searched(points, 4, threads=3), found)


def test_points_in_sparse_cells_find_as_many_neighbors(monkeypatch: pytest.MonkeyPatch) -> None:
    points = clouds(400, 3)
    monkeypatch.setattr(cell_search, "PROBED", 1)
    few = searched(points, 30)
    assert all(len(set(row)) == 30 for row in few.tolist())
    assert not bool((few == torch.arange(400)[:, None]).any())


def test_identical_points_have_other_points_as_neighbors() -> None:
    found = searched(torch.zeros(300, 3), 4)
    assert not bool((found == torch.arange(300)[:, None]).any())
    assert all(len(set(row)) == 4 for row in found.tolist())


def test_every_point_is_in_one_cell() -> None:
    cells = cell_search.Cells.of(clouds(1000, 2), torch.Generator().manual_seed(0))
    members = [cells.members(cell) for cell in range(len(cells.centers))]
    assert torch.equal(torch.cat(members), cells.order)
    assert sorted(cells.order.tolist()) == list(range(1000))
