"""Evaluate a clustering: the table of clusters and the scores."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..core import metrics, surprise
from ..core.measures import Measures, measure
from .cluster_model import Model
from .inference import Outputs


@dataclass(frozen=True)
class Cluster:
    """One row of the table."""

    cluster: int
    """Cluster number: 0 is the largest cluster of the training images."""
    output: int
    """The network's output that represents it."""
    size: int
    surprise: float
    nats: float
    """-log of the probability of at least as many matches under independence, exact."""
    agreement: float
    """Fraction of its images that both views assign to it."""
    surprising: bool
    dominant: int | None
    """Most frequent class, if classes are known."""
    purity: float | None


@dataclass(frozen=True)
class Assessment:
    """The clusters of a set of images, and their measures."""

    labels: npt.NDArray[np.int64]
    """Cluster numbers by view i, as in the paper's evaluation. (N,)"""
    labels_both: npt.NDArray[np.int64]
    """Cluster numbers by the mean of both views' outputs, as in predictions. (N,)"""
    order: list[int]
    """Network output of each cluster number."""
    measures: Measures
    clusters: list[Cluster]
    classes: npt.NDArray[np.int64] | None

    def scores(self) -> dict[str, float | int | None]:
        """ACC, NMI, ARI and purity (None without classes), the number of clusters, and the label-free measures.

        Scores that end in ``_both`` use both views' mean outputs, all others view i alone.
        """
        classes = self.classes
        unknown = dict.fromkeys(("acc", "nmi", "ari"))
        both = unknown if classes is None else metrics.scores(self.labels_both, classes)
        return {
            **(unknown if classes is None else metrics.scores(self.labels, classes)),
            "purity": None if classes is None else metrics.purity(self.labels, classes),
            "n_clusters": len(np.unique(self.labels)),
            "n_surprising": self.measures.surprising,
            "surprise": self.measures.surprise,
            "orderliness": self.measures.orderliness,
            "agreement": self.measures.agreement,
            "images": len(self.labels),
            **{f"{name}_both": value for name, value in both.items()},
            "n_clusters_both": len(np.unique(self.labels_both)),
        }

    def table(self) -> list[dict[str, Any]]:
        return [asdict(cluster) for cluster in self.clusters]


def evaluate(model: Model, outputs: Outputs, classes: npt.NDArray[np.int64] | None, both: bool = False) -> Assessment:
    """Evaluate the outputs of a model for images, with their classes if they are known. A person's merges are applied.

    The table of clusters is by view i, as the paper evaluates, or with ``both`` by both views, as in predictions.
    """
    n_outputs = model.active.network.n_outputs
    groups = torch.tensor(model.annotated_groups)
    labels_i, labels_j, labels_both = (groups[side] for side in (outputs.view_i, outputs.view_j, outputs.winner))
    order = list(model.order)
    if not any(model.active.sizes):  # the run is not finished: number the clusters by their sizes here
        order = torch.argsort(labels_both.bincount(minlength=n_outputs), descending=True, stable=True).tolist()
    number = np.empty(n_outputs, dtype=np.int64)
    number[order] = np.arange(n_outputs)
    numbered, numbered_both = number[labels_i.numpy()], number[labels_both.numpy()]
    shown = labels_both if both else labels_i
    tops = {} if classes is None else metrics.dominant(numbered_both if both else numbered, classes)
    counts = surprise.count(labels_i, labels_j, n_outputs)
    tau = model.config.consolidation.tau
    columns = zip(
        shown.bincount(minlength=n_outputs).tolist(),
        surprise.cluster_surprise(counts).tolist(),
        surprise.surprise_in_nats(counts).tolist(),
        counts.matches.tolist(),
        surprise.surprising(counts, tau).tolist(),
        strict=True,
    )
    rows = dict(enumerate(columns))
    clusters = []
    for output in (output for output in order if rows[output][0] > 0):
        size, per_cluster, nats, matches, surprising = rows[output]
        cluster = int(number[output])
        dominant, purity = tops.get(cluster, (None, None))
        agreement = matches / size
        clusters.append(Cluster(cluster, output, size, per_cluster, nats, agreement, surprising, dominant, purity))
    measures = measure(labels_i, labels_j, n_outputs, tau)
    return Assessment(numbered, numbered_both, order, measures, clusters, classes)
