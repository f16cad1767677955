"""What the rows of benchmarks/results/zoo.csv say: the number of clusters and ARI by half of the zoo and by set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import rows

from converge_to_surprise.experiments.result_tables import ABSENT, markdown

METHODS = {"ours": "converge-to-surprise", "umap+hdbscan": "UMAP + HDBSCAN", "evoc": "EVoC"}
INPUTS = ("pixels", "backbone")
HALVES = ("design", "held out", "new")
KEYS = ["set", "input", "method", "seed"]
CLOSE = 1.3
"""A number within this factor of the number of classes counts as found."""


def read(file: Path) -> pd.DataFrame:
    """The last row of every run, with ``factor``: by how much the number of clusters is off, 1 if it is not."""
    found = pd.DataFrame(rows.read_rows(file)).drop_duplicates(KEYS, keep="last")
    found = found.reindex(columns=[*dict.fromkeys([*found, "levels", "verdict"])], fill_value="")
    found = found.astype(dict.fromkeys(("seed", "classes", "images", "n_clusters"), int) | {"ari": float})
    ratio = found["n_clusters"].clip(lower=1) / found["classes"].clip(lower=1)
    return found.assign(ratio=ratio, factor=np.maximum(ratio, 1 / ratio))


def best_rival(found: pd.DataFrame) -> pd.Series[float]:
    """ARI of the better of the other methods, mean over its seeds, by set and input."""
    others = found[found["method"] != "ours"]
    return others.groupby(["set", "input", "method"])["ari"].mean().groupby(["set", "input"]).max()


def among_levels(runs: pd.DataFrame) -> pd.Series[bool]:
    """Whether the number of classes is one of the levels of each run."""
    numbers = zip(runs["classes"], runs["levels"], strict=True)
    return pd.Series([str(classes) in levels.split() for classes, levels in numbers], index=runs.index, dtype=bool)


def figures(runs: pd.DataFrame, rival: pd.Series[float]) -> list[str]:
    """The cells of one line of the summary: of the runs of one method, on sets of at least two classes."""
    ari = runs.groupby(["set", "input"])["ari"].mean()
    own = (runs["method"] == "ours").all()
    more = (ari - rival.reindex(ari.index)).dropna() if own else ari.iloc[:0]
    return [
        str(len(ari)),
        str(len(runs)),
        f"{(runs['ratio'] - 1).abs().median():.2f}",
        f"{100 * (runs['factor'] <= CLOSE).mean():.0f} %",
        f"{runs['factor'].max():.1f}",
        f"{100 * among_levels(runs).mean():.0f} %" if own else ABSENT,
        f"{100 * ari.mean():.1f}",
        f"{100 * more.mean():+.1f}" if len(more) else ABSENT,
        f"{100 * more.min():+.1f}" if len(more) else ABSENT,
    ]


def summary(found: pd.DataFrame) -> str:
    """A line for each half, input and method."""
    several, rival, lines = found[found["classes"] > 1], best_rival(found), []
    for half in HALVES:
        for kind in INPUTS:
            for method, title in METHODS.items():
                wanted = (several["half"] == half) & (several["input"] == kind) & (several["method"] == method)
                if wanted.any():
                    lines.append([half, kind, title, *figures(several[wanted], rival)])
    header = (
        "half|input|method|sets|runs|median relative error of K̂|K̂ within a factor of 1.3|worst factor|"
        "K among the levels|mean ARI|ARI, more than the best rival|least"
    )
    return markdown(header.split("|"), lines)


def per_set(found: pd.DataFrame) -> str:
    """A line for each set and input, by the number of classes: what each method found, by seeds."""
    lines = []
    for half in HALVES:
        some = found[found["half"] == half]
        for (_, name, kind), runs in some.groupby(["classes", "set", "input"]):
            first = runs.iloc[0]
            about = [str(name), half, str(first["kind"]), f"{first['images']:,}", str(first["classes"]), str(kind)]
            lines.append([*about, *(cell for method in METHODS for cell in _cells(runs, method))])
    header = ["set", "half", "kind", "images", "K", "input"]
    for method, title in METHODS.items():
        header += [f"K̂, {title}", *(["levels", "verdict"] if method == "ours" else []), "ARI"]
    return markdown(header, lines)


def _cells(runs: pd.DataFrame, method: str) -> list[str]:
    """The numbers of clusters by seed, and the mean ARI, which means nothing with fewer than two classes."""
    own = runs[runs["method"] == method].sort_values("seed")
    if not len(own):
        return [ABSENT] * (4 if method == "ours" else 2)
    ari = f"{100 * own['ari'].mean():.1f}" if (own["classes"] > 1).all() else ABSENT
    numbers = ", ".join(map(str, own["n_clusters"]))
    if method != "ours":
        return [numbers, ari]
    return [numbers, "; ".join(own["levels"].replace("", ABSENT)), ", ".join(own["verdict"].unique()), ari]
