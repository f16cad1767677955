"""Learning as repeated rejection (paper, appendix A.1): H0, H1, H2, … until nothing rejects the last hypothesis.

The first search rejects H0, "pixels are noise". H1 says: given its cluster, an image's pixels are noise. A round looks
for sub-clusters of all leaves of the tree at once, tests each split on images that the search did not see, and adds
those that reject the hypothesis and whose boundaries hold. The children are the leaves of the next round. It ends when
a round adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core import conditional, rng, surprise
from ..core.conditional import NodeLabels
from ..model.cluster_model import Model
from ..model.confidence import sharpness_of
from ..model.hierarchy import Hierarchy, Node, Outcome, Path, Split, path_text
from ..model.merge_tree import HOLDS
from .node_bank import ViewBank, view_bank
from .node_heads import NodeHeads, NodeImages, train_heads
from .node_split import MIN_BOUNDARY, STORED_BOUNDARY, NodeTrial, try_node
from .node_start import node_images

LEVEL = 0.01
"""Probability of a split anywhere in a round if the hypothesis is true."""
HELD_OUT = 0.3
"""Fraction of the images that the search does not see."""
MIN_SEARCHED, MIN_HELD_OUT = 30, 10
"""Images without which a node is not searched."""


class Searched(NamedTuple):
    """What all rounds of a run share."""

    model: Model
    bank: ViewBank
    numbers: Tensor
    """The cluster of every image of the bank. (n,)"""
    held_out: Tensor
    """Whether each image is held out from the searches. (n,)"""
    threads: int

    @classmethod
    def of(cls, model: Model, images: Tensor) -> Searched:
        """The bank of a finished model's training images: uint8 (N, C, H, W), or the stored features it was made on."""
        check_model(model)
        network = model.final.network
        bank = view_bank(network, images, model.config)
        with torch.inference_mode():
            outputs = F.normalize(network.outputs(bank.plain.to(next(network.parameters()).device)), dim=-1).cpu()
        numbers = model.numbers[outputs.mean(1).argmax(-1)]
        drawn = torch.rand(len(numbers), generator=rng.torch_generator(model.config.seed, "held-out"))
        # The search must not see copies of what tests it.
        held_out = (drawn < HELD_OUT)[bank.copies]
        return cls(model, bank, numbers, held_out, max(1, model.config.threads))

    @property
    def clusters(self) -> int:
        return len(self.model.order)

    def leaves(self, hierarchy: Hierarchy) -> list[Path]:
        """The leaf of every image of the bank."""
        paths = hierarchy.paths(self.clusters)
        leaf, _ = hierarchy.descend(self.numbers, self.bank.mean, self.clusters)
        return [paths[place] for place in leaf.tolist()]

    def first_nats(self) -> float:
        """What the clusters themselves explain: N times the mutual information of both views' clusters."""
        network = self.model.final.network
        with torch.inference_mode():
            found = network.outputs(self.bank.plain.to(next(network.parameters()).device)).argmax(-1).cpu()
        sides = self.model.numbers[found]
        return conditional.explained(NodeLabels(sides[:, 0], sides[:, 1]), self.clusters)


def check_model(model: Model) -> None:
    """Refuse a model whose clusters are not those of its search."""
    if model.cut_at is not None:
        raise ValueError(f"the merge tree is cut at {model.cut_at}; only the clusters that the run found can be opened")


@dataclass(frozen=True)
class RoundRequest:
    """What is to be opened."""

    rounds: int | None = None
    """At most so many further rounds; None: until nothing further is found."""
    only: tuple[Path, ...] = ()
    """Only these nodes and what is found below them; empty: all."""
    by_hand: bool = False
    """Split these nodes as well as they can be, even if the split would not be accepted."""


def deepen(searched: Searched, request: RoundRequest) -> Iterator[Hierarchy]:
    """The tree after each further round; the last one is finished, unless the rounds ran out."""
    hierarchy = searched.model.hierarchy or Hierarchy()
    begun = hierarchy.rounds
    while request.rounds is None or hierarchy.rounds - begun < request.rounds:
        before = hierarchy
        hierarchy = next_round(searched, hierarchy, request)
        yield hierarchy
        if hierarchy.finished or hierarchy.rounds == before.rounds:
            return


