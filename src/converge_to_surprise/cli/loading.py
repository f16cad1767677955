"""Load images for a command, with a progress bar while pictures are decoded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from ..config.images import ImageOptions
    from ..data.datasets import Dataset


def load_images(
    source: str,
    data_dir: Path | None,
    options: ImageOptions,
    console: Console,
    shape: tuple[int, int, int] | None = None,
) -> Dataset:
    """The images of a source; the processes of torchrun share the decoding."""
    from ..data import datasets
    from ..data.decode import hide_pillow_warnings
    from ..runs.progress import CountDisplay

    hide_pillow_warnings()
    with CountDisplay(console, "pictures read", 0) as progress:
        return datasets.load(source, data_dir, options, progress, shape)
