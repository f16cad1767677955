"""The level of the test of a round (paper, appendix A.1): how often is a cluster split although H1 is true?

    python benchmarks/hypotheses_null.py [--rounds 25] [--nodes classes|clusters|assigned] [--model FILE]

H1 is made true: white squares of the chessboard from one digit, black ones from another digit of the same group. Given
the group the views are then independent. ``--nodes classes``: the groups are the known classes. ``clusters``: they are
the clusters that the search itself found. ``assigned``: pairs as for ``clusters``, but then the network assigns every
new picture to a cluster by both of its views, as it does in a run; such a choice can make views dependent.

Each cluster of a round is one test. The p-values are in benchmarks/results/hypotheses-null.csv, the summary is a row of
hypotheses.csv.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import rows
import torch
from hypotheses import FILE, configured, search
from torch import Tensor

from converge_to_surprise.core import conditional
from converge_to_surprise.core.views import chessboard
from converge_to_surprise.data import datasets
from converge_to_surprise.model import model_file
from converge_to_surprise.model.cluster_model import Model
from converge_to_surprise.model.hierarchy import Hierarchy, Node
from converge_to_surprise.search.hypotheses import LEVEL, RoundRequest, Searched, next_round

PAIRED = 100
"""Images of each group whose views are paired anew, at most."""
P_VALUES = rows.RESULTS / "hypotheses-null.csv"
UNTESTED = ("too few images", "one group")


def composite(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Every image with the black squares of another one."""
    order = torch.from_numpy(rng.permutation(len(images)))
    partner = torch.empty_like(order)
    partner[order] = order.roll(1)
    return torch.where(chessboard(*images.shape[2:]), images, images[partner])


def one_round(model: Model, images: Tensor, groups: Tensor, fixed: bool, number: int) -> list[Node]:
    """The nodes that a round tests on newly paired images, with the p-value of each test alone. ``fixed``: the groups
    are the nodes; otherwise the network assigns the new pictures.
    """
    rng = np.random.default_rng(number)
    members = [(groups == group).nonzero()[:, 0].numpy() for group in sorted(set(groups.tolist()))]
    chosen = [torch.from_numpy(rng.permutation(own)[:PAIRED]) for own in members]
    mixed = torch.cat([composite(images[few], rng) for few in chosen])
    searched = Searched.of(replace(model, config=replace(model.config, seed=number)), mixed)
    if fixed:
        searched = searched._replace(numbers=torch.cat([groups[few] for few in chosen]))
    with patch.object(conditional, "holm", list):  # each test alone; the correction is made by the caller
        found = next_round(searched, Hierarchy(), RoundRequest()).nodes
    return [node for node in found if node.outcome not in UNTESTED]


def measure(rounds: int, nodes: str, saved: Path | None) -> dict[str, Any]:
    """The p-values of all rounds. ``saved``: a model of the digits that `cts fit digits` made, to save its search."""
    store = datasets.load("digits").train
    assert store.labels is not None
    torch.set_num_threads(1)
    if saved is None:
        model, _ = search(store.images, configured(store.images, 0, "digits"))
    else:
        model = model_file.load(saved)[0]
    groups = torch.from_numpy(store.labels) if nodes == "classes" else Searched.of(model, store.images).numbers
    by_round: list[list[float]] = []
    rejected = splits = 0
    began = time.perf_counter()
    for number in range(rounds):
        tried = one_round(model, store.images, groups, nodes != "assigned", number)
        corrected = conditional.holm([node.log_p for node in tried])
        by_round.append([node.log_p for node in tried])
        rejected += sum(value <= np.log(LEVEL) for value in corrected)
        holding = zip(corrected, tried, strict=True)
        splits += sum(value <= np.log(LEVEL) and node.outcome == "split" for value, node in holding)
        print(f"{number + 1} rounds, {sum(map(len, by_round))} tests: {rejected} reject, {splits} split", flush=True)
    save_p_values(nodes, by_round)
    logs = np.concatenate(by_round)
    small = {f"p_{level}": float(np.mean(logs <= np.log(level))) for level in (0.01, 0.05, 0.2)}
    return {
        "what": "null", "set": f"digits, paired within {nodes}", "seed": 0, "images": len(store), "trials": rounds,
        "tried": len(logs), "rejected": rejected, "splits": splits, **small,
        "rounds_seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def save_p_values(nodes: str, by_round: list[list[float]]) -> None:
    """Replace the p-values of these nodes: a row for each round with the logs of its tests."""
    kept = [row for row in rows.read_rows(P_VALUES) if row["nodes"] != nodes]
    command = rows.command()
    new = [{"nodes": nodes, "log_p": " ".join(f"{p:.4f}" for p in own), "command": command} for own in by_round]
    rows.write_rows(P_VALUES, [*kept, *new])


def read_p_values(nodes: str) -> list[float]:
    """The logs of the p-values of all tests, in order."""
    return [float(text) for row in rows.read_rows(P_VALUES) if row["nodes"] == nodes for text in row["log_p"].split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--nodes", choices=("classes", "clusters", "assigned"), default="classes")
    parser.add_argument("--save", type=Path, default=FILE)
    given = parser.parse_args()
    row = measure(given.rounds, given.nodes, given.model)
    print(row, flush=True)
    rows.append_rows(given.save, [row])


if __name__ == "__main__":
    main()
