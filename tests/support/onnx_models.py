"""Small ONNX models for tests, built operator by operator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str]
IMAGES: Shape = ("n", 3, "h", "w")


def weights(features: int = 8, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The kernel of a convolution over patches of 4 x 4 pixels."""
    return np.random.default_rng(seed).normal(0, 0.2, (features, 3, 4, 4)).astype(np.float32)


def model(
    nodes: Sequence[onnx.NodeProto], outputs: Sequence[str] = ("y",), shape: Shape = IMAGES,
    tensors: Sequence[onnx.TensorProto] = (), dtype: int = TensorProto.FLOAT,
) -> onnx.ModelProto:  # fmt: skip
    """A model with the input x and the outputs named."""
    graph = helper.make_graph(
        list(nodes), "g", [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info(name, dtype, None) for name in outputs], list(tensors),
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def patches() -> list[onnx.NodeProto]:
    """x (n, 3, h, w) -> map (n, 8, h/4, w/4)"""
    return [helper.make_node("Conv", ["x", "w"], ["c"], strides=[4, 4]), helper.make_node("Relu", ["c"], ["map"])]


def vectors(shape: Shape = IMAGES, seed: int = 0) -> onnx.ModelProto:
    """Images to vectors of eight features."""
    nodes = [*patches(), helper.make_node("ReduceMean", ["map", "axes"], ["y"], keepdims=0)]
    axes = numpy_helper.from_array(np.array([2, 3], dtype=np.int64), "axes")
    return model(nodes, shape=shape, tensors=[numpy_helper.from_array(weights(seed=seed), "w"), axes])


def maps() -> onnx.ModelProto:
    """Images to a map of features, channels first."""
    return model(patches(), ["map"], tensors=[numpy_helper.from_array(weights(), "w")])


def tokens(outputs: Sequence[str] = ("last_hidden_state",), shape: Shape = ("n", 3, 16, 16)) -> onnx.ModelProto:
    """Images of 16 pixels to a class token of sevens, then 16 tokens of patches; ``pooler_output`` is all sevens."""
    grid = numpy_helper.from_array(np.array([0, 8, -1], dtype=np.int64), "grid")
    sevens = numpy_helper.from_array(np.full((1, 1, 8), 7, dtype=np.float32), "sevens")
    vector = numpy_helper.from_array(np.array([0, -1], dtype=np.int64), "vector")
    one = numpy_helper.from_array(np.array([2], dtype=np.int64), "one")
    nodes = [
        *patches(),
        helper.make_node("Reshape", ["map", "grid"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["patch"], perm=[0, 2, 1]),
        helper.make_node("ReduceMax", ["patch", "rows"], ["most"], keepdims=1),
        helper.make_node("Sub", ["most", "most"], ["nothing"]),
        helper.make_node("Add", ["nothing", "sevens"], ["class"]),
        helper.make_node("Concat", ["class", "patch"], ["last_hidden_state"], axis=1),
        helper.make_node("Reshape", ["class", "vector"], ["pooler_output"]),
    ]
    rows = numpy_helper.from_array(np.array([1], dtype=np.int64), "rows")
    tensors = [numpy_helper.from_array(weights(), "w"), grid, sevens, vector, one, rows]
    return model(nodes, outputs, shape, tensors)


def save(proto: onnx.ModelProto, path: Path, **metadata: str) -> Path:
    """Write a model with metadata."""
    if metadata:
        helper.set_model_props(proto, metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(proto.SerializeToString())
    return path


def save_external(proto: onnx.ModelProto, path: Path, location: str) -> Path:
    """Write a model that keeps its first tensor elsewhere; ``location`` is written as it is, no file is made."""
    tensor = proto.graph.initializer[0]
    length = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return save(proto, path)


def expected(
    images: np.ndarray[tuple[int, ...], np.dtype[np.float32]], seed: int = 0
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The features of ``vectors`` by a loop over patches: images (n, 3, s, s) -> (n, 8)."""
    kernel, side = weights(seed=seed), images.shape[2] // 4
    found = np.zeros((len(images), 8), dtype=np.float64)
    for row in range(side):
        for column in range(side):
            patch = images[:, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
            found += np.maximum(np.tensordot(patch, kernel, axes=([1, 2, 3], [1, 2, 3])), 0)
    return (found / side**2).astype(np.float32)
