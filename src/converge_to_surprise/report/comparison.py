"""Several runs on the same images, side by side."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..config.storage import read_csv
from ..core.metrics import adjusted_rand_index, balance, normalized_mutual_information
from ..runs.annotations import saved_annotations
from ..runs.folder import RunFolder
from ..runs.result import levels_of, read_result, verdict_of
from .content import Content
from .image_data import Integers, printable
from .summary import counted, curves, duration, flat_settings

FIGURES = (
    ("clusters", "n_clusters_both", "{:d}"),
    ("surprise S", "surprise", "{:.3f}"),
    ("orderliness Ω", "orderliness", "{:.3f}"),
    ("agreement", "agreement", "{:.1%}"),
    ("ACC", "acc", "{:.1%}"),
    ("NMI", "nmi", "{:.1%}"),
    ("ARI", "ari", "{:.1%}"),
)


def compare_runs(runs: Sequence[RunFolder]) -> Content:
    """What the page of a comparison shows. Every run must be finished and made with the same images."""
    described = [run.description() for run in runs]
    for run in runs:
        run.check_finished(run.labels)
    for run, description in zip(runs, described, strict=True):
        if description.fingerprint != described[0].fingerprint:
            raise ValueError(
                f"{runs[0].path} and {run.path} were made with different images "
                f"({described[0].source} and {description.source}): their clusters cannot be compared"
            )
    labels = [found_clusters(run, described[0].images) for run in runs]
    names = _distinct(runs)
    agreement = matrix(labels, adjusted_rand_index)
    shared = mean_agreement(agreement)
    return {
        "kind": "compare",
        "title": f"{counted(len(runs), 'run')} on {counted(described[0].images, 'image')}",
        "runs": [
            {"name": name, "curves": curves(run.records()), "clusters": _clusters(run, numbers)}
            for name, run, numbers in zip(names, runs, labels, strict=True)
        ],
        "results": [*_results(runs), ["agreement with the others (mean ARI)", *(f"{value:.3f}" for value in shared)]],
        "verdicts": [verdict_of(read_result(run.result)).text for run in runs],
        "consensus": names[shared.index(max(shared))] if len(runs) > 2 else None,
        "settings": _settings([flat_settings(description) for description in described]),
        "ari": agreement,
        "nmi": matrix(labels, normalized_mutual_information),
        "flows": list(_flows(labels)),
    }


def mean_agreement(agreement: list[list[float]]) -> list[float]:
    """The mean agreement of each run's clusters with those of the other runs.

    Clusters that runs with different settings find are more likely to be real than those of a single run.
    """
    return [(sum(row) - row[number]) / (len(row) - 1) for number, row in enumerate(agreement)]


def _distinct(runs: Sequence[RunFolder]) -> list[str]:
    """Short names that differ: the folders' names, or their whole paths."""
    short = [printable(run.path.resolve().name) for run in runs]
    return short if len(set(short)) == len(short) else [printable(str(run.path)) for run in runs]


def found_clusters(run: RunFolder, images: int) -> Integers:
    """The cluster of every image as the run found it, without annotations. (N,)"""
    try:
        numbers = np.array([int(row["cluster"]) for row in read_csv(run.labels)], dtype=np.int64)
    except (KeyError, ValueError, TypeError):
        raise ValueError(f"{run.labels} is damaged: it has no column of cluster numbers") from None
    if len(numbers) != images:
        raise ValueError(f"{run.labels} is damaged: it has {len(numbers)} rows for {images} images")
    return numbers


def _clusters(run: RunFolder, labels: Integers) -> list[Content]:
    sizes = np.bincount(labels)
    names = saved_annotations(run, len(sizes)).names
    shown = [f"Cluster {number}" if name == str(number) else name for number, name in enumerate(names)]
    return [{"name": name, "size": int(size)} for name, size in zip(shown, sizes, strict=True)]


def _results(runs: Sequence[RunFolder]) -> list[list[str]]:
    found = [read_result(run.result) for run in runs]
    rows = [
        [title, *("–" if result.get(key) is None else form.format(result[key]) for result in found)]
        for title, key, form in FIGURES
        if any(result.get(key) is not None for result in found)
    ]
    even = [balance(row["size"] for row in result["clusters"]) for result in found]
    rows.append(["balance", *(f"{value:.3f}" for value in even)])
    if any(levels := [levels_of(result) for result in found]):
        rows.append(["levels", *(text or "–" for text in levels)])
    rows.append(["verdict", *(verdict_of(result).strength for result in found)])
    return [*rows, ["time", *(duration(result["seconds"]) for result in found)]]


def _settings(found: list[dict[str, str]]) -> list[Content]:
    """Every setting of any run, with whether the runs differ in it."""
    rows = []
    for name in dict.fromkeys(name for settings in found for name in settings):
        values = [printable(settings.get(name, "–")) for settings in found]
        rows.append({"name": name, "values": values, "differs": len(set(values)) > 1})
    return rows


def matrix(labels: Sequence[Integers], score: Any) -> list[list[float]]:
    """``score`` of every two runs; 1 of a run and itself."""
    table = np.eye(len(labels))
    for a in range(len(labels)):
        for b in range(a):
            table[a, b] = table[b, a] = score(labels[a], labels[b])
    return [[round(float(value), 4) for value in row] for row in table]


def _flows(labels: list[Integers]) -> Iterator[list[list[int]]]:
    """From each run to the next: how many images of cluster a are in cluster b."""
    for before, after in itertools.pairwise(labels):
        pairs, counts = np.unique(np.stack([before, after], 1), axis=0, return_counts=True)
        yield [[int(a), int(b), int(n)] for (a, b), n in zip(pairs, counts, strict=True)]
