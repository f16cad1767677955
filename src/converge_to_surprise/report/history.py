"""The curves of a run against time, with its stages and the steps that rebuild the clusters (figures 6 to 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

POINTS = 800
"""At most so many points per curve."""
MARKS = 400
"""At most so many marks on the time axis."""
SERIES = ("surprise", "orderliness", "agreement", "surprising", "active")
REBUILDING = ("consolidate", "merge")

Records = Sequence[dict[str, Any]]


def thinned(records: Records, most: int) -> list[dict[str, Any]]:
    """The last record of each of at most ``most`` equal stretches; the last record of a stage is always kept."""
    stretch = max(1, -(-len(records) // most))
    return [
        record
        for position, record in enumerate(records)
        if (position + 1) % stretch == 0
        or position + 1 == len(records)
        or records[position + 1]["stage"] != record["stage"]
    ]


def curves(records: Records) -> dict[str, Any]:
    """Series over seconds, when each stage began and ended, when clusters were consolidated or merged."""
    kept = thinned(records, POINTS)
    return {
        "seconds": [record["seconds"] for record in kept],
        **{name: [_short(record[name]) for record in kept] for name in SERIES},
        "stages": stages(records),
        "marks": marks(records),
    }


def stages(records: Records) -> list[dict[str, Any]]:
    """Name, begin and end of every stage so far, in seconds."""
    found: list[dict[str, Any]] = []
    previous = 0.0
    for record in records:
        if not found or found[-1]["name"] != record["stage"]:
            found.append({"name": record["stage"], "from": previous})
        previous = found[-1]["to"] = record["seconds"]
    return found


def marks(records: Records) -> list[dict[str, Any]]:
    """When a round of consolidation or a merge ended; evenly thinned where there are very many."""
    found = []
    for position, record in enumerate(records):
        next_kind = records[position + 1]["kind"] if position + 1 < len(records) else ""
        if record["kind"] in REBUILDING and next_kind != record["kind"]:
            found.append({"seconds": record["seconds"], "kind": record["kind"]})
    return found[:: -(-len(found) // MARKS) or 1]


def _short(value: float) -> float:
    """Six digits are more than a screen shows."""
    return float(f"{value:.6g}")
