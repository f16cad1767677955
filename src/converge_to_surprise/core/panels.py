"""Panels of images for every cluster and class with enough images in common (figures 3 to 5 of the paper)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .metrics import Labels

MIN_IMAGES = 50
"""Images that a cluster and a class must have in common for a panel."""
SIDE = 3


class Panel(NamedTuple):
    """Images of one class in one cluster."""

    cluster: int
    class_number: int
    images: int
    """Their number."""
    shown: list[int]
    """Positions of the at most nine that are shown."""


def choose_panels(clusters: Labels, classes: Labels, seed: int = 0) -> list[Panel]:
    """The panels of a clustering, by cluster and class; the images shown are drawn from ``seed``."""
    rng = np.random.default_rng(seed)
    found = []
    for cluster in np.unique(clusters):
        for number in np.unique(classes[clusters == cluster]):
            members = np.flatnonzero((clusters == cluster) & (classes == number))
            if len(members) >= MIN_IMAGES:
                picked = np.sort(rng.choice(members, size=min(SIDE * SIDE, len(members)), replace=False))
                found.append(Panel(int(cluster), int(number), len(members), picked.tolist()))
    return found
