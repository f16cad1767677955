"""Export a model as one ONNX file, from raw images to clusters, for programs without torch."""

from __future__ import annotations

import inspect
import json
import logging
import os
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..config.storage import write_atomically
from ..core.views import make_views, to_float
from .cluster_model import Model
from .encoder import EmbeddingEncoder
from .inference import outputs_of
from .onnx_composition import compose

if TYPE_CHECKING:
    import onnx

OUTPUTS = ("cluster", "confidence", "second", "views_agree", "probabilities", "embedding")
EXPORTED_WITH = 4
"""Images in the traced batch; the file accepts any number."""


class Whole(nn.Module):
    """From a batch of raw images to its clusters."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.network = model.active.network

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """uint8 (N, C, H, W) -> cluster, confidence, second, views_agree (N,), probabilities, embedding (N, ...)"""
        view_i, view_j = make_views(to_float(images), self.model.config.views)
        features_i, features_j = self.network.features(view_i), self.network.features(view_j)
        found = self.model.interpret(outputs_of(self.network, features_i, features_j, self.model.active.sharpness))
        return found.cluster, found.confidence, found.second, found.views_agree, found.probabilities, found.embedding


class FromEmbeddings(nn.Module):
    """From a batch of embeddings to its clusters."""

    def __init__(self, model: Model, encoder: EmbeddingEncoder) -> None:
        super().__init__()
        self.model, self.encoder, self.network = model, encoder, model.active.network

    def forward(self, embeddings: Tensor) -> tuple[Tensor, ...]:
        """float32 (N, D) or (N, V, D) -> the same as from images"""
        items = embeddings[:, None, None] if embeddings.ndim == 2 else embeddings[:, :, None]
        view_i, view_j = (self.network.features(view) for view in self.encoder.view_features(items).unbind(1))
        found = self.model.interpret(outputs_of(self.network, view_i, view_j, self.model.active.sharpness))
        return found.cluster, found.confidence, found.second, found.views_agree, found.probabilities, found.embedding


def input_text(model: Model) -> str:
    """What an exported file takes, in words."""
    if isinstance(model.encoder, EmbeddingEncoder):
        return f"embeddings float32 (N, {', '.join(map(str, model.encoder.given))})"
    return f"images uint8 (N, {', '.join(map(str, model.shape))})"


def export(model: Model, path: Path) -> None:
    """Write the ONNX file: input ``images`` or ``embeddings``, outputs as in ``OUTPUTS``, cluster names as metadata."""
    try:
        import onnx
        import onnxscript  # noqa: F401 - torch's exporter needs it
    except ImportError as error:
        raise ValueError(f"ONNX export needs {error.name}: pip install 'converge-to-surprise[onnx]'") from None
    network = model.active.network
    home, training = next(network.parameters()).device, network.training
    try:
        network.cpu().eval()
        model.prepare()  # only what depends on the images is traced
        if isinstance(model.encoder, EmbeddingEncoder):
            example = torch.zeros(EXPORTED_WITH, *model.encoder.given)
            described = _trace(FromEmbeddings(model, model.encoder).eval(), example, "embeddings", list(OUTPUTS))
        elif model.encoder is not None:
            described = compose(model, model.encoder, OUTPUTS, _trace)
        else:
            example = torch.zeros(EXPORTED_WITH, *model.shape, dtype=torch.uint8)
            described = _trace(Whole(model).cpu().eval(), example, "images", list(OUTPUTS))
    finally:
        network.to(home).train(training)
    about = {
        "clusters": json.dumps(model.cluster_names),
        "shape": json.dumps(model.shape),
        "model": "converge-to-surprise",
    }
    onnx.helper.set_model_props(described, about)
    write_atomically(path, described.SerializeToString())


def _trace(
    module: nn.Module, example: Tensor, name: str, outputs: list[str], opset: int | None = None
) -> onnx.ModelProto:
    """The graph of a module with one input ``name``, for any number of rows."""
    import onnx

    argument = next(iter(inspect.signature(module.forward).parameters))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")
        traced = os.path.join(folder, "model.onnx")
        torch.onnx.export(
            module, (example,), traced, input_names=[name], output_names=outputs, opset_version=opset,
            dynamic_shapes={argument: {0: torch.export.Dim("rows")}}, external_data=False, verbose=False,
        )  # fmt: skip
        return onnx.load(traced)


class _quiet:  # noqa: N801 - used like a function
    """Silences the log of torch's exporter."""

    def __enter__(self) -> None:
        self._before = logging.root.manager.disable
        logging.disable(logging.WARNING)

    def __exit__(self, *error: object) -> None:
        logging.disable(self._before)
