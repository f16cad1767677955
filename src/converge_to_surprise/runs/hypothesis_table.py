"""The rounds of a run as a table: what was tried, what was split, how much each hypothesis explains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.metrics import normalized_mutual_information
from ..model.hierarchy import Hierarchy, Node, Path
from ..model.hierarchy_data import node_data
from ..model.merge_tree import HOLDS

Classes = npt.NDArray[np.int64]


class Row(NamedTuple):
    """One round."""

    round: int
    """0: the search itself, which rejects H0."""
    tried: int
    splits: int
    leaves: int
    """After the round."""
    nats: float
    """What the hypothesis explains beyond the one before it; the nats of all rounds add up."""
    nmi: float | None
    """Of the leaves with the classes, if classes are known; for evaluation only."""


def hypothesis_rows(
    tree: Hierarchy, first: float, leaves: Sequence[Path], n_clusters: int, classes: Classes | None
) -> list[Row]:
    """The table. ``first``: nats of the clusters. ``leaves``: of every training image, for the NMI."""

    def nmi(after: int) -> float | None:
        if classes is None:
            return None
        open_then = {node.path for node in tree.nodes if node.is_split and node.round <= after}
        cut = [_reached(leaf, open_then) for leaf in leaves]
        numbers = {path: number for number, path in enumerate(sorted(set(cut)))}
        return normalized_mutual_information(np.array([numbers[path] for path in cut]), classes)

    rows = [Row(0, 1, int(n_clusters > 1), n_clusters, first, nmi(0))]
    for number in range(1, tree.rounds + 1):
        tried = [node for node in tree.nodes if node.round == number]
        split = [node for node in tried if node.is_split]
        more = sum(node.n_children - 1 for node in split)
        nats = sum(node.nats for node in split)
        rows.append(Row(number, len(tried), len(split), rows[-1].leaves + more, nats, nmi(number)))
    return rows


def _reached(leaf: Path, opened: set[Path]) -> Path:
    """How far down a leaf's path leads if only these nodes are open."""
    depth = 1
    while depth < len(leaf) and leaf[:depth] in opened:
        depth += 1
    return leaf[:depth]


def described_hypotheses(tree: Hierarchy, rows: Sequence[Row]) -> dict[str, Any]:
    """What result.json holds of the rounds."""
    return {
        "rounds": [row._asdict() for row in rows],
        "nodes": [node_data(node) for node in tree.nodes],
        "finished": tree.finished,
    }


def ending(tree: Hierarchy) -> str:
    """How the rounds ended, in words."""
    splits = len(tree.splits)
    found = f"{splits} cluster{'s' * (splits != 1)} split in {tree.rounds} round{'s' * (tree.rounds != 1)}"
    return f"{found}; no further surprise found" if tree.finished else found


def why(node: Node) -> str:
    """Why a node was split or not, for a reader without statistics: what was counted, and what chance would give."""
    if node.outcome == "too few images":
        return f"Not searched: {node.images} images are too few to find parts and to test them."
    if node.outcome == "one group":
        return "Not split: every attempt to divide it put all of its images together."
    counted, held, alike = _counted(node), _held(node), _alike(node)
    if node.outcome == "no surprise":
        return f"Not split: the parts may be an accident. {counted}: no more than luck allows."
    if node.outcome == "weak boundary":
        changing = f"But slightly turned or cropped, too many change sides ({held})."
        if node.boundary >= node.needed > 0:
            changing = f"But other images that look nearly like them are too often in another part{alike}."
        return f"Not split: its images do differ, but gradually. {counted}. {changing}"
    if node.outcome == "by hand":
        return f"Split into {node.n_children} parts by hand. {counted}; {held}. The run itself asks for p below 0.01."
    staying = f"Turned or cropped, the images stay on their side ({held})."
    if alike:
        staying += f" Images that look alike are nearly always in the same part{alike}."
    return f"Split into {node.n_children} parts. {counted}: far more than luck allows. {staying}"


def _counted(node: Node) -> str:
    """How often the two views agree, and how often they would by chance."""
    p = f"p = {p_text(node.log_p)}"
    if node.views_agree == 0:
        return f"The two views of {node.held_out} images that the search did not see were compared ({p})"
    agree, chance = (f"{value:.0%}" for value in (node.views_agree, node.by_chance))
    test = f"In {agree} of {node.held_out} images that the search did not see, both views show the same part"
    return f"{test}; chance alone gives {chance} ({p})"


def _held(node: Node) -> str:
    needed = f"; {node.needed:.2f} is needed" if node.needed > 0 else ""
    return f"boundary {node.boundary:.2f} of 1{needed}"


def _alike(node: Node) -> str:
    return f" (strength {node.strength:.2f} of 1; {HOLDS:.2f} is needed)" if node.strength else ""


def p_text(log_p: float) -> str:
    """A p-value from its logarithm.

    >>> p_text(-0.7), p_text(-50.0)
    ('0.50', '10^-22')
    """
    if log_p > np.log(0.001):
        return f"{np.exp(log_p):.2f}" if log_p > np.log(0.005) else f"{np.exp(log_p):.3f}"
    return f"10^{int(np.floor(log_p / np.log(10)))}"
