"""The purity list of appendix C: how much of every cluster belongs to its most frequent class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .tables import TITLES, Row

FASHION = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


def class_name(dataset: str, number: int) -> str:
    """
    >>> class_name("usps", 7), class_name("fashion-mnist", 9)
    ('digit 7', 'ankle boot')
    """
    return FASHION[number] if dataset == "fashion-mnist" and number < len(FASHION) else f"digit {number}"


def purity_data(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each run its clusters, the largest first: cluster, size, purity, class and the class's name."""
    return [
        {
            **{key: row[key] for key in ("dataset", "variant", "seed", "command")},
            "clusters": [
                {
                    **{key: cluster[key] for key in ("cluster", "output", "size", "purity", "dominant")},
                    "class": class_name(row["dataset"], cluster["dominant"]),
                }
                for cluster in sorted(row["clusters"], key=lambda cluster: -cluster["size"])
                if cluster["dominant"] is not None
            ],
        }
        for row in rows
    ]


def purity_text(rows: Sequence[Row]) -> str:
    """The lists in the paper's form, as Markdown."""
    parts = ["# Purity of the clusters (appendix C of the paper)"]
    for run in purity_data(rows):
        lines = [
            f"Cluster {one['cluster']:>2} | n={one['size']:>4} | {one['purity']:6.1%} (dom=cls{one['dominant']}, "
            f"{one['class']})"
            for one in run["clusters"]
        ]
        parts.append(f"## {TITLES[run['dataset']]}, seed {run['seed']}\n\n```\n" + "\n".join(lines) + "\n```")
    return "\n\n".join(parts) + "\n"
