"""Read a run's result.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..config.storage import read_json


def read_result(path: Path) -> dict[str, Any]:
    """A run's result.json, after a check of everything that is used of it."""
    result = read_json(path)
    if not isinstance(result, dict):
        raise ValueError(f"{path} is damaged: it is not a table of figures")
    rows = result.get("clusters")
    if not isinstance(rows, list) or not all(isinstance(row, dict) and _has_figures(row) for row in rows):
        raise ValueError(f"{path} is damaged: it does not list the clusters")
    if not _is_number(result.get("seconds")):
        raise ValueError(f"{path} is damaged: it has no time")
    if (inits := result.get("initializations")) is not None and not _are_initializations(inits):
        raise ValueError(f"{path} is damaged: its initializations are not valid")
    for name in result.keys() - {"clusters", "order", "merge", "initializations", "versions"}:
        if result[name] is not None and not _is_number(result[name]):
            raise ValueError(f"{path} is damaged: {name} is not a number")
    return result


def _has_figures(row: dict[str, Any]) -> bool:
    return _is_number(row.get("nats")) and isinstance(row.get("size"), int) and row["size"] >= 0


def _are_initializations(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    seeds, found, selected = value.get("seeds"), value.get("balance"), value.get("selected")
    if not isinstance(seeds, list) or not isinstance(found, list) or not isinstance(selected, int):
        return False
    return 0 <= selected < len(seeds) == len(found) and all(map(_is_number, [*seeds, *found]))


def selection_text(initializations: dict[str, Any]) -> str:
    """
    >>> selection_text({"seeds": [3, 1003], "balance": [0.93, 0.978], "selected": 1})
    'initialization 2 of 2 (seed 1003): its clusters are the best balanced, 0.978 against 0.930'
    """
    selected, found = initializations["selected"], [f"{value:.3f}" for value in initializations["balance"]]
    others = ", ".join([*found[:selected], *found[selected + 1 :]])
    number, seed = f"{selected + 1} of {len(found)}", initializations["seeds"][selected]
    best = f"its clusters are the best balanced, {found[selected]} against {others}"
    return f"initialization {number} (seed {seed}): {best}"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
