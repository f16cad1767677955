"""Open an ONNX file as a frozen backbone."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .checksum import check_expected
from .frozen import PretrainedBackbone
from .identity import Identity, PreprocessFlags
from .onnx_bytes import check_file, read_file, read_onnx
from .onnx_session import OnnxRunner, open_session
from .onnx_trial import Job, try_onnx


class OnnxFeatures:
    """Features by onnxruntime, on the CPU."""

    def __init__(self, runner: OnnxRunner) -> None:
        self.runner = runner
        self._tried: dict[int, bool] = {}
        self._lock = threading.Lock()

    def __call__(self, images: Tensor) -> Tensor:
        return torch.from_numpy(self.runner.run(images.cpu().numpy()))

    def takes(self, side: int) -> bool:
        """A file that does not fix the size takes each size at which it runs and gives as many features."""
        if self.runner.signature.side is not None:
            return side == self.runner.signature.side
        with self._lock:
            if side not in self._tried:
                self._tried[side] = self._runs(side)
            return self._tried[side]

    def _runs(self, side: int) -> bool:
        try:
            found = self.runner.run(np.full((1, 3, side, side), 0.5, dtype=np.float32))
        except Exception:  # onnxruntime's own have no common class
            return False
        return bool(np.isfinite(found).all())


def open_onnx(
    path: Path, source: str, flags: PreprocessFlags | None = None, root: Path | None = None,
    expected_sha256: str | None = None,
) -> PretrainedBackbone:  # fmt: skip
    """Open an ONNX file after a trial in another process.

    ``root`` is the folder of a whole repository: its preprocessor file counts, and links may point into it.
    """
    for library in ("onnx", "onnxruntime"):
        if importlib.util.find_spec(library) is None:
            raise ValueError(f"ONNX files need {library}: pip install 'converge-to-surprise[photos]'")
    check_file(path)
    beside = path.parent.parent if path.parent.name == "onnx" and root is not None else path.parent
    allowed = path.parent if root is None else root
    trial = try_onnx(Job(str(path.absolute()), str(allowed), str(beside), flags or PreprocessFlags()))
    content = read_onnx(path, read_file(path), trial.external, allowed)
    if content.sha256 != trial.sha256:
        raise ValueError(f"{path}: it was changed while it was opened")
    check_expected(source, content.sha256, expected_sha256)
    runner = OnnxRunner(open_session(content), trial.signature)
    identity = Identity(source, content.sha256, trial.preprocess, trial.signature.features)
    return PretrainedBackbone(identity, OnnxFeatures(runner))
