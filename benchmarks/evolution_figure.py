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
"""The network of the fast preset; runs with another one are not shown."""
TUNED = "0"
"""The seed on which settings were chosen, which is not shown."""
PANELS = {
    "surprise": "S",
    "nmi": "NMI in %",
    "surprising": "surprising clusters",
    "active": "active clusters",
}


def main() -> None:
    curves: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in rows.read_rows(rows.RESULTS / "evolution.csv"):
        first = row["network"] == NEWEST and row["seed"] != TUNED and row["initialization"] == "0"
        if first and row["variant"] == "full" and row["data"] == "digits":
            curves[row["search"], row["seed"]].append(row)
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axes, (column, title) in zip(figure.subplots(2, 2).flat, PANELS.items(), strict=True):
        named = set[str]()
        for (search, _), points in curves.items():
            views, values = ([float(point[name]) for point in points] for name in ("views", column))
            label = None if search in named else search
            axes.plot(views, values, color=COLORS[search], lw=1, marker=".", ms=3, label=label)
            named.add(search)
        axes.set(xscale="log", xlabel="forward views", ylabel=title)
        axes.legend(frameon=False, fontsize=7)
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
