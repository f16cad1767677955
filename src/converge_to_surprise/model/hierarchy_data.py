"""A tree of sub-clusters as plain data and tensors, and back after a check of everything that is used of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import Tensor

from ..config.checks import is_number
from .hierarchy import Hierarchy, Node, Outcome, Path, Split, parse_path, path_text
from .validation import is_count, require

DEEPEST = 64
"""Longest path that is read."""


def hierarchy_tensors(tree: Hierarchy) -> dict[str, Tensor]:
    """The heads of all splits."""
    found: dict[str, Tensor] = {}
    for index, split in enumerate(tree.splits):
        found |= {f"split.{index}.weight": split.weight, f"split.{index}.bias": split.bias}
    return found


def described_hierarchy(tree: Hierarchy) -> dict[str, Any]:
    """Everything else."""
    return {
        "splits": [
            {"path": path_text(split.path), "children": list(split.children), "sharpness": split.sharpness}
            for split in tree.splits
        ],
        "nodes": [node_data(node) for node in tree.nodes],
        "finished": tree.finished,
    }


def node_data(node: Node) -> dict[str, Any]:
    """A node as a row of a table."""
    return node._asdict() | {"path": path_text(node.path)}


def parse_hierarchy(data: Any, tensors: Mapping[str, Tensor], clusters: int, features: int) -> Hierarchy:
    """The inverse of both, for a model with so many cluster numbers and features. A ValueError says what is wrong."""
    require(isinstance(data, dict) and isinstance(data.get("finished"), bool), "tree of sub-clusters")
    known: set[Path] = {(number,) for number in range(clusters)}
    splits: list[Split] = []
    for index, one in enumerate(data["splits"]):
        path, children = _path(one["path"]), tuple(one["children"])
        weight, bias = tensors[f"split.{index}.weight"], tensors[f"split.{index}.bias"]
        require(path in known and all(split.path != path for split in splits), "split")
        require(weight.shape == (len(children), features) and bias.shape == (len(children),), "split")
        require(all(value.dtype == torch.float32 and bool(value.isfinite().all()) for value in (weight, bias)), "split")
        require(all(is_count(child) and child >= 0 for child in children), "split")
        require(len(set(children)) == max(children) + 1 >= 2, "split")
        require(is_number(one["sharpness"]) and one["sharpness"] > 0, "sharpness")
        splits.append(Split(path, weight, bias, children, float(one["sharpness"])))
        known |= {(*path, child) for child in children}
    return Hierarchy(tuple(splits), tuple(_node(one, known) for one in data["nodes"]), data["finished"])


def _path(text: Any) -> Path:
    require(isinstance(text, str), "path")
    path = parse_path(text)
    require(len(path) <= DEEPEST, "path")
    return path


def _node(data: Any, known: set[Path]) -> Node:
    fields = set(Node._fields)
    require(isinstance(data, dict) and fields - set(Node._field_defaults) <= data.keys() <= fields, "node")
    node = Node(**(data | {"path": _path(data["path"])}))
    require(node.path in known and node.outcome in get_args(Outcome), "node")
    counts = (node.round, node.images, node.held_out, node.n_children)
    require(all(is_count(value) and value >= 0 for value in counts) and node.round >= 1, "node")
    measures = (
        node.log_p,
        node.boundary,
        node.agreement,
        node.nats,
        node.surprise,
        node.orderliness,
        node.needed,
        node.strength,
    )
    require(all(is_number(value) for value in measures), "node")
    require(all(is_number(value) and 0 <= value <= 1 for value in (node.views_agree, node.by_chance)), "node")
    return node


def check_node_names(names: Any) -> dict[str, str]:
    """Names of sub-clusters by path."""
    require(isinstance(names, dict), "names of sub-clusters")
    for path, name in names.items():
        _path(path)
        require(isinstance(name, str), "names of sub-clusters")
    return dict(names)
