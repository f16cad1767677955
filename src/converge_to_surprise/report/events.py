"""Records as TensorBoard event files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..runs.session import Reader
from ..search.record import Record

FOLDER = "tensorboard"
SCALARS = ("surprise", "orderliness", "agreement", "surprising", "active", "views", "seconds")


@contextmanager
def event_files(folder: Path) -> Iterator[Reader]:
    """A reader of records that writes event files into ``folder``/tensorboard, for `tensorboard --logdir`.

    The steps of a run that is resumed follow those written before.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            "--tensorboard needs the tensorboard package: pip install 'converge-to-surprise[tensorboard]'"
        ) from None
    writer: Any = SummaryWriter(str(folder / FOLDER))

    def read(record: Record) -> None:
        for name in SCALARS:
            writer.add_scalar(f"{'clusters' if name in ('surprising', 'active') else 'run'}/{name}",
                              getattr(record, name), record.step)  # fmt: skip

    try:
        yield read
    finally:
        writer.close()
