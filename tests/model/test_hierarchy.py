from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.known_trees import FEATURES, tree_items, tree_model

from converge_to_surprise.model import model_file
from converge_to_surprise.model.carried_names import Annotations
from converge_to_surprise.model.cluster_model import Model
from converge_to_surprise.model.hierarchy import Hierarchy, Node, Split, parse_path
from converge_to_surprise.model.inference import Outputs


def by_feature(path: tuple[int, ...], feature: int) -> Split:
    """A split by the sign of one feature; the third output joins the first part."""
    weight = torch.zeros(3, FEATURES)
    weight[:2, feature] = torch.tensor([1.0, -1.0])
    return Split(path, weight, torch.tensor([0.0, 0.0, -50.0]), (0, 1, 0), 10.0)


def node(path: tuple[int, ...], outcome: str = "split", number: int = 1) -> Node:
    return Node(path, number, 50, 15, outcome, 2, -20.0, 0.9, 1.0, 30.0, 0.4, 1.9)  # type: ignore[arg-type]


TREE = Hierarchy(
    (by_feature((0,), 2), by_feature((0, 1), 3)), (node((0,)), node((1,), "no surprise"), node((0, 1), "split", 2))
)


def outputs(winner: list[int], features: torch.Tensor) -> Outputs:
    labels = torch.tensor(winner)
    chances = torch.nn.functional.one_hot(labels, 3).float()
    return Outputs(labels, labels, labels, chances, features, torch.full((len(labels),), torch.nan))


@pytest.fixture
def model() -> Model:
    items, _ = tree_items(90)
    found = tree_model(items)
    sized = replace(found.final, sizes=(40, 30, 20))
    return replace(found, final=sized, hierarchy=TREE)


def test_images_descend_to_their_leaves(model: Model) -> None:
    features = torch.zeros(4, FEATURES)
    features[:, 2] = torch.tensor([1.0, -1.0, -1.0, 1.0])
    features[:, 3] = torch.tensor([-1.0, 1.0, -1.0, 1.0])
    found = model.interpret(outputs([0, 0, 0, 1], features))
    assert [model.paths[leaf] for leaf in found.leaf.tolist()] == [(0, 0), (0, 1, 0), (0, 1, 1), (1,)]
    assert found.cluster.tolist() == [0, 0, 0, 1]
    assert (found.leaf_confidence[:3] < found.confidence[:3]).all()
    assert found.leaf_confidence[3] == found.confidence[3]
    first, second = (split.probabilities(features[1:2]) for split in TREE.splits)
    torch.testing.assert_close(found.leaf_confidence[1], found.confidence[1] * first[0, 1] * second[0, 0])


def test_what_a_person_merged_or_called_noise_is_not_opened(model: Model) -> None:
    features = torch.zeros(2, FEATURES)
    features[:, 2] = 1.0
    merged = replace(model, annotations=Annotations(["0", "1", "2"], [0, 0, 2], [False] * 3))
    assert merged.interpret(outputs([0, 1], features)).leaf.tolist() == [0, 0]
    noise = replace(model, annotations=Annotations(["0", "1", "2"], [0, 1, 2], [True, False, False]))
    assert noise.interpret(outputs([0, 1], features)).leaf.tolist() == [-1, 1]


def leaves(tree: Hierarchy, clusters: int) -> list[tuple[int, ...]]:
    return sorted(path for path in tree.paths(clusters) if path not in tree.children)


def test_another_cut_has_no_sub_clusters(model: Model) -> None:
    assert model.hierarchy is not None
    assert leaves(model.hierarchy, 3) == [(0, 0), (0, 1, 0), (0, 1, 1), (1,), (2,)]


def test_a_split_that_is_undone_takes_everything_below_it_along() -> None:
    assert leaves(TREE.without([(0, 1)]), 2) == [(0, 0), (0, 1), (1,)]
    left = TREE.without([(0,)])
    assert leaves(left, 2) == [(0,), (1,)]
    assert [one.path for one in left.nodes] == [(1,)]


def test_names_of_sub_clusters(model: Model) -> None:
    named = replace(
        model, annotations=Annotations(["bags", "1", "2"], [0, 1, 2], [False] * 3), node_names={"0/1": "handle"}
    )
    assert [named.path_name(path) for path in ((0,), (0, 1), (0, 1, 0), (2,))] == [
        "bags", "bags/handle", "bags/handle/0", "2",
    ]  # fmt: skip


def test_the_model_file_keeps_the_tree(model: Model) -> None:
    content = model_file.to_bytes(replace(model, encoder=None, node_names={"0/1": "handle"}))
    found, _, _ = model_file.from_bytes(content, "it")
    assert found.hierarchy is not None
    assert found.hierarchy.nodes == TREE.nodes
    assert found.node_names == {"0/1": "handle"}
    for one, other in zip(found.hierarchy.splits, TREE.splits, strict=True):
        assert (one.path, one.children, one.sharpness) == (other.path, other.children, other.sharpness)
        assert torch.equal(one.weight, other.weight)


@pytest.mark.parametrize(
    "change",
    [
        {"path": (7,)},
        {"children": (0, 0, 0)},
        {"children": (0, 2, 0)},
        {"sharpness": 0.0},
        {"weight": torch.zeros(3, FEATURES + 1)},
        {"bias": torch.tensor([0.0, torch.nan, 0.0])},
    ],
)
def test_a_forged_tree_is_refused(model: Model, change: dict[str, object]) -> None:
    forged = replace(TREE, splits=(replace(TREE.splits[0], **change), *TREE.splits[1:]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot read the model it"):
        model_file.from_bytes(model_file.to_bytes(replace(model, hierarchy=forged)), "it")


@pytest.mark.parametrize("text", ["", "a", "1/-2", "1//2", "1/²"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the path of a cluster"):
        parse_path(text)
