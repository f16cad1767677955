"""Read a run's result.json."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from ..config.checks import is_number
from ..config.storage import read_json
from ..model.merge_tree import Level
from ..model.verdict import Strength, Verdict


def read_result(path: Path) -> dict[str, Any]:
    """A run's result.json, after a check of everything that is used of it."""
    result = read_json(path)
    if not isinstance(result, dict):
        raise ValueError(f"{path} is damaged: it is not a table of figures")
    inits, merged, tree = (result.get(name) for name in ("initializations", "merge", "hypotheses"))
    sound = {
        "it does not list the clusters": _are_clusters(result.get("clusters")),
        "it has no time": is_number(result.get("seconds")),
        "its initializations are not valid": inits is None or _are_initializations(inits),
        "it has no verdict": is_verdict(result.get("verdict")),
        "its levels are not valid": merged is None or _are_levels(merged),
        "its hypotheses are not valid": tree is None or are_hypotheses(tree),
    }
    for problem, absent in sound.items():
        if not absent:
            raise ValueError(f"{path} is damaged: {problem}")
    for name in result.keys() - {"clusters", "order", "merge", "verdict", "initializations", "versions", "hypotheses"}:
        if result[name] is not None and not is_number(result[name]):
            raise ValueError(f"{path} is damaged: {name} is not a number")
    return result


def _are_clusters(rows: object) -> bool:
    return isinstance(rows, list) and all(
        isinstance(row, dict) and is_number(row.get("nats")) and isinstance(row.get("size"), int) and row["size"] >= 0
        for row in rows
    )


def are_hypotheses(value: object) -> bool:
    """Whether plain data are those of rounds; see ``hypothesis_table.py``."""
    if not isinstance(value, dict) or not isinstance(value.get("finished"), bool):
        return False
    rounds, nodes = value.get("rounds"), value.get("nodes")
    if not isinstance(rounds, list) or not isinstance(nodes, list) or not rounds:
        return False
    names = {"round", "tried", "splits", "leaves", "nats", "nmi"}
    known = all(isinstance(row, dict) and row.keys() == names for row in rounds)
    if not known or not all(is_number(cell) or (n == "nmi" and cell is None) for r in rounds for n, cell in r.items()):
        return False
    return all(isinstance(node, dict) and isinstance(node.get("path"), str) for node in nodes)


def _are_initializations(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    seeds, found, selected = value.get("seeds"), value.get("information"), value.get("selected")
    if not isinstance(seeds, list) or not isinstance(found, list) or not isinstance(selected, int):
        return False
    return 0 <= selected < len(seeds) == len(found) and all(map(is_number, [*seeds, *found]))


def is_verdict(value: object) -> bool:
    """Whether plain data are those of a verdict."""
    if not isinstance(value, dict) or value.get("strength") not in get_args(Strength):
        return False
    lists = [value.get("reasons"), value.get("advice")]
    return all(isinstance(found, list) and all(isinstance(text, str) for text in found) for found in lists)


def _are_levels(merged: object) -> bool:
    if not isinstance(merged, dict) or not isinstance(merged.get("n_clusters"), int):
        return False
    levels = merged.get("levels")
    if not isinstance(levels, list) or not isinstance(merged.get("steps"), list):
        return False
    return all(isinstance(level, list) and len(level) == 5 and all(map(is_number, level)) for level in levels)


def verdict_of(result: dict[str, Any]) -> Verdict:
    """The verdict in a result that was read."""
    return Verdict(**result["verdict"])


def levels_of(result: dict[str, Any]) -> str:
    """``levels_text`` of a result that was read, without its first word."""
    merged = result["merge"]
    if merged is None:
        return ""
    levels = [Level(*level) for level in merged["levels"] if level[0] <= len(merged["steps"]) + 1]
    return levels_text(levels, merged["n_clusters"]).removeprefix("levels: ")


def hypotheses_text(result: dict[str, Any]) -> str:
    """What the rounds of a result that was read found; empty if there were none.

    >>> rows = [{"leaves": 4, "splits": 1}, {"leaves": 8, "splits": 2}, {"leaves": 8, "splits": 0}]
    >>> hypotheses_text({"hypotheses": {"rounds": rows, "finished": True}})
    '8 leaves after 2 rounds; no further surprise found'
    """
    if (found := result.get("hypotheses")) is None:
        return ""
    rounds = len(found["rounds"]) - 1
    text = f"{found['rounds'][-1]['leaves']} leaves after {rounds} round{'s' * (rounds != 1)}"
    return f"{text}; no further surprise found" if found["finished"] else text


def levels_text(levels: Sequence[Level], n_clusters: int) -> str:
    """The numbers of clusters at which a clustering is stable; empty if there is no other than the selected one.

    >>> levels_text([Level(10, 1.2, 2.1, 0.97, 0.8), Level(4, 0.9, 1.2, 0.99, 0.9)], 10)
    'levels: 10 clusters (selected; its splits hold 0.80), 4 (0.90)'
    >>> levels_text([Level(1, 0, 0, 1, 1), Level(4, 0.9, 1.2, 0.99, 0.6)], 1)
    'levels: 1 cluster (selected), 4 (0.60)'
    """
    if all(level.n_clusters == n_clusters for level in levels):
        return ""
    parts: list[str] = []
    for level in levels:
        unit = "" if parts else " cluster" if level.n_clusters == 1 else " clusters"
        words = ["selected"] if level.n_clusters == n_clusters else []
        if level.n_clusters > 1:
            words.append(f"{'its splits hold ' if words else ''}{level.strength:.2f}")
        parts.append(f"{level.n_clusters}{unit} ({'; '.join(words)})" if words else f"{level.n_clusters}{unit}")
    return f"levels: {', '.join(parts)}"


def selection_text(initializations: dict[str, Any]) -> str:
    """
    >>> selection_text({"seeds": [3, 1003], "information": [1.93, 1.978], "selected": 1})
    'initialization 2 of 2 (seed 1003): its views tell most about each other, 1.978 nats against 1.930'
    """
    selected, found = initializations["selected"], [f"{value:.3f}" for value in initializations["information"]]
    others = ", ".join([*found[:selected], *found[selected + 1 :]])
    number, seed = f"{selected + 1} of {len(found)}", initializations["seeds"][selected]
    best = f"its views tell most about each other, {found[selected]} nats against {others}"
    return f"initialization {number} (seed {seed}): {best}"
