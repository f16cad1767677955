from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from converge_to_surprise.search import copies
from converge_to_surprise.search.neighbors import Search

SEARCH = Search(seed=0, threads=1)


def cloud(pictures: int, times: int, seed: int = 0, spread: float = 0.01) -> Tensor:
    """Points in fifty dimensions, each with some copies right beside it. (pictures * times, 50)"""
    drawn = np.random.default_rng(seed)
    points = np.repeat(drawn.normal(size=(pictures, 50)), times, 0)
    return torch.from_numpy((points + spread * drawn.normal(size=points.shape)).astype(np.float32))


def test_copies_of_a_picture_are_a_group_and_nothing_else_is() -> None:
    points = torch.cat([cloud(150, 2), cloud(150, 1, seed=1)])
    points[299] = points[7] + 1e-3 * torch.eye(50)[0]
    expected = torch.arange(450)
    expected[1:300:2] -= 1
    expected[299] = 6
    assert torch.equal(copies.copy_groups(points, SEARCH), expected)


def test_where_few_images_have_a_copy_it_is_a_neighbor_like_any_other() -> None:
    points = torch.cat([cloud(50, 2), cloud(250, 1, seed=1)])
    assert torch.equal(copies.copy_groups(points, SEARCH), torch.arange(350))


def test_a_collection_with_eight_copies_of_each_picture_has_one_group_for_each() -> None:
    expected = torch.arange(250).repeat_interleave(8) * 8
    assert torch.equal(copies.copy_groups(cloud(250, 8), SEARCH), expected)


def test_a_chain_of_small_changes_is_not_one_group() -> None:
    """Images that vary in four ways only: near ones lead from anywhere to anywhere."""
    points = torch.rand(3000, 4, generator=torch.Generator().manual_seed(0))
    groups = copies.copy_groups(points, SEARCH)
    assert 1 < groups.bincount().max() < 60, "copies there are, but no large group"


def test_many_copies_of_few_pictures_are_what_is_to_be_found() -> None:
    assert torch.equal(copies.copy_groups(cloud(20, 25), SEARCH), torch.arange(500))
    assert torch.equal(copies.copy_groups(cloud(250, 20), SEARCH), torch.arange(5000))


def test_groups_do_not_depend_on_the_scale_of_the_points() -> None:
    points = cloud(250, 4)
    assert len(set(copies.copy_groups(points, SEARCH).tolist())) == 250
    assert torch.equal(copies.copy_groups(points, SEARCH), copies.copy_groups(1000 * points, SEARCH))


def test_few_images_have_no_copies() -> None:
    assert copies.copy_groups(torch.zeros(30, 2), SEARCH).tolist() == list(range(30))


@settings(max_examples=25)
@given(st.integers(4, 60), st.integers(1, 5), st.integers(1, 8), st.integers(0, 999))
def test_neighbors_come_from_other_groups_and_each_from_another(
    pictures: int, times: int, count: int, seed: int
) -> None:
    points = cloud(pictures, times, seed)
    groups = torch.arange(pictures).repeat_interleave(times) * times
    found = copies.neighbors_beyond(points, groups, count, SEARCH)
    assert found.shape == (pictures * times, min(count, pictures - 1))
    linked = groups[found]
    assert (linked != groups[:, None]).all()
    assert all(len(set(row)) == len(row) for row in linked.tolist())
    # Which groups are near is decided by their first images.
    expected = SEARCH(points[::times], count) * times
    assert torch.equal(linked, expected.repeat_interleave(times, 0))
    if times > 1:  # copies lead to different copies
        assert len(set(found.flatten().tolist())) > len(set(found[::times].flatten().tolist()))


def test_without_copies_neighbors_are_the_nearest_points() -> None:
    points = cloud(80, 1)
    assert torch.equal(copies.neighbors_beyond(points, torch.arange(80), 5, SEARCH), SEARCH(points, 5))


def test_one_picture_alone_has_its_copies_as_neighbors() -> None:
    points = cloud(1, 40)
    assert torch.equal(copies.neighbors_beyond(points, torch.zeros(40).long(), 5, SEARCH), SEARCH(points, 5))


def test_neighbors_outside_are_the_nearest_of_other_groups() -> None:
    generator = torch.Generator().manual_seed(4)
    points, groups = torch.rand(60, 3, generator=generator), torch.randint(12, (60,), generator=generator)
    found = copies.neighbors_outside(points, groups, 5, SEARCH)
    for image, near in enumerate(found.tolist()):
        others = [k for k in range(60) if groups[k] != groups[image]]
        others.sort(key=lambda k: float((points[k] - points[image]).norm()))
        assert near == others[:5]


def test_large_groups_are_no_copies() -> None:
    groups = torch.tensor([0] * 13 + [13] * 12 + [25])
    found = copies.small_groups(groups)
    assert found.tolist() == [*range(13), *[13] * 12, 25]
