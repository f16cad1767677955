"""``cts export``: a run's model as an ONNX file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from .arguments import RunPath
from .output import say


@dataclass(frozen=True)
class Command:
    """Write a run's model for programs without torch."""

    run: RunPath
    """A finished run, or a model file."""
    onnx: Path
    """ONNX file to write: from raw images (uint8, any number of them) or embeddings to cluster, confidence and
    novelty."""
    n_clusters: int | None = None
    """Cut the merge tree at this many clusters instead of where the run cut it."""
    force: bool = False
    """Overwrite an existing file."""


def execute(command: Command, console: Console) -> None:
    from ..model import onnx_file
    from ..runs.load import load_model
    from .predict import check_free

    check_free(command.onnx, "--onnx", command.force)
    model = load_model(command.run, command.n_clusters)
    onnx_file.export(model, command.onnx)
    size = command.onnx.stat().st_size / 1e6
    text = f"{command.onnx}: {size:.1f} MB, from {onnx_file.input_text(model)}"
    say(console, f"{text} to {', '.join(onnx_file.OUTPUTS)}")
