"""Check the structure of an ONNX model before it is run: operators, external data, claimed sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

BUILT_IN = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Domains of the operators that onnxruntime has; libraries with others are never loaded."""


@dataclass(frozen=True)
class Structure:
    """The parts of a model that are read without running it."""

    external: tuple[str, ...]
    """Files with external data."""
    metadata: dict[str, str]


def inspect(content: bytes) -> Structure:
    """Parse a model and refuse one that must not be run. The messages do not name the file."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.ModelProto.FromString(content)
    except (DecodeError, RecursionError, ValueError):
        raise ValueError("it is not an ONNX file, or it is damaged") from None
    if not model.graph.node or not model.graph.output:
        raise ValueError("it is not an ONNX file, or it is damaged")
    local = {(function.domain, function.name) for function in model.functions}
    for node in _nodes(model):
        if node.domain not in BUILT_IN and (node.domain, node.op_type) not in local:
            raise ValueError(f"it needs the custom operator {node.domain}::{node.op_type}, which is not loaded")
        for attribute in node.attribute:
            if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in _attached(attribute)):
                raise ValueError(f"its operator {node.op_type} has external data, which is refused")
    locations = {_location(tensor) for graph in _graphs(model) for tensor in _external(graph)}
    for graph in _graphs(model):
        for tensor in graph.initializer:
            _check_size(tensor, len(content))
    return Structure(tuple(sorted(locations)), {one.key: one.value for one in model.metadata_props})


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The main graph and the graphs inside of operators (If, Loop, Scan), also those of functions."""
    waiting = [model.graph]
    waiting += [graph for function in model.functions for node in function.node for graph in _inner(node)]
    while waiting:
        graph = waiting.pop()
        yield graph
        waiting += [inner for node in graph.node for inner in _inner(node)]


def _inner(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [
        graph
        for attribute in node.attribute
        for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs)
    ]


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for graph in _graphs(model):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def _attached(attribute: onnx.AttributeProto) -> Iterator[onnx.TensorProto]:
    """The tensors of an operator's attribute, also those that make up sparse ones."""
    yield from (attribute.t, *attribute.tensors)
    for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
        yield from (sparse.values, sparse.indices)


def _external(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    import onnx

    for sparse in graph.sparse_initializer:
        if onnx.TensorProto.EXTERNAL in (sparse.values.data_location, sparse.indices.data_location):
            raise ValueError("it has a sparse tensor with external data, which is refused")
    for tensor in graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor


def _location(tensor: onnx.TensorProto) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def _check_size(tensor: onnx.TensorProto, held: int) -> None:
    """A tensor inside of the file cannot have more values than the file has half bytes."""
    import onnx

    if any(dim < 0 for dim in tensor.dims):
        raise ValueError(f"its tensor {tensor.name!r} has a negative size")
    if tensor.data_location != onnx.TensorProto.EXTERNAL and math.prod(tensor.dims) > 2 * held:
        raise ValueError(f"its tensor {tensor.name!r} claims {math.prod(tensor.dims):,} values, more than the file has")
