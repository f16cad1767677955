"""Embeddings from arrays and files: every usual form is read, everything else is refused in one line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.vectors import vectors

from converge_to_surprise.config.images import ImageOptions
from converge_to_surprise.data import datasets
from converge_to_surprise.data.embeddings import to_items
from converge_to_surprise.data.store import ImageStore, check_clusterable, tiles

EMBEDDINGS = ImageOptions(input="embeddings")


@given(
    arrays.arrays(
        st.sampled_from([np.dtype(kind) for kind in ("f2", "f4", "f8", ">f4", "i1", "u2", "i8")]),
        arrays.array_shapes(min_dims=2, max_dims=3, min_side=2, max_side=6),
        elements=st.integers(0, 100),
    )
)
def test_any_numbers_keep_their_values(values: Any) -> None:
    items = to_items(values, "X")
    views = values if values.ndim == 3 else values[:, None]
    assert items.shape == (len(values), views.shape[1], 1, values.shape[-1])
    assert items.dtype == torch.float32
    np.testing.assert_array_equal(items[:, :, 0].numpy(), views.astype(np.float32))


def test_floats_of_32_bits_are_not_copied() -> None:
    values, _ = vectors(10)
    assert to_items(values, "X").data_ptr() == values.ctypes.data


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([["a", "b"]]), "X has dtype <U1; embeddings are floats or integers"),
        (np.array([[{}, None]]), "X has dtype object"),
        (np.ones((3, 2), bool), "X has dtype bool"),
        (np.ones((3, 2), complex), "X has dtype complex128"),
        (np.ones(3), "X has shape (3,); embeddings are (N, D), or (N, V, D)"),
        (np.ones((3, 2, 2, 2)), "X has shape (3, 2, 2, 2)"),
        (np.ones((3, 1)), "with at least 2 values each"),
        (np.ones((3, 0, 4)), "X has shape (3, 0, 4)"),
        (np.ones((3, 9000)), "X has 9,000 values for each item; embeddings have at most 8,192: reduce them"),
        (np.array([[1.0, 2], [3, np.nan]]), "X has the value nan in item 1"),
        (np.array([[1.0, np.inf], [3, 4]]), "X has the value inf in item 0"),
        (np.array([[1.0, 2], [3, -1e200]]), "X has the value -1e+200 in item 1"),
    ],
)
def test_what_cannot_be_clustered_is_refused_in_one_line(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        to_items(values, "X")
    assert "\n" not in str(error.value)


def test_equal_embeddings_are_refused() -> None:
    with pytest.raises(ValueError, match="all 4 embeddings of X are the same"):
        check_clusterable(ImageStore(to_items(np.ones((4, 3)), "X")), "X")
    check_clusterable(ImageStore(to_items(np.eye(4), "X")), "X")


@pytest.mark.parametrize("views", [1, 3])
def test_every_kind_of_file_holds_the_same(views: int, tmp_path: Path) -> None:
    values, labels = vectors(12, views)
    np.save(tmp_path / "a.npy", values)
    np.savez(tmp_path / "a.npz", embeddings=values, y=labels)
    np.savez(tmp_path / "split.npz", x_train=values, y_train=labels, x_test=values[:5])
    pq.write_table(pa.table({"embedding": pa.array(values.tolist()), "label": labels}), tmp_path / "a.parquet")
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[-1])
    if views > 1:
        fixed = pa.FixedSizeListArray.from_arrays(fixed, views)
    pq.write_table(pa.table({"id": ["x"] * 12, "v": fixed}), tmp_path / "fixed.parquet")
    for name in ("a.npy", "a.npz", "split.npz", "a.parquet", "fixed.parquet"):
        found = datasets.load(str(tmp_path / name), options=EMBEDDINGS)
        np.testing.assert_array_equal(found.train.images.numpy(), values.reshape(12, views, 1, -1), err_msg=name)
        assert (found.train.labels is not None) == (name in ("a.npz", "split.npz", "a.parquet"))
        if found.train.labels is not None:
            assert found.train.labels.tolist() == labels.tolist()
    split = datasets.load(str(tmp_path / "split.npz"), options=EMBEDDINGS)
    assert split.test is not None
    assert len(split.test) == 5


def test_numeric_columns_are_a_vector(tmp_path: Path) -> None:
    values, labels = vectors(9)
    columns = {f"f{k}": values[:, k] for k in range(4)}
    table = pa.table({"path": [f"{k}.png" for k in range(9)], **columns, "class": labels.astype(str)})
    pq.write_table(table, tmp_path / "t.parquet")
    found = datasets.load(str(tmp_path / "t.parquet"), options=EMBEDDINGS)
    np.testing.assert_array_equal(found.train.images[:, 0, 0].numpy(), values[:, :4])
    assert found.train.labels is not None


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [[1.0, 2.0], [1.0]]}, "has lists of different lengths"),
        ({"a": [[1.0, 2.0], None]}, "has 1 missing values; embeddings must be complete"),
        ({"a": [[1.0, None], [1.0, 2.0]]}, "has 1 missing values"),
        ({"a": [1.0, None], "b": [1.0, 2.0]}, "has 1 missing values"),
        ({"a": [[1.0], [2.0]], "b": [[1.0], [2.0]]}, "has several columns of lists: ['a', 'b']"),
        ({"a": ["x", "y"]}, "has the columns ['a']; embeddings are a column of lists, or columns of numbers"),
    ],
)
def test_wrong_tables_are_refused(columns: dict[str, Any], message: str, tmp_path: Path) -> None:
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=re.escape(message)):
        datasets.load(str(tmp_path / "t.parquet"), options=EMBEDDINGS)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"no table")
    np.savez(tmp_path / "b.npz", other=np.ones((3, 3)))
    np.save(tmp_path / "c.npy", np.array([{}, {}]), allow_pickle=True)
    for name, message in (
        ("a.parquet", "cannot read"),
        ("b.npz", "has the arrays ['other']; one of them must be called embeddings or x"),
        ("c.npy", "cannot read"),
        ("missing.npy", "does not exist; give an .npy, .npz or .parquet file"),
        (".", "is not a file of embeddings; give an .npy, .npz or .parquet file"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            datasets.load(str(tmp_path / name), options=EMBEDDINGS)


def test_tiles_show_every_vector() -> None:
    found = tiles(to_items(vectors(30)[0], "X"))
    assert found.dtype == torch.uint8
    assert found.shape == (30, 1, 5, 5)
    assert not torch.equal(found[0], found[1])
    assert tiles(torch.randn(7, 2, 1, 500)).shape == (7, 1, 12, 12)
