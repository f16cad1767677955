"""Lists of pictures in CSV and Parquet files: a column of paths, perhaps one of labels."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .listing import Listing, list_paths

SUFFIXES = (".csv", ".tsv", ".parquet")
PATH_COLUMNS = ("path", "file", "filename", "file_name", "image")
LABEL_COLUMNS = ("label", "class", "target")


def list_table(path: str | Path) -> Listing:
    """The pictures that a table names, in its order; relative paths start at the table's folder."""
    path = Path(path)
    places, labels = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    listing = list_paths([os.path.join(path.parent, place) for place in places])
    names = [place or f"row {row}" for row, place in enumerate(places, 1)]
    return Listing(str(path), listing.paths, list_paths(names).names, _checked(labels, path))


def _checked(labels: Sequence[str] | None, path: Path) -> Sequence[str] | None:
    if labels is not None and "" in labels:
        raise ValueError(
            f"row {labels.index('') + 1} of {path} has no label; give every row one or leave the column out"
        )
    return labels


def _read_csv(path: Path) -> tuple[list[str], list[str] | None]:
    try:
        # Excel writes a byte order mark; names that are not valid Unicode must still lead to their files.
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            header = file.readline()
            file.seek(0)
            separator = max(",;\t", key=header.count)
            rows = csv.reader(file, delimiter=separator, skipinitialspace=True)
            columns = next(rows, [])
            where, label = _columns(columns, path)
            content = [row for row in rows if row]
    except (OSError, csv.Error) as error:
        raise ValueError(f"cannot read {path} as a table: {error}") from None

    def column(number: int) -> list[str]:
        return [row[number] if number < len(row) else "" for row in content]

    return column(where), None if label is None else column(label)


def _read_parquet(path: Path) -> tuple[list[str], list[str] | None]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ValueError(
            f"{path} is a Parquet file, and reading it needs pyarrow: pip install 'converge-to-surprise[tables]'"
        ) from None
    try:
        names = pq.read_schema(path).names
        where, label = _columns(names, path)
        wanted = [names[number] for number in (where, label) if number is not None]
        table = pq.read_table(path, columns=wanted, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"cannot read {path} as a table: {error}") from None
    places = table.column(wanted[0]).to_pylist()
    if not all(place is None or isinstance(place, str) for place in places):
        raise ValueError(f"the column {wanted[0]!r} of {path} holds {table.schema.field(wanted[0]).type}, not paths")
    labels = None if label is None else [_text(value) for value in table.column(wanted[1]).to_pylist()]
    return [_text(place) for place in places], labels


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _columns(names: Sequence[str], path: Path) -> tuple[int, int | None]:
    """Which column holds the paths, and which the labels."""
    plain = [name.strip().lower() for name in names]
    where = next((plain.index(name) for name in PATH_COLUMNS if name in plain), None)
    if where is None:
        raise ValueError(f"{path} has the columns {list(names)}; one of them must be called {', '.join(PATH_COLUMNS)}")
    return where, next((plain.index(name) for name in LABEL_COLUMNS if name in plain), None)
