"""Images that show what a cluster is: typical ones, and ones at its boundary."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .cluster_model import Prediction

PER_KIND = 5
"""Typical images of a cluster, and as many at its boundary."""

Kind = Literal["typical", "boundary"]


class Exemplar(NamedTuple):
    """An image that shows what a cluster is."""

    cluster: int
    kind: Kind
    """typical: far from every other cluster. boundary: hardly nearer to its own cluster than to the second one."""
    rank: int
    """1 is the most typical image, or the one nearest to the boundary."""
    image: int
    """Position among the images."""
    confidence: float
    second: int
    """The next best cluster."""
    second_confidence: float


class Choices(NamedTuple):
    """The best two clusters of images. (n,) each"""

    cluster: Tensor
    """-1 is noise, which has no exemplars."""
    confidence: Tensor
    second: Tensor
    second_confidence: Tensor

    @classmethod
    def of(cls, prediction: Prediction) -> Choices:
        """Those of a prediction."""
        return cls(*(getattr(prediction, name) for name in cls._fields))


def find_exemplars(found: Choices, per_kind: int = PER_KIND) -> list[Exemplar]:
    """The exemplars of every cluster, by cluster, kind and rank.

    The images of a cluster are ordered by how much more confident its own cluster is than the second one. Of a cluster
    with fewer than twice ``per_kind`` images the first half is typical, so that no image is both.
    """
    margin = found.confidence - found.second_confidence
    order = torch.argsort(margin, descending=True, stable=True)
    rows: list[Exemplar] = []
    for cluster in sorted(set(found.cluster.tolist())):
        members = order[found.cluster[order] == cluster].tolist()
        if cluster < 0:
            continue
        typical = members[: min(per_kind, -(-len(members) // 2))]
        boundary = members[len(typical) :][::-1][:per_kind]
        kinds: tuple[tuple[Kind, list[int]], ...] = (("typical", typical), ("boundary", boundary))
        for kind, images in kinds:
            for rank, image in enumerate(images, 1):
                sure, second_sure = float(found.confidence[image]), float(found.second_confidence[image])
                rows.append(Exemplar(cluster, kind, rank, image, sure, int(found.second[image]), second_sure))
    return rows
