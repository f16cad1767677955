"""The merge tree of a head: which clusters are joined in which order, and where the tree is cut."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

HOLDS = 0.84
"""Strength from which on a split holds. The handwriting of a single digit is split with 0.72, handwritten digits are
with 0.9 and more, the ten kinds of clothes of Fashion-MNIST with 0.9 and their parts with 0.77."""


class MergeStep(NamedTuple):
    """One cluster is merged into another."""

    into: int
    merged: int
    strength: float
    """How well the split that this merge gives up holds, or its branch; see ``search/splits.py``."""


class MergeTree(NamedTuple):
    """All merges of a head, from its finest clusters to a single one, the weakest first."""

    steps: list[MergeStep]
    n_outputs: int
    n_clusters: int
    """Number of clusters after the tiny ones are dissolved."""

    @property
    def active_outputs(self) -> list[int]:
        """Outputs that won at least one view."""
        return sorted({output for step in self.steps for output in (step.into, step.merged)})

    def groups(self, n_clusters: int) -> list[int]:
        """The output that represents the cluster of each output when ``n_clusters`` clusters are left."""
        groups = np.arange(self.n_outputs)
        for into, merged, _ in self.steps[: len(self.steps) + 1 - n_clusters]:
            groups[groups == merged] = into
        return [int(group) for group in groups]

    def representatives(self, n_clusters: int) -> list[int]:
        """The outputs that represent the clusters when ``n_clusters`` are left."""
        groups = self.groups(n_clusters)
        return sorted({groups[output] for output in self.active_outputs}) or [0]

    def step_at(self, n_clusters: int) -> MergeStep:
        """The merge that leaves one cluster less than ``n_clusters``, which are at least 2."""
        return self.steps[len(self.steps) + 1 - n_clusters]

    def strength(self, n_clusters: int) -> float:
        """Strength of the weakest split among ``n_clusters`` clusters."""
        return self.step_at(n_clusters).strength if n_clusters > 1 else 1.0


class Level(NamedTuple):
    """A number of clusters and the evidence for it; see ``search/granularity.py``."""

    n_clusters: int
    evidence: float
    information: float
    """Mutual information between two heads in nats, mean over all pairs of heads."""
    agreement: float
    """Adjusted Rand index between two heads, mean over all pairs of heads."""
    strength: float
    """How well the weakest split holds, median over the heads: 1 at best."""


class MergeResult(NamedTuple):
    """Where the trees of all heads were cut, which head was selected, and the evidence for both."""

    n_clusters: int
    head: int
    outputs: list[int]
    """The output of the selected head that represents each cluster."""
    steps: list[MergeStep]
    """The whole merge tree of the selected head."""
    strengths: dict[int, float]
    """Strength of the weakest split at each number of clusters, median over the heads that have so many."""
    information: list[float]
    """Mutual information between the clusters of an image and of its neighbor at the cut, per head, in nats."""
    agreement: list[float]
    """Adjusted Rand index of the selected head with every head at the cut."""
    levels: list[Level] = []  # noqa: RUF012
    """Numbers of clusters at which the clustering is stable, the selected one first."""

    @classmethod
    def of(cls, data: dict[str, Any]) -> MergeResult:
        """From plain data."""
        steps = [MergeStep(*step) for step in data["steps"]]
        strengths = {int(n_clusters): value for n_clusters, value in data["strengths"].items()}
        levels = [Level(*level) for level in data["levels"]]
        return cls(**(data | {"steps": steps, "strengths": strengths, "levels": levels}))

    @property
    def max_clusters(self) -> int:
        """Number of clusters before any merging."""
        return len(self.steps) + 1

    @property
    def reachable_levels(self) -> list[Level]:
        """The levels at which the tree of the selected head can be cut: other heads may have had more clusters."""
        return [level for level in self.levels if level.n_clusters <= self.max_clusters]

    @property
    def one_is_a_level(self) -> bool:
        """Whether everything may be one cluster: not even two of them clearly hold."""
        return any(level.n_clusters == 1 for level in self.levels)

    def coarser(self, n_clusters: int) -> list[int]:
        """The cluster that represents each cluster when only ``n_clusters`` are left."""
        groups = self.finer(n_clusters, 1 + max([*self.outputs, *(step.merged for step in self.steps)]))
        return [self.outputs.index(groups[output]) for output in self.outputs]

    def finer(self, n_clusters: int, n_outputs: int) -> list[int]:
        """The output that represents each output of the head when ``n_clusters`` clusters are left."""
        return MergeTree(self.steps, n_outputs, self.max_clusters).groups(n_clusters)
