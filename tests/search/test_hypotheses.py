from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.known_trees import tree_items, tree_model

from converge_to_surprise.core.metrics import adjusted_rand_index
from converge_to_surprise.model.hierarchy import Hierarchy, path_text
from converge_to_surprise.search import hypotheses, node_heads, node_start
from converge_to_surprise.search.hypotheses import RoundRequest, Searched, deepen, judged
from converge_to_surprise.search.node_split import NodeTrial
from converge_to_surprise.search.relaxed import relaxed_surprise


@pytest.fixture(scope="module")
def searched() -> Searched:
    items, _ = tree_items()
    return Searched.of(tree_model(items), items)


@pytest.fixture(scope="module")
def tree(searched: Searched) -> Hierarchy:
    return list(deepen(searched, RoundRequest()))[-1]


def leaf_numbers(searched: Searched, tree: Hierarchy) -> np.ndarray:
    return np.unique([path_text(path) for path in searched.leaves(tree)], return_inverse=True)[1]


def test_each_node_has_the_surprise_of_its_own_images() -> None:
    soft = torch.softmax(3 * torch.randn(2, 3, 4, 20, 5, generator=torch.Generator().manual_seed(0)), -1)
    found = node_heads.relaxed_surprise_by_node(soft[0], soft[1])
    for node in range(3):
        alone, _ = relaxed_surprise(soft[0, node].transpose(0, 1), soft[1, node].transpose(0, 1))
        torch.testing.assert_close(found[node], alone)


def test_the_tree_that_was_made_is_found(searched: Searched, tree: Hierarchy) -> None:
    _, truth = tree_items()
    assert adjusted_rand_index(leaf_numbers(searched, tree), truth) > 0.99
    largest = int(searched.model.numbers[0])
    assert {split.path[0] for split in tree.splits} == {largest}
    assert tree.finished
    assert tree.rounds == 2


def test_what_holds_no_structure_stays_whole(tree: Hierarchy) -> None:
    """Clusters 1 and 2 are noise around a center, and so are the leaves of the first."""
    whole = [node for node in tree.nodes if not node.is_split]
    assert len(whole) == 5
    assert {node.outcome for node in whole} <= {"no surprise", "weak boundary", "one group", "too few images"}


def test_views_that_share_only_their_cluster_are_not_split() -> None:
    """H1 is true: each view has parts, but view j has those of another item."""
    items, _ = tree_items(paired=False)
    found = list(deepen(Searched.of(tree_model(items), items), RoundRequest()))[-1]
    assert not found.splits
    assert found.finished
    assert all(node.log_p > math.log(0.01) for node in found.nodes)


def test_the_search_does_not_see_held_out_images(searched: Searched, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def spy(bank, rows, *rest):  # type: ignore[no-untyped-def]
        seen.extend(rows.tolist())
        return node_images(bank, rows, *rest)

    node_images = node_start.node_images
    monkeypatch.setattr(hypotheses, "node_images", spy)
    hypotheses.next_round(searched, Hierarchy(), RoundRequest())
    held = set(searched.held_out.nonzero()[:, 0].tolist())
    assert held
    assert not held & set(seen)
    assert held | set(seen) == set(range(len(searched.numbers)))


def test_copies_are_held_out_together(searched: Searched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three in a row are copies: the search must not see what tests it."""
    items, _ = tree_items()
    copies = torch.arange(len(items)) // 3 * 3
    monkeypatch.setattr(hypotheses, "view_bank", lambda *_: searched.bank._replace(copies=copies))
    held = Searched.of(tree_model(items), items).held_out.reshape(-1, 3)
    assert (held == held[:, :1]).all()
    assert 0.2 < held[:, 0].float().mean() < 0.4


def test_rounds_in_two_calls_are_the_rounds_of_one(searched: Searched, tree: Hierarchy) -> None:
    first = list(deepen(searched, RoundRequest(1)))[-1]
    assert first.rounds == 1
    again = searched._replace(model=replace(searched.model, hierarchy=first))
    both = list(deepen(again, RoundRequest()))[-1]
    assert both.nodes == tree.nodes
    for one, other in zip(both.splits, tree.splits, strict=True):
        assert torch.equal(one.weight, other.weight)
        assert (one.path, one.children, one.sharpness) == (other.path, other.children, other.sharpness)


def test_only_the_wanted_cluster_is_opened(searched: Searched) -> None:
    other = int(searched.model.numbers[1])
    found = list(deepen(searched, RoundRequest(None, ((other,),))))[-1]
    assert {node.path for node in found.nodes} == {(other,)}
    with pytest.raises(ValueError, match="there is no cluster 7"):
        list(deepen(searched, RoundRequest(None, ((7,),))))


def test_by_hand_a_cluster_is_split_that_the_run_would_not_split(searched: Searched) -> None:
    other = int(searched.model.numbers[1])
    found = list(deepen(searched, RoundRequest(1, ((other,),), by_hand=True)))[-1]
    assert [node.outcome for node in found.nodes] == ["by hand"]
    assert found.by_hand == [(other,)]
    again = searched._replace(model=replace(searched.model, hierarchy=found))
    with pytest.raises(ValueError, match="split already"):
        list(deepen(again, RoundRequest(1, ((other,),), by_hand=True)))


@pytest.mark.parametrize(
    ("children", "p", "boundary", "strength", "outcome"),
    [
        (2, 1e-4, 0.9, 0.9, "split"),
        (2, 0.02, 0.9, 0.9, "no surprise"),
        (2, 1e-4, 0.4, 0.9, "weak boundary"),
        (2, 1e-4, 0.9, 0.8, "weak boundary"),
        (1, 1.0, 0.0, 0.0, "one group"),
    ],
)
def test_a_split_needs_surprise_a_boundary_and_strength(
    children: int, p: float, boundary: float, strength: float, outcome: str
) -> None:
    trial = NodeTrial(children, 0, [], 1.0, math.log(p), boundary, 1.0, 0.5, strength)
    assert judged(trial) == outcome


def test_stored_features_need_a_stronger_boundary(searched: Searched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their views are augmented as in training only."""
    monkeypatch.setattr(hypotheses, "try_node", lambda *_: NodeTrial(2, 0, [0, 1] * 4, 1.0, -50.0, 0.6, 1.0, 0.5, 0.9))
    assert {node.outcome for node in hypotheses.next_round(searched, Hierarchy(), RoundRequest()).nodes} == {
        "weak boundary"
    }


def test_nats_of_a_split_are_those_of_its_views(searched: Searched, tree: Hierarchy) -> None:
    """Parts on which all views agree: the entropy of their sizes for each image."""
    _, truth = tree_items()
    sizes = np.bincount(truth)[:3] / (truth < 3).sum()
    node = next(node for node in tree.nodes if node.is_split)
    assert node.nats / node.images == pytest.approx(-(sizes * np.log(sizes)).sum(), rel=0.02)
    assert node.orderliness == pytest.approx(2.0, abs=0.05)


@pytest.mark.parametrize("rounds", [0, -1, True, "many", 1.5])
def test_wrong_rounds_are_refused(rounds: object) -> None:
    with pytest.raises(ValueError, match="rounds is"):
        hypotheses.request_of(rounds)  # type: ignore[arg-type]
