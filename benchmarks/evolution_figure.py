"""S, NMI, and surprising and active clusters against forward views, from the rows of benchmarks/evolution_run.py.

python benchmarks/evolution_figure.py
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import rows
from matplotlib.figure import Figure

FIGURE = Path(__file__).parents[1] / "docs" / "assets" / "evolution.svg"
COLORS = {"evolution": "tab:blue", "guided": "tab:orange", "relaxed": "tab:green"}
NEWEST = "32 units, centered"
"""The network of the fast preset; runs with another one are dotted."""
PANELS = {
    "surprise": "S",
    "nmi": "NMI in %",
    "surprising": "surprising clusters",
    "active": "active clusters",
}


def main() -> None:
    curves: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    for row in rows.read_rows(rows.RESULTS / "evolution.csv"):
        if row["variant"] == "full" and row["data"] == "digits":
            curves[row["search"], row["network"], row["seed"]].append(row)
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axes, (column, title) in zip(figure.subplots(2, 2).flat, PANELS.items(), strict=True):
        named = set[str]()
        for (search, network, _), points in curves.items():
            views = [float(point["views"]) for point in points]
            dashes = "-" if network == NEWEST else ":"
            curve = search if network == NEWEST else f"{search}, {network}"
            label = None if curve in named else curve
            axes.plot(
                views, [float(point[column]) for point in points], color=COLORS[search], lw=1, ls=dashes, label=label
            )
            named.add(curve)
        axes.set(xscale="log", xlabel="forward views", ylabel=title)
        axes.legend(frameon=False, fontsize=7)
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
