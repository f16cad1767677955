"""The tree of clusters below those of the first search: which are split, by which linear heads, and why.

A split is a few linear rows on the features of the network, so that sub-clusters need no other network: the leaf of an
image follows from what the network gives for it anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

Path = tuple[int, ...]
"""Cluster number, number of the sub-cluster within it, and so on: (3, 1) is written 3/1."""

Outcome = Literal["split", "by hand", "too few images", "one group", "no surprise", "weak boundary"]


def path_text(path: Sequence[int]) -> str:
    """A path as it is written.

    >>> path_text((3, 1))
    '3/1'
    """
    return "/".join(map(str, path))


def parse_path(text: str) -> Path:
    """The inverse; a ValueError names a text that is no path.

    >>> parse_path("3/1")
    (3, 1)
    """
    parts = str(text).strip("/").split("/")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise ValueError(f"{text!r} is not the path of a cluster; write it as 3 or 3/1")
    return tuple(int(part) for part in parts)


class Node(NamedTuple):
    """A cluster in which sub-clusters were searched, and what came of it."""

    path: Path
    round: int
    """1: the round that tested H1."""
    images: int
    """Training images in it."""
    held_out: int
    """Of them, images of the test that the search did not see."""
    outcome: Outcome
    n_children: int
    """Sub-clusters of the best split that was found, whether it was accepted or not; 1: none was found."""
    log_p: float
    """Log of the p-value of the test on held-out images, corrected for the number of nodes tried in the round."""
    boundary: float
    """phi of the weakest boundary between the sub-clusters on held-out images under strong augmentation."""
    agreement: float
    """Adjusted Rand index between the independent heads of the node: 1 if all of them found these sub-clusters."""
    nats: float
    """What the split explains: N times the mutual information of both views' sub-clusters; 0 if there is none."""
    surprise: float
    """S of the sub-clusters within the node; 0 if there are none."""
    orderliness: float
    """Ω of the sub-clusters within the node; 1 if there are none."""
    views_agree: float = 0.0
    """Fraction of the held-out images whose two views show the same sub-cluster; 0 in models of before it was kept."""
    by_chance: float = 0.0
    """The fraction that independent views with the same shares of sub-clusters would give."""
    needed: float = 0.0
    """phi that the weakest boundary had to reach."""
    strength: float = 0.0
    """Of the weakest split between the sub-clusters, for held-out images and those that look like them; 0 in models of
    before it was asked for."""

    @property
    def is_split(self) -> bool:
        return self.outcome in ("split", "by hand")


@dataclass(frozen=True)
class Split:
    """The head that divides a node."""

    path: Path
    weight: Tensor
    """(outputs, D)"""
    bias: Tensor
    """(outputs,)"""
    children: tuple[int, ...]
    """The sub-cluster of each output."""
    sharpness: float
    """Turns normalized outputs into probabilities."""

    @property
    def n_children(self) -> int:
        return max(self.children) + 1

    def probabilities(self, features: Tensor) -> Tensor:
        """Of every sub-cluster, from mean features (n, D) of both views. (n, n_children)"""
        outputs = torch.softmax(self.sharpness * F.normalize(features @ self.weight.t() + self.bias, dim=-1), -1)
        member = torch.tensor(self.children)[:, None] == torch.arange(self.n_children)
        return outputs @ member.to(outputs.dtype)

    def labels(self, features: Tensor) -> Tensor:
        """The sub-cluster of features (..., D). (...)"""
        return torch.tensor(self.children)[(features @ self.weight.t() + self.bias).argmax(-1)]


@dataclass(frozen=True)
class Hierarchy:
    """All splits and everything that was tried, in the order of the rounds."""

    splits: tuple[Split, ...] = ()
    nodes: tuple[Node, ...] = ()
    finished: bool = False
    """Whether the last round found nothing further."""

    @cached_property
    def children(self) -> dict[Path, tuple[Path, ...]]:
        """The sub-clusters of every node that is split."""
        return {s.path: tuple((*s.path, child) for child in range(s.n_children)) for s in self.splits}

    @property
    def rounds(self) -> int:
        """Rounds that were completed."""
        return max((node.round for node in self.nodes), default=0)

    def paths(self, clusters: int) -> list[Path]:
        """Every node, numbered by its place: the clusters first, then the children of each split in order."""
        found: list[Path] = [(number,) for number in range(clusters)]
        for split in self.splits:
            found += self.children[split.path]
        return found

    def tried(self, path: Path) -> Node | None:
        """What came of the last search within a node; None if there was none."""
        return next((node for node in reversed(self.nodes) if node.path == path), None)

    def descend(self, numbers: Tensor, features: Tensor, clusters: int) -> tuple[Tensor, Tensor]:
        """The leaf (as a place in ``paths``) of images of cluster ``numbers`` (n,), and how likely each is given its
        cluster. ``features``: mean of both views, rounded as they are stored. (n, D)
        """
        place = {path: index for index, path in enumerate(self.paths(clusters))}
        leaf, confidence = numbers, torch.ones_like(features[:, 0])
        for split in self.splits:
            likely = split.probabilities(features)
            label = split.labels(features)
            here = leaf == place[split.path]
            own = likely.gather(1, label[:, None])[:, 0]
            leaf = torch.where(here, place[(*split.path, 0)] + label, leaf)
            confidence = torch.where(here, confidence * own, confidence)
        return leaf, confidence

    def without(self, paths: Sequence[Path]) -> Hierarchy:
        """The tree without the splits of these nodes and of everything below them."""

        def hidden(path: Path) -> bool:
            return any(path[: len(closed)] == closed for closed in paths)

        def below(path: Path) -> bool:
            return any(len(path) > len(closed) and path[: len(closed)] == closed for closed in paths)

        splits = tuple(split for split in self.splits if not hidden(split.path))
        nodes = tuple(node for node in self.nodes if not below(node.path) and not (node.is_split and hidden(node.path)))
        return replace(self, splits=splits, nodes=nodes)

    @property
    def by_hand(self) -> list[Path]:
        """The nodes that a person had split."""
        return [node.path for node in self.nodes if node.outcome == "by hand"]
