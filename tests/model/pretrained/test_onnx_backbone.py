"""ONNX files as frozen backbones: what they compute, how they are prepared, what is refused."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from support import onnx_models as made

from converge_to_surprise.model.backbone import Backbone
from converge_to_surprise.model.pretrained import Identity, Preprocess, PreprocessFlags, onnx_trial, open_backbone

pytestmark = pytest.mark.subprocess
IMAGES = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def refused(path: Path, flags: PreprocessFlags | None = None) -> str:
    """The message of a refusal, which is one line and names the file."""
    with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
        open_backbone(str(path), flags)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_features_are_those_of_the_model(path: Path) -> None:
    backbone = open_backbone(str(made.save(made.vectors(), path)))
    found = backbone(IMAGES)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), made.expected(IMAGES.numpy()), rtol=1e-5, atol=1e-6)
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    preprocess = Preprocess(224, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), "bilinear")
    assert backbone.identity == Identity(str(path), checksum, preprocess, 8)
    assert Identity.from_dict(json.loads(json.dumps(backbone.identity.to_dict()))) == backbone.identity


def test_input_is_normalized(path: Path) -> None:
    made.save(made.vectors(), path)
    mean, std = (0.5, 0.25, 0.125), (0.5, 2.0, 1.0)
    found = open_backbone(str(path), PreprocessFlags(size=16, mean=mean, std=std))(IMAGES)
    given = (IMAGES.numpy() - np.reshape(mean, (1, 3, 1, 1))) / np.reshape(std, (1, 3, 1, 1))
    np.testing.assert_allclose(found.numpy(), made.expected(given.astype(np.float32)), rtol=1e-4, atol=1e-6)


def test_it_is_frozen_and_holds_nothing_for_a_model_file(path: Path) -> None:
    backbone = open_backbone(str(made.save(made.vectors(), path)))
    assert not list(backbone.parameters())
    assert not backbone.state_dict()
    assert copy.deepcopy(backbone) is backbone
    assert not backbone(IMAGES.clone().requires_grad_()).requires_grad
    assert Backbone.probe(backbone, frozen=True, shape=(3, 16, 16)).features == 8
    assert backbone(IMAGES[:0]).shape == (0, 8)


def test_several_threads_get_the_same(path: Path) -> None:
    backbone = open_backbone(str(made.save(made.vectors(), path)))
    images = torch.rand(64, 3, 32, 32)
    alone = [backbone(part) for part in torch.split(images, 8)]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(backbone, torch.split(images, 8)))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_maps_are_averaged(path: Path) -> None:
    backbone = open_backbone(str(made.save(made.maps(), path)))
    np.testing.assert_allclose(backbone(IMAGES).numpy(), made.expected(IMAGES.numpy()), rtol=1e-5, atol=1e-6)


def test_tokens_are_averaged_without_the_class_token(path: Path) -> None:
    backbone = open_backbone(str(made.save(made.tokens(), path)))
    np.testing.assert_allclose(backbone(IMAGES).numpy(), made.expected(IMAGES.numpy()), rtol=1e-5, atol=1e-6)


def test_a_pooled_output_is_preferred(path: Path) -> None:
    backbone = open_backbone(str(made.save(made.tokens(("last_hidden_state", "pooler_output")), path)))
    assert torch.equal(backbone(IMAGES), torch.full((5, 8), 7.0))


def test_half_precision_is_taken(path: Path) -> None:
    nodes = [*made.patches(), helper.make_node("GlobalAveragePool", ["map"], ["y"])]
    tensor = numpy_helper.from_array(made.weights().astype(np.float16), "w")
    made.save(made.model(nodes, tensors=[tensor], dtype=TensorProto.FLOAT16), path)
    found = open_backbone(str(path))(IMAGES)
    np.testing.assert_allclose(found.numpy(), made.expected(IMAGES.numpy()), atol=2e-3)


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 8])
def test_a_fixed_batch_is_filled(path: Path, batch: int) -> None:
    backbone = open_backbone(str(made.save(made.vectors((batch, 3, 16, 16)), path)))
    np.testing.assert_allclose(backbone(IMAGES).numpy(), made.expected(IMAGES.numpy()), rtol=1e-5, atol=1e-6)


def test_a_fixed_size_is_resized_to(path: Path) -> None:
    backbone = open_backbone(str(made.save(made.vectors(("n", 3, 16, 16)), path)))
    assert backbone.identity.preprocess.size == 16
    small = torch.rand(2, 3, 8, 8)
    wanted = torch.nn.functional.interpolate(small, (16, 16), mode="bilinear", antialias=True).clamp(0, 1)
    assert torch.equal(backbone(small), backbone(wanted))
    assert "16 pixels; the size 32 does not fit" in refused(path, PreprocessFlags(size=32))


def test_a_size_that_a_dynamic_file_cannot_take_is_resized(path: Path) -> None:
    """The shape of the file is open, but its operators need 16 pixels."""
    backbone = open_backbone(str(made.save(made.tokens(shape=made.IMAGES), path)), PreprocessFlags(size=16))
    assert backbone(torch.rand(2, 3, 16, 16)).shape == (2, 8)
    assert backbone(torch.rand(2, 3, 3, 3)).shape == (2, 8)


def test_metadata_tells_the_preprocessing(path: Path) -> None:
    made.save(made.vectors(), path, size="32", mean="[0.1, 0.2, 0.3]", std="[0.5]", resample="bicubic")
    found = open_backbone(str(path)).identity.preprocess
    assert found == Preprocess(32, (0.1, 0.2, 0.3), (0.5, 0.5, 0.5), "bicubic")
    found = open_backbone(str(path), PreprocessFlags(size=48, std=(1.0, 2.0, 3.0))).identity.preprocess
    assert found == Preprocess(48, (0.1, 0.2, 0.3), (1.0, 2.0, 3.0), "bicubic")


def test_metadata_may_hold_a_preprocessor(path: Path) -> None:
    held = {"size": {"shortest_edge": 36}, "crop_size": {"height": 32, "width": 32}, "image_mean": [0, 0.5, 1]}
    made.save(made.vectors(), path, preprocessor=json.dumps(held | {"image_std": [1, 2, 3], "resample": 3}))
    assert open_backbone(str(path)).identity.preprocess == Preprocess(32, (0.0, 0.5, 1.0), (1.0, 2.0, 3.0), "bicubic")


def test_a_preprocessor_file_beside_the_model_counts(path: Path) -> None:
    made.save(made.vectors(), path)
    (path.parent / "preprocessor_config.json").write_text(json.dumps({"size": 24, "resample": 0}))
    assert open_backbone(str(path)).identity.preprocess == Preprocess(24, (0.0,) * 3, (1.0,) * 3, "nearest")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"size": "1e9"}, "input size"),
        ({"size": "4"}, "the input size is 4; it must be 8 to 1024 pixels"),
        ({"mean": "[1, 2]"}, "three numbers"),
        ({"std": "[0, 0, 0]"}, "above 0"),
        ({"resample": "magic"}, "resample is 'magic'"),
        ({"preprocessor": "[" * 100_000}, "nested too deeply"),
    ],
)
def test_wrong_metadata_is_refused(path: Path, metadata: dict[str, str], message: str) -> None:
    made.save(made.vectors(), path, **metadata)
    assert message in refused(path)


def test_another_backbone_than_the_expected_one_is_refused(path: Path) -> None:
    made.save(made.vectors(), path)
    checksum = open_backbone(str(path)).identity.sha256
    assert open_backbone(str(path), expected_sha256=checksum).identity.sha256 == checksum
    made.save(made.vectors(seed=1), path)
    with pytest.raises(ValueError, match=f"fitted with a backbone that has the sha256 {checksum}, but .* has "):
        open_backbone(str(path), expected_sha256=checksum)


# What is not a backbone


def test_files_that_are_no_models(path: Path, tmp_path: Path) -> None:
    assert "there is no such file" in refused(path)
    assert "has neither an ONNX file nor" in refused(tmp_path)
    for content in (b"", b"no model", b"PK\x03\x04" * 100, bytes(1000)):
        path.write_bytes(content)
        assert "not an ONNX file" in refused(path)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (("n", 1, "h", "w"), "its input 'x' has shape ?×1×?×?; it must be (B, 3, S, S)"),
        (("n", 16, 16, 3), "colors before rows"),
        (("n", 3, 16, 32), "only square inputs"),
        (("n", 48), "must be (B, 3, S, S)"),
    ],
)
def test_inputs_that_are_no_images(path: Path, shape: made.Shape, message: str) -> None:
    made.save(made.model([helper.make_node("Identity", ["x"], ["y"])], shape=shape), path)
    assert message in refused(path)


def test_integer_and_second_inputs_are_refused(path: Path) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    made.save(made.model([node], dtype=TensorProto.INT64), path)
    assert "tensor(int64)" in refused(path)
    proto = made.model([helper.make_node("Add", ["x", "ids"], ["y"])])
    proto.graph.input.add().CopyFrom(helper.make_tensor_value_info("ids", TensorProto.FLOAT, ["n", 3, "h", "w"]))
    assert "2 inputs (x, ids)" in refused(made.save(proto, path))


def test_outputs_that_are_no_vectors(path: Path) -> None:
    made.save(made.model([helper.make_node("Shape", ["x"], ["s"]), helper.make_node("ReduceMax", ["x"], ["y"])]), path)
    assert "it gives no vectors for 2 images" in refused(path)
    nodes = [helper.make_node("Sqrt", ["m"], ["y"]), helper.make_node("Neg", ["x"], ["m"])][::-1]
    assert "not finite" in refused(made.save(made.model(nodes), path))


# Hostile files


def test_external_data_in_the_folder_is_used(path: Path) -> None:
    made.save_external(made.vectors(), path, "weights/model.bin")
    (path.parent / "weights").mkdir()
    data = path.parent / "weights" / "model.bin"
    data.write_bytes(made.weights().tobytes())
    backbone = open_backbone(str(path))
    np.testing.assert_allclose(backbone(IMAGES).numpy(), made.expected(IMAGES.numpy()), rtol=1e-5, atol=1e-6)
    sums = subprocess.run(["sha256sum", "model.onnx", "weights/model.bin"], cwd=path.parent, capture_output=True).stdout
    assert backbone.identity.sha256 == hashlib.sha256(sums).hexdigest()
    data.write_bytes(made.weights(seed=1).tobytes())
    assert open_backbone(str(path)).identity.sha256 != backbone.identity.sha256
    data.write_bytes(b"short")
    refused(path)
    data.unlink()
    assert "there is no such file" in refused(path)


@pytest.mark.parametrize(
    "location", ["/etc/passwd", "../secret.bin", "a/../../secret.bin", "link", "folder/s", "", "model.onnx"]
)
def test_external_data_elsewhere_is_refused(tmp_path: Path, location: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    secret = tmp_path / "secret.bin"
    secret.write_bytes(made.weights().tobytes())
    (tmp_path / "s").write_bytes(made.weights().tobytes())
    (home / "link").symlink_to(secret)
    (home / "folder").symlink_to(tmp_path)
    path = made.save_external(made.vectors(), home / "model.onnx", location)
    assert "its external data" in refused(path)


@pytest.mark.parametrize("sparse", [False, True])
def test_external_data_in_an_operator_is_refused(path: Path, sparse: bool) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    indices = numpy_helper.from_array(np.array([0], dtype=np.int64), "i")
    value = {"sparse_value": helper.make_sparse_tensor(tensor, indices, [1])} if sparse else {"value": tensor}
    inner = helper.make_graph([helper.make_node("Constant", [], ["k"], **value)], "g", [], [])
    nodes = [
        helper.make_node("Identity", ["x"], ["y"]),
        helper.make_node("If", ["x"], ["z"], then_branch=inner, else_branch=inner),
    ]
    assert "operator Constant has external data" in refused(made.save(made.model(nodes), path))


@pytest.mark.parametrize("place", ["graph", "branch", "function"])
def test_custom_operators_are_refused(path: Path, place: str) -> None:
    custom = helper.make_node("Run", ["x"], ["y"], domain="evil.ops")
    proto = made.model([custom])
    proto.opset_import.append(helper.make_opsetid("evil.ops", 1))
    if place == "branch":
        inner = helper.make_graph([custom], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
        del proto.graph.node[:]
        proto.graph.node.append(helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner))
    elif place == "function":
        opsets = [helper.make_opsetid("evil.ops", 1)]
        proto.functions.append(helper.make_function("mine", "F", ["x"], ["y"], [custom], opsets))
        proto.opset_import.append(helper.make_opsetid("mine", 1))
        del proto.graph.node[:]
        proto.graph.node.append(helper.make_node("F", ["x"], ["y"], domain="mine"))
    assert "custom operator evil.ops::Run, which is not loaded" in refused(made.save(proto, path))


def test_functions_of_the_model_itself_are_run(path: Path) -> None:
    proto = made.maps()
    conv = proto.graph.node[0]
    function = helper.make_function("mine", "F", ["x", "w"], ["c"], [conv], [helper.make_opsetid("", 18)])
    proto.functions.append(function)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    proto.graph.node[0].CopyFrom(helper.make_node("F", ["x", "w"], ["c"], domain="mine"))
    backbone = open_backbone(str(made.save(proto, path)))
    np.testing.assert_allclose(backbone(IMAGES).numpy(), made.expected(IMAGES.numpy()), rtol=1e-5, atol=1e-6)


def huge(values: list[int], shape_of: str = "ConstantOfShape") -> onnx.ModelProto:
    """A small file whose run asks for a tensor of the given shape."""
    shape = numpy_helper.from_array(np.array(values, dtype=np.int64), "shape")
    if shape_of == "Expand":
        nodes = [
            helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
            helper.make_node("Expand", ["m", "shape"], ["b"]),
        ]
    else:
        nodes = [helper.make_node("ConstantOfShape", ["shape"], ["b"])]
    nodes += [helper.make_node("ReduceSum", ["b"], ["s"], keepdims=0), helper.make_node("Add", ["x", "s"], ["y"])]
    return made.model(nodes, tensors=[shape])


@pytest.mark.parametrize("operator", ["ConstantOfShape", "Expand"])
@pytest.mark.parametrize("values", [[2**20, 2**20], [2**40, 2**40], [-1, 5], [2**62]])
def test_huge_tensors_do_not_take_the_memory(path: Path, operator: str, values: list[int]) -> None:
    refused(made.save(huge(values, operator), path))


LIMITED = """
import sys
from converge_to_surprise.model.pretrained import onnx_trial
onnx_trial.free_memory = lambda: 500 << 20
sys.exit(onnx_trial.main())
"""


@pytest.mark.parametrize(("values", "refused"), [([2**20], False), ([2**28], True)])
def test_the_trial_takes_no_more_than_the_free_memory(path: Path, values: list[int], refused: bool) -> None:
    made.save(huge(values, "Expand"), path)
    job = onnx_trial.TrialJob(str(path), str(path.parent), str(path.parent), PreprocessFlags(size=16))
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], input=json.dumps(dataclasses.asdict(job)), capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert ("error" in json.loads(done.stdout.splitlines()[-1])) == refused


def test_a_tensor_that_claims_more_than_the_file_has_is_refused(path: Path) -> None:
    proto = made.vectors()
    proto.graph.initializer[0].dims[0] = 2**40
    assert "its tensor 'w' claims" in refused(made.save(proto, path))
    proto.graph.initializer[0].dims[0] = -8
    assert "its tensor 'w' has a negative size" in refused(made.save(proto, path))


def test_a_file_that_never_ends_is_given_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Sin", ["v"], ["w"])],
        "body",
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("v", TensorProto.FLOAT, None)],
        [value("on", TensorProto.BOOL, []), value("w", TensorProto.FLOAT, None)],
    )
    most = numpy_helper.from_array(np.array(2**62, dtype=np.int64), "most")
    proto = made.model([helper.make_node("Loop", ["most", "", "x"], ["y"], body=body)], tensors=[most])
    monkeypatch.setattr(onnx_trial, "PATIENCE", 3)
    assert "did not give features of two images in 3 seconds" in refused(made.save(proto, path))


def test_what_is_missing_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.save(made.vectors(), path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=re.escape("onnx: pip install 'converge-to-surprise[photos]'")):
        open_backbone(str(path))