def next_round(searched: Searched, hierarchy: Hierarchy, request: RoundRequest) -> Hierarchy:
    """The tree after one more round: every leaf that was not tried yet is tried."""
    number, leaves = hierarchy.rounds + 1, searched.leaves(hierarchy)
    wanted = _to_try(searched, hierarchy, leaves, request)
    rows = {path: torch.tensor([k for k, leaf in enumerate(leaves) if leaf == path]) for path in wanted}
    few = [path for path in wanted if not _enough(searched, rows[path])]
    paths = [path for path in wanted if path not in few]
    found = [_too_few(path, number, searched, rows[path]) for path in few]
    splits: list[Split] = []
    if paths:
        config = replace(searched.model.config, seed=rng.torch_seed(searched.model.config.seed, "round", number))
        held = [rows[path][searched.held_out[rows[path]]] for path in paths]
        nodes = [
            node_images(searched.bank, rows[path][~searched.held_out[rows[path]]], index, config, searched.threads)
            for index, path in enumerate(paths)
        ]
        heads = train_heads(searched.bank, nodes, config.relaxed.neighbor_prob, config.seed)
        trials = [try_node(searched.bank, heads, k, nodes[k], held[k], config) for k in range(len(paths))]
        corrected = conditional.holm([trial.log_p for trial in trials])
        needed = STORED_BOUNDARY if config.views.stored else MIN_BOUNDARY
        for k, path in enumerate(paths):
            trial = trials[k]._replace(log_p=corrected[k])
            outcome = judged(trial, request.by_hand, needed)
            split = _split(searched.bank, heads, k, nodes[k], trial, path)
            tried = Tried(path, number, rows[path], held[k], trial, outcome)
            found.append(_described(searched.bank, tried, split)._replace(needed=needed))
            if outcome in ("split", "by hand"):
                splits.append(split)
    order = sorted(found, key=lambda node: node.path)
    ended = not splits and not request.only
    return Hierarchy((*hierarchy.splits, *splits), (*hierarchy.nodes, *order), ended)


def _to_try(searched: Searched, hierarchy: Hierarchy, leaves: list[Path], request: RoundRequest) -> list[Path]:
    """The leaves of the next round, in order. A person may ask again for one that was not split."""
    present = sorted(set(leaves))
    if not request.only:
        return [path for path in present if hierarchy.tried(path) is None]
    known = set(hierarchy.paths(searched.model.n_clusters))
    for path in request.only:
        if path not in known:
            raise ValueError(
                f"there is no cluster {path_text(path)}; the run has "
                f"{', '.join(path_text(other) for other in sorted(known)[:12])}{' …' if len(known) > 12 else ''}"
            )
        if request.by_hand and path in hierarchy.children:
            raise ValueError(f"cluster {path_text(path)} is split already; split one of its sub-clusters, or undo it")
    if request.by_hand:
        return [path for path in present if path in request.only]
    return [
        path
        for path in present
        if any(path[: len(top)] == top for top in request.only) and hierarchy.tried(path) is None
    ]


def _enough(searched: Searched, rows: Tensor) -> bool:
    held = int(searched.held_out[rows].sum())
    return held >= MIN_HELD_OUT and len(rows) - held >= MIN_SEARCHED


def _too_few(path: Path, number: int, searched: Searched, rows: Tensor) -> Node:
    held = int(searched.held_out[rows].sum())
    return Node(path, number, len(rows), held, "too few images", 1, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)


def judged(trial: NodeTrial, by_hand: bool = False, least: float = MIN_BOUNDARY) -> Outcome:
    """Whether a trial is a split, and if not why; its p-value is already corrected. ``least``: phi of a boundary."""
    if trial.n_children < 2:
        return "one group"
    if by_hand:
        return "by hand"
    if trial.log_p > math.log(LEVEL):
        return "no surprise"
    if trial.boundary < least or trial.strength < HOLDS:
        return "weak boundary"
    return "split"


def _split(bank: ViewBank, heads: NodeHeads, node: int, images: NodeImages, trial: NodeTrial, path: Path) -> Split:
    """The selected head of a node with its confidence: how surely an augmented view gets the same output."""
    weight, bias = heads.weight[node, trial.head].clone(), heads.bias[node, trial.head].clone()
    split = Split(path, weight, bias, tuple(trial.groups), 1.0)
    plain = F.normalize(bank.mean[images.rows] @ weight.t() + bias, dim=-1)
    seen = (bank.augmented[images.rows][:, :, :2].flatten(1, 2) @ weight.t() + bias).argmax(-1)  # (n, 4)
    sharpness = sharpness_of(plain.repeat_interleave(seen.shape[1], 0), seen.flatten())
    return replace(split, sharpness=sharpness)


class Tried(NamedTuple):
    """A node of a round, and what came of it."""

    path: Path
    number: int
    rows: Tensor
    held_out: Tensor
    trial: NodeTrial
    outcome: Outcome


def _described(bank: ViewBank, tried: Tried, split: Split) -> Node:
    """The node as it is kept with the model."""
    path, number, rows, held_out, trial, outcome = tried
    nats, score, order = 0.0, 0.0, 1.0
    if outcome in ("split", "by hand"):
        sides = NodeLabels(*split.labels(bank.plain[rows]).unbind(1))
        nats = conditional.explained(sides, trial.n_children)
        counts = surprise.count(*sides, trial.n_children)
        score = float(surprise.surprise(counts))
        order = float(surprise.orderliness(surprise.joint_counts(*sides, trial.n_children)))
    return Node(
        path, number, len(rows), len(held_out), outcome, trial.n_children, trial.log_p, trial.boundary, trial.agreement,
        nats, score, order, trial.views_agree, trial.by_chance, strength=trial.strength,
    )  # fmt: skip


def request_of(rounds: int | str | None, only: Sequence[Path] = ()) -> RoundRequest:
    """The request of a user's rounds: a number, or "auto" for as many as find something."""
    if rounds == "auto" or rounds is None:
        return RoundRequest(None, tuple(only))
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise ValueError(f"rounds is {rounds!r}; it must be a whole number of at least 1, or auto")
    return RoundRequest(rounds, tuple(only))
