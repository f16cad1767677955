"""What a network says about images: the table of clusters and the figures of merit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..config.storage import read_json
from ..core import metrics, surprise
from ..data.store import ImageStore
from ..model.cluster_model import Model
from ..model.inference import Outputs
from ..search.record import Measures, measure


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
    """Share of its images that both views put there."""
    surprising: bool
    dominant: int | None
    """Most frequent class, if classes are known."""
    purity: float | None


@dataclass(frozen=True)
class Assessment:
    """Clusters of a set of images and how they were judged."""

    labels: npt.NDArray[np.int64]
    """The user's cluster numbers by view i, as in the paper's evaluation. (N,)"""
    labels_both: npt.NDArray[np.int64]
    """The same by the mean of both views' outputs, as images are sorted for the user. (N,)"""
    order: list[int]
    """Network output of each cluster number."""
    measures: Measures
    clusters: list[Cluster]
    classes: npt.NDArray[np.int64] | None

    def scores(self) -> dict[str, float | int | None]:
        """ACC, NMI, ARI and purity (None without classes), the number of clusters, and the label-free measures.

        What ends in ``_both`` is by both views' mean outputs, everything else by view i alone.
        """
        judges = {
            "acc": metrics.accuracy,
            "nmi": metrics.normalized_mutual_information,
            "ari": metrics.adjusted_rand_index,
            "purity": metrics.purity,
        }
        return {
            **{
                name: None if self.classes is None else judge(self.labels, self.classes)
                for name, judge in judges.items()
            },
            "n_clusters": len(np.unique(self.labels)),
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


def assess(model: Model, store: ImageStore) -> Assessment:
    """Label images as the paper does at test time (view i, un-augmented) and judge the clusters."""
    return judge(model, model.read_whole(store.images), store.labels)


def judge(model: Model, reading: Outputs, classes: npt.NDArray[np.int64] | None, both: bool = False) -> Assessment:
    """Judge what a model says of images whose classes are known or not.

    The table of clusters is by view i, as the paper evaluates, or, with ``both``, by both views, as images are sorted.
    """
    outputs = model.labeler.network.clusters
    groups = torch.tensor(model.groups)
    labels_i, labels_j, labels_both = (groups[labels] for labels in (reading.view_i, reading.view_j, reading.output))
    order = list(model.order)
    if not any(model.labeler.sizes):  # not known before the run is finished: these images' own sizes number them
        order = torch.argsort(labels_both.bincount(minlength=outputs), descending=True, stable=True).tolist()
    number = np.empty(outputs, dtype=np.int64)
    number[order] = np.arange(outputs)
    numbered, numbered_both = number[labels_i.numpy()], number[labels_both.numpy()]
    shown = labels_both if both else labels_i
    sizes = shown.bincount(minlength=outputs)
    tops = {} if classes is None else metrics.dominant(numbered_both if both else numbered, classes)
    counts = surprise.count(labels_i, labels_j, outputs)
    per_cluster, nats = surprise.cluster_surprise(counts), surprise.surprise_in_nats(counts)
    tau = model.config.consolidation.tau
    flags = surprise.surprising(counts, tau)
    clusters = []
    for output in (output for output in order if sizes[output] > 0):
        size, top = int(sizes[output]), tops.get(int(number[output]))
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
    measures = measure(labels_i, labels_j, outputs, tau)
    return Assessment(numbered, numbered_both, order, measures, clusters, classes)


def read_result(path: Path) -> dict[str, Any]:
    """A run's result.json, if all that readers take from it is there and of the right kind."""
    result = read_json(path)
    if not isinstance(result, dict):
        raise ValueError(f"{path} is damaged: it is not a table of figures")
    rows = result.get("clusters")
    if not isinstance(rows, list) or not all(isinstance(row, dict) and _has_figures(row) for row in rows):
        raise ValueError(f"{path} is damaged: it does not list the clusters")
    if not _is_number(result.get("seconds")):
        raise ValueError(f"{path} is damaged: it does not say how long the run took")
    if (starts := result.get("starts")) is not None and not _are_starts(starts):
        raise ValueError(f"{path} is damaged: it does not say which start was taken")
    for name in result.keys() - {"clusters", "order", "merge", "starts", "versions"}:
        if result[name] is not None and not _is_number(result[name]):
            raise ValueError(f"{path} is damaged: {name} is not a number")
    return result


def _has_figures(row: dict[str, Any]) -> bool:
    return _is_number(row.get("nats")) and isinstance(row.get("size"), int) and row["size"] >= 0


def _are_starts(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    seeds, found, taken = value.get("seeds"), value.get("balance"), value.get("taken")
    if not isinstance(seeds, list) or not isinstance(found, list) or not isinstance(taken, int):
        return False
    return 0 <= taken < len(seeds) == len(found) and all(map(_is_number, [*seeds, *found]))


def taken_text(starts: dict[str, Any]) -> str:
    """
    >>> taken_text({"seeds": [3, 1003], "balance": [0.93, 0.978], "taken": 1})
    'start 2 of 2 (seed 1003): its clusters are the best balanced, 0.978 against 0.930'
    """
    taken, found = starts["taken"], [f"{value:.3f}" for value in starts["balance"]]
    others = ", ".join([*found[:taken], *found[taken + 1 :]])
    number, seed = f"{taken + 1} of {len(found)}", starts["seeds"][taken]
    return f"start {number} (seed {seed}): its clusters are the best balanced, {found[taken]} against {others}"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
