"""What a network says about images: the table of clusters and the figures of merit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..config import Config
from ..core import metrics, surprise
from ..data.store import ImageStore
from ..learn.labelling import label_with_both
from ..learn.network import ResNet9
from ..learn.record import Measures, measure


@dataclass(frozen=True)
class Cluster:
    """One row of the table."""

    cluster: int
    """The user's number: 0 is the largest cluster of the training images."""
    output: int
    """The network's output that stands for it."""
    size: int
    surprise: float
    nats: float
    """-log of the probability of so many matches under independence, exact."""
    agreement: float
    """Share of its images that the other view puts there too."""
    surprising: bool
    dominant: int | None
    """Most frequent class, if classes are known."""
    purity: float | None


@dataclass(frozen=True)
class Assessment:
    """Clusters of a set of images, as view i gives them, and how they were judged."""

    labels: npt.NDArray[np.int64]
    """The user's cluster numbers. (N,)"""
    agreed: npt.NDArray[np.bool_]
    """Whether view j says the same. (N,)"""
    order: list[int]
    """Network output of each cluster number."""
    measures: Measures
    clusters: list[Cluster]
    classes: npt.NDArray[np.int64] | None
    labels_both: npt.NDArray[np.int64]
    """The clusters that the mean of both views' outputs gives: not the paper's evaluation, an extra. (N,)"""

    def scores(self) -> dict[str, float | int | None]:
        """ACC, NMI, ARI and purity (None without classes), the number of clusters, and the label-free measures.

        What ends in ``_both`` is by both views' mean outputs, everything else by view i alone.
        """
        judges = {
            "acc": metrics.accuracy,
            "nmi": metrics.normalised_mutual_information,
            "ari": metrics.adjusted_rand_index,
            "purity": metrics.purity,
        }
        return {
            **{
                name: None if self.classes is None else judge(self.labels, self.classes)
                for name, judge in judges.items()
            },
            "n_clusters": len(self.clusters),
            "n_surprising": self.measures.surprising,
            "surprise": self.measures.surprise,
            "orderliness": self.measures.orderliness,
            "agreement": self.measures.agreement,
            "images": len(self.labels),
            **{
                f"{name}_both": None if self.classes is None else judges[name](self.labels_both, self.classes)
                for name in ("acc", "nmi", "ari")
            },
            "n_clusters_both": len(np.unique(self.labels_both)),
        }

    def table(self) -> list[dict[str, Any]]:
        return [asdict(cluster) for cluster in self.clusters]


def assess(
    network: ResNet9,
    store: ImageStore,
    config: Config,
    order: list[int] | None = None,
    groups: list[int] | None = None,
) -> Assessment:
    """Label images as the paper does at test time (view i, un-augmented) and judge the clusters.

    ``order`` gives the numbering found on the training images; without it these images' own sizes do. ``groups`` says
    which output stands for each output when some are taken together.
    """
    stands_for = torch.arange(network.clusters) if groups is None else torch.tensor(groups)
    labels_i, labels_j, labels_both = (
        stands_for[labels] for labels in label_with_both(network, store.images, config.views)
    )
    counts = surprise.count(labels_i, labels_j, network.clusters)
    if order is None:
        order = [int(k) for k in torch.argsort(counts.first, descending=True, stable=True)]
    number = np.empty(network.clusters, dtype=np.int64)
    number[order] = np.arange(network.clusters)
    numbered = number[labels_i.numpy()]
    found = [output for output in order if counts.first[output] > 0]
    tops = {} if store.labels is None else metrics.dominant(numbered, store.labels)
    per_cluster, nats = surprise.cluster_surprise(counts), surprise.surprise_in_nats(counts)
    flags = surprise.surprising(counts, config.consolidation.tau)
    clusters = []
    for output in found:
        size, top = int(counts.first[output]), tops.get(int(number[output]))
        clusters.append(
            Cluster(
                cluster=int(number[output]),
                output=output,
                size=size,
                surprise=float(per_cluster[output]),
                nats=float(nats[output]),
                agreement=int(counts.matches[output]) / size,
                surprising=bool(flags[output]),
                dominant=None if top is None else top[0],
                purity=None if top is None else top[1],
            )
        )
    measures = measure(labels_i, labels_j, network.clusters, config.consolidation.tau)
    agreed = (labels_i == labels_j).numpy()
    return Assessment(numbered, agreed, order, measures, clusters, store.labels, number[labels_both.numpy()])
