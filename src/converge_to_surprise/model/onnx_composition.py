"""One ONNX graph from raw pictures to clusters with the run's backbone inside.

A backbone from an ONNX file stays as it is: what makes its input from the pictures and what makes clusters from its
output are traced by torch and joined to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.pixels import statistics
from ..core.views import make_views, to_float
from .cluster_model import Model
from .encoder import BackboneEncoder, square_color
from .inference import outputs_of
from .pretrained.frozen import resized
from .pretrained.onnx_backbone import OnnxFeatures
from .pretrained.onnx_session import OnnxRunner
from .pretrained.pooling import extra_tokens

if TYPE_CHECKING:
    import onnx

OLDEST = 18
"""Operator set below which torch cannot write; older backbones are converted to it."""


class BackboneInput(nn.Module):
    """Raw pictures (N, C, H, W) -> the backbone's input for all views i, then for all views j. (2N, 3, S, S)

    And the statistics of the pictures' pixels. (N, statistics)
    """

    def __init__(self, encoder: BackboneEncoder, features: OnnxFeatures) -> None:
        super().__init__()
        self.recipe = encoder.recipe
        self.resize = not features.takes(encoder.recipe.shape[1])
        self.dtype = getattr(torch, features.runner.signature.dtype)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        settings = self.recipe.identity.preprocess
        views = torch.cat(make_views(square_color(images, self.recipe.shape), self.recipe.views))
        views = resized(views, settings) if self.resize else views
        mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (settings.mean, settings.std))
        return ((views - mean) / std).to(self.dtype), statistics(to_float(images))


class Clusters(nn.Module):
    """What the backbone gives for the views of N pictures -> their clusters."""

    def __init__(self, model: Model, encoder: BackboneEncoder, runner: OnnxRunner, names: Sequence[str]) -> None:
        super().__init__()
        self.names = names
        self.model, self.network, self.projection = model, model.active.network, encoder.projection
        self.pooling, self.extra = runner.signature.pooling, extra_tokens(_raw_shape(runner, encoder)[1])

    def forward(self, found: Tensor, statistics: Tensor) -> tuple[Tensor, ...]:
        if self.pooling == "tokens":
            found = found[:, self.extra :].mean(1)
        elif self.pooling != "none":
            found = found.mean((2, 3) if self.pooling == "channels_first" else (1, 2))
        # Rounded as stored features are.
        features = self.network.features(self.projection(found.half()).float())
        count = features.shape[0] // 2
        calibration = self.model.active.calibration
        outputs = outputs_of(self.network, features[:count], features[count:], calibration, statistics)
        predicted = self.model.interpret(outputs)
        return tuple(getattr(predicted, name) for name in self.names)


def compose(model: Model, encoder: BackboneEncoder, names: Sequence[str], trace: Any) -> onnx.ModelProto:
    """The joined graph with the outputs ``names``. ``trace``: exports (module, examples, inputs, outputs, opset)."""
    from onnx import compose as joining

    features = getattr(encoder.backbone, "_features", None)
    if not isinstance(features, OnnxFeatures):
        raise ValueError(
            f"the backbone {encoder.recipe.identity.source} is not an ONNX file, and only such can be put into one; "
            "fit with the ONNX file of the same model"
        )
    runner = features.runner
    if runner.signature.batch is not None:
        raise ValueError(
            f"the backbone {encoder.recipe.identity.source} takes exactly {runner.signature.batch} images at a time, "
            "so no file for any number of images can be made of it"
        )
    backbone = _at_least(features.proto(), OLDEST, encoder.recipe.identity.source)
    opset = next(entry.version for entry in backbone.opset_import if entry.domain in ("", "ai.onnx"))
    example = torch.zeros(2, *model.shape, dtype=torch.uint8)
    before = trace(BackboneInput(encoder, features).eval(), (example,), ["images"], ["views", "statistics"], opset)
    shape = _raw_shape(runner, encoder)
    raw = torch.zeros(4, *shape[1:])
    given = (raw, statistics(to_float(example)))
    after = trace(Clusters(model, encoder, runner, names).eval(), given, ["found", "statistics"], list(names), opset)
    _keep_output(backbone, runner.signature.output, shape)
    before = joining.add_prefix(before, "views/", rename_inputs=False)
    backbone = joining.add_prefix(backbone, "backbone/")
    for part in (before, backbone, after):
        part.ir_version = max(before.ir_version, backbone.ir_version, after.ir_version)
        del part.graph.value_info[:]  # shapes of other numbers of images
    signature = runner.signature
    joined = joining.merge_models(before, backbone, [("views/views", f"backbone/{signature.name}")])
    links = [(f"backbone/{signature.output}", "found"), ("views/statistics", "statistics")]
    return joining.merge_models(joined, after, links, inputs=["images"], outputs=list(names))


def _raw_shape(runner: OnnxRunner, encoder: BackboneEncoder) -> tuple[int, ...]:
    """The shape of what the backbone gives for one view, before pooling."""
    side, signature = encoder.recipe.shape[1], runner.signature
    blank = np.zeros((1, 3, signature.side or side, signature.side or side), dtype=signature.dtype)
    (found,) = runner.session.run([signature.output], {signature.name: blank})
    return tuple(found.shape)


def _keep_output(proto: onnx.ModelProto, name: str, shape: tuple[int, ...]) -> None:
    """Drop the other outputs, and give this one the shape that it has for any number of views."""
    from onnx import helper

    kind = next(output for output in proto.graph.output if output.name == name).type.tensor_type.elem_type
    del proto.graph.output[:]
    proto.graph.output.append(helper.make_tensor_value_info(name, kind, ["views", *shape[1:]]))


def _at_least(proto: onnx.ModelProto, opset: int, source: str) -> onnx.ModelProto:
    """The model at this operator set or at its own, if that is newer."""
    from onnx import version_converter

    own = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 1)
    if own >= opset:
        return proto
    try:
        return version_converter.convert_version(proto, opset)
    except RuntimeError as error:
        raise ValueError(
            f"the backbone {source} has the operator set {own} and cannot be converted to {opset} ({error}); export it "
            f"again with a newer operator set"
        ) from None
