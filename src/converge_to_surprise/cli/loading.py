"""Load images for a command, with a progress bar while pictures are decoded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from ..config.images import ImageOptions
    from ..data.datasets import Dataset
    from ..runs.folder import RunFolder


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


def images_of(run: RunFolder, source: str | None, data_dir: Path | None, console: Console) -> Dataset:
    """The training images of a run, from where they are now if they have moved."""
    about = run.description()
    return load_images(source or about.source, data_dir or about.local_data, about.reading, console, about.shape)
