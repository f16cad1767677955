"""Draw the zoo: the number of clusters against that of classes, and our ARI against the best rival's.

python benchmarks/zoo_figure.py [--results benchmarks/results/zoo.csv] [--out docs/assets/zoo.svg]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import rows
import zoo_summary
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from converge_to_surprise.experiments.figures import render

FILE = Path(__file__).parents[1] / "docs" / "assets" / "zoo.svg"
COLORS = {"design": "C0", "held out": "C3", "new": "C2"}
MARKERS = {"pixels": "o", "backbone": "s"}
RIVAL_MARKERS = {"umap+hdbscan": "x", "evoc": "+"}


def draw(found: pd.DataFrame, file: Path) -> None:
    """Write the figure; without runs of ours it has the numbers of clusters only."""
    pairs = compared(found)
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    left, *right = figure.subplots(1, 2 if len(pairs) else 1, squeeze=False)[0]
    numbers(left, found)
    for axes in right:
        scores(axes, pairs)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(render(figure, "svg"))


def compared(found: pd.DataFrame) -> pd.DataFrame:
    """ARI of ours and of the best rival, means over seeds: a row for each half, set of several classes and input."""
    several = found[found["classes"] > 1]
    own = several[several["method"] == "ours"].groupby(["half", "set", "input"])["ari"].mean()
    rival = zoo_summary.best_rival(several).rename("rival")
    return own.rename("own").reset_index().join(rival, on=["set", "input"]).dropna()


def numbers(axes: Axes, found: pd.DataFrame) -> None:
    """K̂ against K of every run; noise stands left of one class."""
    ends = np.array([0.9, 150])
    axes.fill_between(ends, ends / zoo_summary.CLOSE, ends * zoo_summary.CLOSE, color="0.92", linewidth=0)
    axes.plot(ends, ends, color="0.6", linewidth=0.8)
    for method, marker in RIVAL_MARKERS.items():
        some = found[found["method"] == method]
        title, found_number = zoo_summary.METHODS[method], some["n_clusters"].clip(lower=0.5)
        axes.scatter(places(some), found_number, color="0.55", marker=marker, s=22, linewidth=0.9, label=title)
    for half, color in COLORS.items():
        for kind, marker in MARKERS.items():
            own = found["method"] == "ours"
            some = found[own & (found["half"] == half) & (found["input"] == kind)]
            if len(some):
                label = f"{zoo_summary.METHODS['ours']}, {half}, {kind}"
                axes.scatter(
                    places(some), some["n_clusters"], s=20, color=color, marker=marker, alpha=0.75, label=label
                )
    axes.set(xscale="log", yscale="log", xlabel="classes", ylabel="clusters found", xlim=(0.45, ends[1]))
    ticks = [0.6, 1, 2, 5, 10, 20, 50, 100]
    axes.set_xticks(ticks, ["noise", *map(str, ticks[1:])])
    axes.set_yticks(ticks[1:], list(map(str, ticks[1:])))
    axes.minorticks_off()


def places(some: pd.DataFrame) -> pd.Series[float]:
    """Where the number of classes stands on the axis."""
    return some["classes"].where(some["classes"] > 0, 0.6).astype(float)


def scores(axes: Axes, pairs: pd.DataFrame) -> None:
    """ARI of ours against that of the best rival."""
    for half, name, kind, value, other in pairs.to_numpy().tolist():
        place = 100 * other, 100 * value
        axes.scatter(*place, s=22, color=COLORS[half], marker=MARKERS[kind], alpha=0.75)
        axes.annotate(name, place, fontsize=5, xytext=(3, 2), textcoords="offset points")
    axes.plot([0, 100], [0, 100], color="0.6", linewidth=0.8)
    axes.set(xlabel="ARI of the best rival, %", ylabel=f"ARI of {zoo_summary.METHODS['ours']}, %")
    axes.set(xlim=(-3, 103), ylim=(-3, 103))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=rows.RESULTS / "zoo.csv")
    parser.add_argument("--out", type=Path, default=FILE)
    options = parser.parse_args()
    draw(zoo_summary.read(options.results), options.out)


if __name__ == "__main__":
    main()
