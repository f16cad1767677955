"""pyarrow, which only Parquet files need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def parquet(path: Path) -> Iterator[Any]:
    """The module ``pyarrow.parquet`` to read a file with; its errors become a ValueError of one line."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ValueError(
            f"{path} is a Parquet file, and reading it needs pyarrow: pip install 'converge-to-surprise[tables]'"
        ) from None
    try:
        yield pq
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"cannot read {path} as a table: {error}") from None
