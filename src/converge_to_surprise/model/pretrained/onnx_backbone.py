"""Open an ONNX file as a frozen backbone."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .backbone_files import OnnxBytes, check_expected, check_file, link_root, read_file, read_onnx
from .frozen import Features, PretrainedBackbone
from .identity import Identity, PreprocessFlags
from .onnx_session import OnnxRunner, open_session
from .onnx_trial import TrialJob, try_onnx

if TYPE_CHECKING:
    import onnx


class OnnxFeatures(Features):
    """Features by onnxruntime, on the CPU."""

    def __init__(self, runner: OnnxRunner, read: Callable[[], OnnxBytes]) -> None:
        """``read`` reads the files of the model again."""
        super().__init__()
        self.runner = runner
        self._read = read

    def __call__(self, images: Tensor) -> Tensor:
        return torch.from_numpy(self.runner.run(images.cpu().numpy()))

    def proto(self) -> onnx.ModelProto:
        """The model with its external data inside."""
        import onnx

        content = self._read()
        found = onnx.load_model_from_string(content.model)
        for tensor in found.graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                where = {entry.key: entry.value for entry in tensor.external_data}
                start, data = int(where.get("offset", 0)), content.external[where["location"]]
                tensor.raw_data = data[start : start + int(where.get("length", len(data) - start))]
                tensor.ClearField("external_data")
                tensor.data_location = onnx.TensorProto.DEFAULT
        return found

    def takes(self, side: int) -> bool:
        """A file that does not fix the size takes each size at which it runs and gives as many features."""
        fixed = self.runner.signature.side
        return super().takes(side) if fixed is None else side == fixed


def open_onnx(
    path: Path, source: str, flags: PreprocessFlags | None = None, folder: Path | None = None,
    expected_sha256: str | None = None,
) -> PretrainedBackbone:  # fmt: skip
    """Open an ONNX file after a trial in another process.

    ``folder`` is that of the whole repository, if the file is of one: its preprocessor file counts.
    """
    for library in ("onnx", "onnxruntime"):
        if importlib.util.find_spec(library) is None:
            raise ValueError(f"ONNX files need {library}: pip install 'converge-to-surprise[photos]'")
    check_file(path)
    folder = path.parent if folder is None else folder
    root = link_root(folder)
    trial = try_onnx(TrialJob(str(path.absolute()), str(root), str(folder.absolute()), flags or PreprocessFlags()))

    def read() -> OnnxBytes:
        content = read_onnx(path, read_file(path), trial.external, root)
        if content.sha256 != trial.sha256:
            raise ValueError(f"{path}: it was changed while it was opened")
        return content

    content = read()
    check_expected(source, content.sha256, expected_sha256)
    runner = OnnxRunner(open_session(content), trial.signature)
    identity = Identity(source, content.sha256, trial.preprocess, trial.signature.features)
    return PretrainedBackbone(identity, OnnxFeatures(runner, read))
