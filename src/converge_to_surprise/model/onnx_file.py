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
from ..core.pixels import statistics
from ..core.views import make_views, to_float
from .cluster_model import Model
from .encoder import EmbeddingEncoder
from .hierarchy import path_text
from .inference import outputs_of
from .onnx_composition import compose

if TYPE_CHECKING:
    import onnx

OUTPUTS = ("cluster", "confidence", "second", "views_agree", "probabilities", "embedding", "novelty")
"""Of a model without novelty the last one is left out."""
LEAVES = ("leaf", "leaf_confidence")
"""Of a model whose clusters were opened: the finest sub-cluster, as a place in the metadata ``paths``."""
EXPORTED_WITH = 4
"""Images in the traced batch; the file accepts any number."""


class Whole(nn.Module):
    """From a batch of raw images to its clusters."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.network = model.active.network

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """uint8 (N, C, H, W) -> what is named in OUTPUTS. (N, ...)"""
        return self.clusters(*make_views(to_float(images), self.model.config.views), images)

    def clusters(self, view_i: Tensor, view_j: Tensor, images: Tensor | None = None) -> tuple[Tensor, ...]:
        """The clusters of two views; embeddings have no images."""
        features_i, features_j = self.network.features(view_i), self.network.features(view_j)
        pixels = None if images is None else statistics(to_float(images))
        calibration = self.model.active.calibration
        found = self.model.interpret(outputs_of(self.network, features_i, features_j, calibration, pixels))
        return tuple(getattr(found, name) for name in output_names(self.model))


def output_names(model: Model) -> list[str]:
    """The outputs that the file of a model has."""
    known = OUTPUTS if model.active.calibration.novelty is not None else OUTPUTS[:-1]
    return [*known, *(LEAVES if model.hierarchy is not None else ())]


class FromEmbeddings(Whole):
    """From a batch of embeddings to its clusters."""

    def __init__(self, model: Model, encoder: EmbeddingEncoder) -> None:
        super().__init__(model)
        self.encoder = encoder

    def forward(self, embeddings: Tensor) -> tuple[Tensor, ...]:
        """float32 (N, D) or (N, V, D) -> the same as from images"""
        items = embeddings[:, None, None] if embeddings.ndim == 2 else embeddings[:, :, None]
        view_i, view_j = self.encoder.view_features(items).unbind(1)
        return self.clusters(view_i, view_j)


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
            whole = FromEmbeddings(model, model.encoder).eval()
            described = _trace(whole, (example,), ["embeddings"], output_names(model))
        elif model.encoder is not None:
            described = compose(model, model.encoder, output_names(model), _trace)
        else:
            example = torch.zeros(EXPORTED_WITH, *model.shape, dtype=torch.uint8)
            described = _trace(Whole(model).cpu().eval(), (example,), ["images"], output_names(model))
    finally:
        network.to(home).train(training)
    about = {
        "clusters": json.dumps(model.cluster_names),
        "shape": json.dumps(model.shape),
        "paths": json.dumps([path_text(path) for path in model.paths]),
        "model": "converge-to-surprise",
    }
    onnx.helper.set_model_props(described, about)
    write_atomically(path, described.SerializeToString())


def _trace(
    module: nn.Module, examples: tuple[Tensor, ...], inputs: list[str], outputs: list[str], opset: int | None = None
) -> onnx.ModelProto:
    """The graph of a module with these inputs, for any number of rows; later inputs have as many as the first."""
    import onnx

    arguments = list(inspect.signature(module.forward).parameters)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")
        traced = os.path.join(folder, "model.onnx")
        torch.onnx.export(
            module, examples, traced, input_names=inputs, output_names=outputs, opset_version=opset,
            dynamic_shapes={name: {0: torch.export.Dim.DYNAMIC} for name in arguments},
            external_data=False, verbose=False,
        )  # fmt: skip
        return onnx.load(traced)


class _quiet:  # noqa: N801 - used like a function
    """Silences the log of torch's exporter."""

    def __enter__(self) -> None:
        self._before = logging.root.manager.disable
        logging.disable(logging.WARNING)

    def __exit__(self, *error: object) -> None:
        logging.disable(self._before)
