"""Embeddings in a Parquet file: a column of lists, or one column for each value."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ..config.memory import check_memory
from .array_file import Part
from .arrays import Array
from .listing import LABEL_COLUMNS, parquet

LIST_COLUMNS = ("embedding", "embeddings", "features", "vector")
"""Names that decide among several columns of lists."""
INDEX = "__index_level_0__"
"""What pandas calls the column of row names."""


def read_embedding_table(path: Path, pictures: str | None) -> Part:
    """The embeddings of a table, its labels if a column has their name, and the column ``pictures`` of paths."""
    with parquet(path) as pq:
        file = pq.ParquetFile(path)
        schema, metadata = file.schema_arrow, file.metadata
        check_memory(sum(metadata.row_group(k).total_byte_size for k in range(metadata.num_row_groups)), path)
        chosen = _value_columns(schema, path, pictures)
        label = next((name for name in schema.names if name.strip().lower() in LABEL_COLUMNS), None)
        if pictures is not None and pictures not in schema.names:
            raise ValueError(
                f"--images is {pictures}, which is neither a folder nor a column of {path}: {schema.names}"
            )
        wanted = [*chosen, *(name for name in (label, pictures) if name is not None and name not in chosen)]
        table = pq.read_table(path, columns=wanted, partitioning=None)
    columns = [_numbers(table.column(name), f"the column {name!r} of {path}") for name in chosen]
    values = columns[0] if columns[0].ndim > 1 else np.stack(columns, 1)
    labels = None if label is None else np.array([str(one) for one in table.column(label).to_pylist()])
    paths = None if pictures is None else _paths(table.column(pictures), path, pictures)
    return Part(values, labels, str(path), paths)


def _value_columns(schema: Any, path: Path, pictures: str | None) -> list[str]:
    """The column of lists, or all columns of numbers."""
    import pyarrow as pa

    def is_number(kind: Any) -> bool:
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))

    def is_vector(kind: Any) -> bool:
        while _is_list(kind):
            kind = kind.value_type
            if is_number(kind):
                return True
        return False

    lists = [field.name for field in schema if is_vector(field.type)]
    named = [name for name in lists if name.strip().lower() in LIST_COLUMNS]
    if len(lists) > 1 and len(named) != 1:
        raise ValueError(f"{path} has several columns of lists: {lists}; call the one with the embeddings 'embedding'")
    if lists:
        return named[:1] or lists
    left_out = {INDEX, pictures}
    numbers = [
        field.name
        for field in schema
        if is_number(field.type) and field.name not in left_out and field.name.strip().lower() not in LABEL_COLUMNS
    ]
    if len(numbers) < 2:
        raise ValueError(
            f"{path} has the columns {schema.names}; embeddings are a column of lists, or columns of numbers"
        )
    return numbers


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _numbers(column: Any, name: str) -> Array:
    """A column of numbers, or of lists of one length, as an array."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
    shape = [len(array)]
    while True:
        if array.null_count:
            raise ValueError(f"{name} has {array.null_count:,} missing values; embeddings must be complete")
        if not _is_list(array.type):
            return np.asarray(array.to_numpy(zero_copy_only=False)).reshape(shape)
        lengths = pc.unique(pc.list_value_length(array)).to_pylist()
        if len(lengths) != 1:
            raise ValueError(f"{name} has lists of different lengths ({sorted(lengths)[:3]}, ...); all must have one")
        shape.append(lengths[0])
        array = array.flatten()


def _paths(column: Any, path: Path, name: str) -> list[str]:
    places = column.to_pylist()
    if not all(isinstance(place, str) for place in places):
        raise ValueError(f"--images is {name}, but that column of {path} holds {column.type}, not a path in every row")
    return [os.path.join(path.parent, place) for place in places]
