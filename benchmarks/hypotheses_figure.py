"""The figures of docs/explanation/hypotheses.md: the tree that is found in the made set, and p-values where H1 is true.

    python benchmarks/hypotheses_figure.py [--null]

The p-values are those of benchmarks/hypotheses_null.py; the made set is searched anew (seed 0).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import hypotheses
import hypotheses_null
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from converge_to_surprise.config import Stage
from converge_to_surprise.data.synthetic import nested_images
from converge_to_surprise.model.hierarchy import Hierarchy, path_text
from converge_to_surprise.search.hypotheses import RoundRequest, Searched, deepen

FIGURE = Path(__file__).parents[1] / "docs" / "assets" / "hypotheses.svg"
NULL_FIGURE = FIGURE.with_name("hypotheses-null.svg")
PICTURES = 5
NODES = {
    "classes": "paired within classes",
    "clusters": "within clusters found",
    "assigned": "the same, assigned anew",
}
"""The kinds of trials of benchmarks/hypotheses_null.py."""


def found_tree() -> tuple[np.ndarray, list[tuple[int, ...]], Hierarchy]:
    """The images, their leaves and the tree."""
    images, _, _ = nested_images(hypotheses.MADE, seed=0)
    config = hypotheses.configured(images, 0, "auto")
    config = replace(config, n_clusters=4, schedule=tuple(map(Stage.parse, hypotheses.SHORT)))
    model, _ = hypotheses.search(images, config)
    searched = Searched.of(model, images)
    tree = list(deepen(searched, RoundRequest()))[-1]
    return images[:, 0].numpy(), searched.leaves(tree), tree


def draw_tree(axes: Axes, images: np.ndarray, leaves: list[tuple[int, ...]], tree: Hierarchy) -> None:
    """One column of nodes per depth, each with a few of its images; lines lead to its parts."""
    ends = sorted(set(leaves))
    height = {leaf: float(row) for row, leaf in enumerate(reversed(ends))}

    def place(path: tuple[int, ...]) -> float:
        children = tree.children.get(path)
        return height[path] if children is None else float(np.mean([place(child) for child in children]))

    deepest = max(map(len, ends))
    for path in sorted({leaf[:end] for leaf in ends for end in range(1, len(leaf) + 1)}):
        x, y = 2.4 * (len(path) - 1), place(path)
        chosen = [k for k, leaf in enumerate(leaves) if leaf[: len(path)] == path][:: max(1, len(leaves) // 40)][
            :PICTURES
        ]
        strip = np.concatenate([np.pad(images[k], 1, constant_values=255) for k in chosen], 1)
        axes.imshow(strip, cmap="gray", extent=(x, x + 0.3 * len(chosen), y - 0.17, y + 0.13), aspect="auto", zorder=2)
        tried = tree.tried(path)
        words = "" if tried is None else f"  {tried.nats:.0f} nats" if tried.is_split else f"  {tried.outcome}"
        axes.text(x, y + 0.2, f"{path_text(path)}{words}", fontsize=7)
        for child in tree.children.get(path, ()):
            axes.plot([x + 0.3 * PICTURES, 2.4 * len(path)], [y, place(child)], color="tab:blue", lw=1, zorder=1)
    axes.set(xlim=(-0.1, 2.4 * deepest), ylim=(-0.6, len(ends) - 0.3), title="the tree that is found in the made set")
    axes.axis("off")


def draw_null(axes: Axes) -> None:
    """The share of trials with a p-value of at most p."""
    for nodes, label in NODES.items():
        found = np.exp(np.sort(hypotheses_null.read_p_values(nodes)))
        if len(found):
            axes.plot(found, np.arange(1, len(found) + 1) / len(found), label=f"{label}, {len(found)} tests")
    axes.plot([0, 1], [0, 1], color="gray", lw=0.8)
    axes.set(
        xlabel="p", ylabel="share of tests with a p-value up to p", title="where H1 is true", xlim=(0, 1), ylim=(0, 1)
    )
    axes.legend(frameon=False, loc="upper left")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--null", action="store_true", help="only the p-values, without the search of the made set")
    given = parser.parse_args()
    level = Figure(figsize=(5, 4), layout="constrained")
    draw_null(level.subplots())
    level.savefig(NULL_FIGURE, metadata={"Date": None})
    if given.null:
        return
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2.2, 1))
    draw_tree(left, *found_tree())
    draw_null(right)
    figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
