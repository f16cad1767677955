"""Open and run ONNX models with onnxruntime, on the CPU and with one thread per call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...config.text import one_line
from .backbone_files import OnnxBytes
from .pooling import Pooling, pool, pooling_of

if TYPE_CHECKING:
    import onnxruntime

Array = NDArray[Any]
FLOATS = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64"}
PREFERRED = ("pooler_output", "image_embeds", "image_features", "sentence_embedding", "embeddings", "embedding",
             "features", "last_hidden_state")  # fmt: skip
"""Names of outputs that are taken before others, best first."""
BATCH = 2
"""Images in a trial, where the file does not fix the number."""
SILENT = 4
"""onnxruntime's level of messages: none but fatal ones. Its errors arrive as exceptions."""


@dataclass(frozen=True)
class Signature:
    """The input of a model, and the output that is used."""

    name: str
    """Of the input."""
    dtype: str
    batch: int | None
    """The number of images that the file fixes."""
    side: int | None
    """The input size in pixels that the file fixes."""
    output: str = ""
    pooling: Pooling = "none"
    features: int = 0


def open_session(content: OnnxBytes) -> onnxruntime.InferenceSession:
    """A session from bytes alone: onnxruntime opens no file and no library."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # callers bring their own threads
    options.log_severity_level = SILENT
    options.use_deterministic_compute = True
    if content.external:
        names, held = list(content.external), list(content.external.values())
        options.add_external_initializers_from_files_in_memory(names, held, list(map(len, held)))
    return onnxruntime.InferenceSession(content.model, options, providers=["CPUExecutionProvider"])


def input_of(session: onnxruntime.InferenceSession) -> Signature:
    """The input of a model; a ValueError if it does not take (B, 3, S, S)."""
    inputs = session.get_inputs()
    if len(inputs) != 1:
        names = ", ".join(one.name for one in inputs)
        raise ValueError(f"it has {len(inputs)} inputs ({names}); it must have one, a batch of images")
    (found,) = inputs
    shape = list(found.shape)
    text = "×".join("?" if not isinstance(dim, int) else str(dim) for dim in shape)
    if found.type not in FLOATS:
        raise ValueError(f"its input {found.name!r} is {found.type} of shape {text}; it must be float, (B, 3, S, S)")
    fixed = [dim if isinstance(dim, int) and dim > 0 else None for dim in shape]
    if len(shape) != 4 or fixed[1] not in (None, 3):
        raise ValueError(f"its input {found.name!r} has shape {text}; it must be (B, 3, S, S), colors before rows")
    sides = {side for side in fixed[2:] if side is not None}
    if len(sides) > 1:
        raise ValueError(f"its input {found.name!r} has shape {text}; only square inputs are supported")
    return Signature(found.name, FLOATS[found.type], fixed[0], next(iter(sides), None))


def choose_output(session: onnxruntime.InferenceSession, signature: Signature, size: int) -> Signature:
    """Run a model on a few images of ``size`` pixels and choose the output that gives vectors."""
    batch = signature.batch or BATCH
    ramp = np.linspace(0, 1, batch * 3 * size * size, dtype=signature.dtype).reshape(batch, 3, size, size)
    wanted = [one.name for one in session.get_outputs() if one.type in FLOATS]
    wanted.sort(key=lambda name: PREFERRED.index(name) if name in PREFERRED else len(PREFERRED))
    seen = []
    for name, found in zip(wanted, session.run(wanted, {signature.name: ramp}), strict=True):
        pooling = pooling_of(found.shape)
        if pooling is not None and len(found) == batch:
            vectors = pool(found, pooling)
            if not np.isfinite(vectors).all():
                raise ValueError(f"its output {name!r} is not finite")
            return replace(signature, output=name, pooling=pooling, features=vectors.shape[1])
        seen.append(f"{name!r} {'×'.join(map(str, found.shape))}")
    raise ValueError(f"it gives no vectors for {batch} images ({', '.join(seen) or 'no outputs of floats'})")


class OnnxRunner:
    """Features from an ONNX model; several threads may call it at once."""

    def __init__(self, session: onnxruntime.InferenceSession, signature: Signature) -> None:
        self.session = session
        self.signature = signature

    def run(self, images: Array) -> NDArray[np.float32]:
        """Normalized images (B, 3, S, S) -> (B, D). A fixed batch size is filled with copies of the last image."""
        batch = self.signature.batch
        if batch is None or len(images) == batch:
            return self._call(images)
        parts = []
        for start in range(0, len(images), batch):
            part = images[start : start + batch]
            fill = np.repeat(part[-1:], batch - len(part), axis=0)
            parts.append(self._call(np.concatenate([part, fill]))[: len(part)])
        return np.concatenate(parts)

    def _call(self, images: Array) -> NDArray[np.float32]:
        given = np.ascontiguousarray(images, dtype=self.signature.dtype)
        (found,) = self.session.run([self.signature.output], {self.signature.name: given})
        vectors = pool(found, self.signature.pooling)
        if vectors.shape != (len(images), self.signature.features):
            expected = f"({len(images)}, {self.signature.features})"
            raise ValueError(f"it gives {vectors.shape} for images of {images.shape[2]} pixels in place of {expected}")
        return vectors


def reason(error: Exception) -> str:
    """The message of onnxruntime in one line, without the code in front."""
    text = str(error)
    return one_line(text.split(" : ", 2)[-1].strip() or type(error).__name__, longest=300)
