"""Images that are nearly the same picture: their neighbors must come from elsewhere.

A link between an image and its neighbor says which changes carry no meaning. Where a picture was saved several times,
or the slices of one scan follow each other, the nearest neighbors of an image are its own copies, and such links say
nothing: the graph of neighbors falls into as many parts as there are pictures. So copies form groups, and neighbors are
searched among groups.

Whether two images are copies is a question of scale: they are if they are far nearer to each other than to the 30th
neighbor of either. Every image of a group is a copy of its first image. A chain of small changes, as in a collection
that has few ways to vary, makes many small groups and never a large one.

In two cases no image counts as a copy. If few images have one, near pairs are the best links there are. And few groups
are not pictures that were copied but kinds of things that vary little.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .neighbors import Search, stretches

REFERENCE = 30
"""The neighbor whose distance is the scale."""
NEAR = 0.5
"""Distance of copies in that scale."""
PASSES = 2
"""The neighbors of many copies are copies too, and the scale too small; among groups it is right."""
MIN_COPIED = 1 / 3
"""Least fraction of images with a copy. It is at most 0.2 for handwriting, clothes, printed signs and photographs, 0.5
for slices of medical scans, and 0.9 where each picture was saved eight times."""
MIN_GROUPS, MOST_COPIES = 200, 12
"""With fewer groups, or more images than this in the mean group, the groups are what is to be found."""


class Members(NamedTuple):
    """Groups of images."""

    leaders: Tensor
    """The first image of each group, in the order of the images. (G,)"""
    own: Tensor
    """The group of each image. (N,)"""


def members(groups: Tensor) -> Members:
    """The groups, given the first image of each image's group (N,)."""
    leaders, own = np.unique(groups.numpy(), return_inverse=True)
    return Members(torch.from_numpy(leaders), torch.from_numpy(own))


def groups_within(groups: Tensor, positions: Tensor) -> Tensor:
    """The groups (N,) among the images at some positions (n,): the first of them that is of the group of each. (n,)"""
    _, first, own = np.unique(groups[positions].numpy(), return_index=True, return_inverse=True)
    return torch.from_numpy(first[own])


def copy_groups(points: Tensor, search: Search) -> Tensor:
    """The first image of the group of copies to which each point (N, D) belongs: itself for most. (N,)"""
    alone = groups = torch.arange(len(points))
    for _ in range(PASSES):
        leaders, own = members(groups)
        groups = leaders[_lead(points[leaders], search)][own]
    own = members(groups).own
    sizes = own.bincount()
    copied = float((sizes[own] > 1).float().mean()) >= MIN_COPIED
    return groups if copied and len(sizes) >= max(MIN_GROUPS, len(points) / MOST_COPIES) else alone


def _lead(points: Tensor, search: Search) -> Tensor:
    """Every point that is in no group yet leads one: its copies that are in no other group belong to it. (N,)"""
    leader = torch.arange(len(points))
    near = search(points, REFERENCE)
    if near.shape[1] < REFERENCE:  # too few images to know what far is
        return leader
    distances = torch.cat([_distances(points, near, start, stop) for start, stop in stretches(len(points))])
    scale = distances[:, -1]
    close = distances < NEAR * torch.minimum(scale[:, None], scale[near])
    free = torch.ones(len(points), dtype=torch.bool)
    for first in close.any(1).nonzero()[:, 0].tolist():
        if free[first]:
            others = near[first, close[first]]
            others = others[free[others]]
            leader[others] = first
            free[others] = free[first] = False
    return leader


def neighbors_beyond(points: Tensor, groups: Tensor, count: int, search: Search) -> Tensor:
    """The nearest neighbors of every point (N, D) outside its group, at most one of each group. (N, count)

    Groups are compared by their leaders. The members of a group have different members of its neighbors. Fewer columns
    if there are few groups; if there is one group only, its members are each other's neighbors.
    """
    leaders, own = members(groups)
    if len(leaders) in (1, len(points)):
        return search(points, count)
    near = search(points[leaders], count)[own]  # (N, count) groups
    order = own.argsort(stable=True)
    sizes = own.bincount()
    begins = sizes.cumsum(0) - sizes
    place = torch.empty_like(own)  # of each image in its group
    place[order] = torch.arange(len(own)) - begins[own[order]]
    found: Tensor = order[begins[near] + place[:, None] % sizes[near]]
    return found


def small_groups(groups: Tensor) -> Tensor:
    """The groups (N,) without those of more than ``MOST_COPIES`` images, each of which then is alone: so many are not
    one picture but a kind of thing that varies little. (N,)
    """
    few = groups.bincount(minlength=len(groups))[groups] <= MOST_COPIES
    return torch.where(few, groups, torch.arange(len(groups)))


def neighbors_outside(points: Tensor, groups: Tensor, count: int, search: Search) -> Tensor:
    """The nearest neighbors of every point (N, D) that are not of its group. (N, count)

    Unlike ``neighbors_beyond`` it compares every point with every other: among few images whose groups are wrong, the
    leader of a group must not stand for all of it. Fewer columns if there are few points; the members of a group come
    last where too few are outside.
    """
    near = search(points, min(len(points) - 1, count + int(groups.bincount().max()) - 1))
    own = groups[near] == groups[:, None]
    outside = own.to(torch.uint8).argsort(dim=1, stable=True)[:, :count]
    return near.gather(1, outside)


def _distances(points: Tensor, near: Tensor, start: int, stop: int) -> Tensor:
    """Distances of a stretch of points from their neighbors. (stop - start, k)"""
    own = points[start:stop]
    return torch.stack([(own - points[column]).norm(dim=1) for column in near[start:stop].unbind(1)], 1)
