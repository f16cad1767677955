"""IDX files: plain or compressed, of every type, and damaged ones."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from converge_to_surprise.data.array_file import find_idx, read_idx

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array: npt.NDArray[Any]) -> bytes:
    """The format from its description: two zeros, type, dimensions, sizes and values, the highest byte first."""
    code = CODES[f"{array.dtype.kind}{array.dtype.itemsize}"]
    header = bytes([0, 0, code, array.ndim]) + b"".join(struct.pack(">I", size) for size in array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


ARRAY = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("kind", CODES)
def test_types(tmp_path: Path, kind: str) -> None:
    array = (ARRAY.astype(np.int16) - 5).astype(kind)
    (tmp_path / "x").write_bytes(idx_bytes(array))
    read = read_idx(tmp_path / "x")
    assert read.dtype == array.dtype
    assert read.dtype.isnative
    np.testing.assert_array_equal(read, array)


def test_a_known_file(tmp_path: Path) -> None:
    # Written out by hand: two labels, 7 and 2, as a file of MNIST labels begins.
    (tmp_path / "x").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 2]))
    assert read_idx(tmp_path / "x").tolist() == [7, 2]


def test_compressed(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(idx_bytes(ARRAY)))
    np.testing.assert_array_equal(read_idx(tmp_path / "x.gz"), ARRAY)


def test_what_is_read_can_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(idx_bytes(ARRAY))
    read_idx(tmp_path / "x")[0] = 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not an IDX file"),
        (b"\0\0\x08", "is not an IDX file"),
        (b"PK\x03\x04 something else", "is not an IDX file"),
        (b"\0\0\x07\x01\0\0\0\x01a", "is not an IDX file"),
        (idx_bytes(ARRAY)[:10], "its header is incomplete"),
        (idx_bytes(ARRAY)[:-1], "truncated or damaged: 23 bytes of content, but its header says 24"),
        (idx_bytes(ARRAY) + b"\0", "truncated or damaged: more than 24 bytes"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "truncated or damaged: 16 bytes"),
    ],
)
def test_damaged(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=message) as refused:
        read_idx(tmp_path / "x")
    assert str(tmp_path / "x") in str(refused.value)


@pytest.mark.parametrize("damage", ["truncated", "garbage inside", "not gzip"])
def test_damaged_compression(tmp_path: Path, damage: str) -> None:
    whole = gzip.compress(idx_bytes(ARRAY.repeat(50)))
    content = {
        "truncated": whole[: len(whole) // 2],
        "garbage inside": whole[:12] + b"\xff" * 20 + whole[32:],
        "not gzip": b"hello",
    }[damage]
    (tmp_path / "x.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot read .*x\.gz"):
        read_idx(tmp_path / "x.gz")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read .*none"):
        read_idx(tmp_path / "none")


@pytest.mark.parametrize("separator", ["-", "."])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_usual_names(tmp_path: Path, separator: str, ending: str) -> None:
    names = {
        ("train", "images"): f"train-images{separator}idx3-ubyte{ending}",
        ("train", "labels"): f"train-labels{separator}idx1-ubyte{ending}",
        ("test", "images"): f"t10k-images{separator}idx3-ubyte{ending}",
        ("test", "labels"): f"t10k-labels{separator}idx1-ubyte{ending}",
    }
    for name in names.values():
        (tmp_path / name).touch()
    for (split, content), name in names.items():
        assert find_idx(tmp_path, split, content) == tmp_path / name
    assert find_idx(tmp_path / "elsewhere", "train", "images") is None
