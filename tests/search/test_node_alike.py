from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from converge_to_surprise.config import Config
from converge_to_surprise.search.co_assignment import width
from converge_to_surprise.search.node_alike import alike, strength_of, top_splits, with_strengths
from converge_to_surprise.search.node_bank import ViewBank
from converge_to_surprise.search.node_heads import OUTPUTS
from converge_to_surprise.search.node_merge import boundary_tree

NONE = torch.zeros(0)


def bank_of(points: Tensor, copies: Tensor | None = None) -> ViewBank:
    """A bank of which only these points matter."""
    own = torch.arange(len(points))
    return ViewBank(own, NONE, NONE, NONE, points, own if copies is None else copies)


def two_outputs(first: Tensor, heads: int = 3) -> Tensor:
    """Outputs of both views of images (n,), the same under every head. (n, 2, heads)"""
    return first[:, None, None].expand(-1, 2, heads).long()


def tree_of(count: int) -> np.ndarray:
    return np.diag([count, count, *np.zeros(OUTPUTS - 2)]).astype(float) + np.pad(np.ones((2, 2)), (0, OUTPUTS - 2))


def scans(number: int, slices: int = 6) -> tuple[Tensor, Tensor]:
    """Slices of scans: nearly the same within one, and scans vary without steps. Points (n, 3) and groups of copies."""
    generator = torch.Generator().manual_seed(0)
    scan = torch.arange(number).repeat_interleave(slices)
    points = torch.rand(number, 3, generator=generator)[scan]
    return points + 1e-3 * torch.rand(len(points), 3, generator=generator), slices * scan


def test_a_split_between_scans_is_strong_only_if_slices_count_as_neighbors() -> None:
    """Half of the scans at random: every slice has its like on its side, but other scans have not."""
    points, copies = scans(60)
    side = (torch.rand(60, generator=torch.Generator().manual_seed(1)) < 0.5).repeat_interleave(6)
    sides, tree, rows = two_outputs(side), boundary_tree(tree_of(100)), torch.arange(len(points))
    near = {
        name: alike(bank_of(points, groups), rows, Config(threads=1))[:180, :4]
        for name, groups in (("slices", rows), ("scans", copies))
    }
    found = {name: strength_of(top_splits(tree, 2), 0, sides, own) for name, own in near.items()}
    assert found["slices"] > 0.95
    assert found["scans"] < 0.3
    assert not (copies[near["scans"]] == copies[:180, None]).any()


def test_a_gap_between_images_is_strong() -> None:
    points, copies = scans(60)
    side = torch.arange(len(points)) < 150
    points[side] += 5
    near = alike(bank_of(points, copies), torch.arange(len(points)), Config(threads=1))
    trees = [boundary_tree(tree_of(100))] * 3
    (first, *_) = with_strengths(trees, two_outputs(side), near)
    assert first.strength(2) == pytest.approx(1.0)
    assert strength_of(top_splits(trees[0], 2), 0, two_outputs(side), near[:90]) == pytest.approx(0.0)  # one side only
    some = torch.arange(len(points)) % 3 == 0
    order = torch.cat([some.nonzero()[:, 0], (~some).nonzero()[:, 0]])
    near = alike(bank_of(points[order], copies[order]), torch.arange(len(points)), Config(threads=1))[: int(some.sum())]
    assert strength_of(top_splits(trees[0], 2), 0, two_outputs(side[order]), near) == pytest.approx(1.0)


def test_strength_is_phi_of_the_pairs_times_phi_with_the_other_heads() -> None:
    generator = torch.Generator().manual_seed(2)
    sides = torch.randint(2, (80, 2, 1), generator=generator).expand(-1, -1, 3).clone()
    flipped = torch.rand(80, 2, generator=generator) < 0.1
    sides[..., 1] ^= flipped.long()
    near = torch.randint(80, (50, 6), generator=generator)
    pairs = [
        (int(sides[image, 0, 0]), int(sides[other, 1, 0]))
        for image in range(50)
        for other in near[image, : width(80, 2)].tolist()
    ]
    both = np.array([*pairs, *(pair[::-1] for pair in pairs)])
    phi = np.corrcoef(both.T)[0, 1]
    others = np.mean([np.corrcoef(sides[:50, 0, 0], sides[:50, 0, head])[0, 1] for head in (1, 2)])
    found = strength_of(top_splits(boundary_tree(tree_of(100)), 2), 0, sides, near)
    assert found == pytest.approx(phi * others, abs=1e-9)


def test_images_of_one_group_have_each_other() -> None:
    points, _ = scans(10)
    near = alike(
        bank_of(points, torch.zeros(len(points), dtype=torch.long)), torch.arange(30), replace(Config(), threads=1)
    )
    assert near.shape[0] == 30
    assert (near != torch.arange(30)[:, None]).all()
