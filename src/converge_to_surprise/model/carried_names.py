"""Names, merges and noise marks of a model at another cut of its merge tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Annotations(NamedTuple):
    """A person's names, merges and noise marks, per cluster number."""

    names: list[str]
    """The cluster's own name: its number unless it was given one."""
    into: list[int]
    """The cluster it was merged into, itself if it was not. Chains of merges are followed to their end."""
    noise: list[bool]
    """Whether its images belong to no cluster."""


def carry_annotations(
    found: Annotations, before: Sequence[frozenset[int]], after: Sequence[frozenset[int]]
) -> Annotations:
    """What still holds at another cut. ``before`` and ``after``: the subclusters of each cluster number.

    A cluster that is the same at both cuts keeps its name, and a merge is kept if both clusters are the same.
    Clusters within a noise cluster are noise.
    """
    where = {members: number for number, members in enumerate(after) if members}
    names, into, noise = no_annotations(len(after))
    for number, (name, root, mark) in enumerate(zip(*found, strict=True)):
        now, root_now = where.get(before[number]), where.get(before[root])
        if now is not None and name != str(number):
            names[now] = name
        if now is not None and root_now is not None:
            into[now] = root_now
        for part, members in enumerate(after):
            noise[part] |= mark and bool(members) and members <= before[number]
    return Annotations(names, into, noise)


def no_annotations(clusters: int) -> Annotations:
    """Every cluster is named by its number, none is merged or noise."""
    return Annotations([str(number) for number in range(clusters)], list(range(clusters)), [False] * clusters)
