"""Merge trees without a search."""

from __future__ import annotations

import numpy as np

from converge_to_surprise.model.merge_tree import MergeStep, MergeTree


def random_tree(clusters: int, seed: int) -> MergeTree:
    """A tree that merges the clusters in random order, with strengths that are not known yet."""
    drawn = np.random.default_rng(seed)
    left, steps = list(range(clusters)), []
    while len(left) > 1:
        into, merged = drawn.choice(left, 2, replace=False)
        steps.append(MergeStep(int(into), int(merged), 0.0))
        left.remove(merged)
    return MergeTree(steps, clusters, clusters)
