"""Array files that someone made to do harm: refused soon, within bounded memory, and nothing runs."""

from __future__ import annotations

import gzip
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from fuzz.place import modest, refused, tolerated
from fuzz.spoil import idx, npy, npz, whole_array

from converge_to_surprise.config import memory
from converge_to_surprise.data import datasets
from converge_to_surprise.data.array_file import read_idx

HEADERS = [
    "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000, 8, 8)}",
    "{'descr': '|u1', 'fortran_order': False, 'shape': (18446744073709551616, 8, 8)}",
    "{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296, 4294967296, 1)}",
    "{'descr': '|u1', 'fortran_order': False, 'shape': (-1, 8, 8)}",
    "{'descr': '|u1', 'fortran_order': False, 'shape': (0, 9223372036854775807, 8)}",
    "{'descr': '|V0', 'fortran_order': False, 'shape': (9223372036854775807, 1, 1)}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (2, 8, 8)}",
    "{'descr': '|S0', 'fortran_order': False, 'shape': (2, 8, 8)}",
    "{'descr': [('a', '|u1'), ('b', '<f4')], 'fortran_order': False, 'shape': (2, 8, 8)}",
    "{'descr': '<M8[s]', 'fortran_order': True, 'shape': (2, 8, 8)}",
    "{'descr': '<c16', 'fortran_order': True, 'shape': (2, 8, 8)}",
    "{'descr': '|u1', 'fortran_order': 5, 'shape': (2, 8, 8)}",
    "{'descr': '|u1', 'fortran_order': False, 'shape': 5}",
    "{'descr': '|u1', 'shape': (2, 8, 8)}",
    "__import__('os').system('true')",
    "(" * 5000,
    "'" * 3,
    "",
]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("version", [b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"])
def test_hostile_arrays(tmp_path: Path, header: str, version: bytes) -> None:
    array = npy(header, bytes(100), version)
    (tmp_path / "a.npy").write_bytes(array)
    (tmp_path / "a.npz").write_bytes(npz(images=array))
    for name in ("a.npy", "a.npz"):
        refused(lambda name=name: datasets.load(str(tmp_path / name)), rf"{name}")  # type: ignore[misc]


def test_an_archive_that_unpacks_to_more_than_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.npz"
    path.write_bytes(npz(images=whole_array((50_000, 32, 32))))
    assert path.stat().st_size < 200_000
    monkeypatch.setattr(memory, "free_memory", lambda: 50_000_000)
    refused(lambda: datasets.load(str(path)), "needs 51,200,128 bytes, too much for the 50,000,000")


def test_an_array_for_which_there_is_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(npz(images=whole_array((5, 4, 4))))
    monkeypatch.setattr(np.lib.format, "read_array", Mock(side_effect=MemoryError("Unable to allocate 156. MiB")))
    refused(lambda: datasets.load(str(path)), "there is not enough memory to read .*a.npz: Unable to allocate 156. MiB")


def test_what_is_not_asked_for_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    images = np.random.default_rng(0).integers(0, 255, (5, 4, 4), np.uint8)
    np.savez_compressed(path, images=images, bomb=np.zeros(100_000_000, np.uint8))
    with modest():
        assert len(datasets.load(str(path)).train) == 5


@pytest.mark.parametrize("labels", ["|V8", "|O", "<c16", "<M8[s]", "|S0", "<f8", "|b1", "<U3", "|i1", "<u8"])
def test_labels_of_every_kind(tmp_path: Path, labels: str) -> None:
    array = npy(f"{{'descr': '{labels}', 'fortran_order': False, 'shape': (5,)}}", b"\xff" * 5 * 16)
    (tmp_path / "a.npz").write_bytes(npz(images=whole_array((5, 4, 4)), labels=array))
    tolerated(lambda: datasets.load(str(tmp_path / "a.npz")))


def test_members_that_are_encrypted_or_packed_strangely(tmp_path: Path) -> None:
    content = bytearray(npz(images=whole_array((5, 4, 4))))
    for offset, value in ((6, 1), (8, 99), (8, 14), (8, 12)):  # a flag: encrypted; unknown method, LZMA, BZIP2
        spoilt_archive = content.copy()
        spoilt_archive[offset] = value
        spoilt_archive[content.index(b"PK\x01\x02") + offset + 2] = value
        (tmp_path / "a.npz").write_bytes(spoilt_archive)
        refused(lambda: datasets.load(str(tmp_path / "a.npz")), "cannot read")


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    "content",
    [
        idx(8, 2**32 - 1, 2**32 - 1, 2**32 - 1),
        idx(0x0E, 2**32 - 1, 28, 28, content=bytes(1000)),
        idx(8, *[1] * 255),
        idx(8, *[2**32 - 1] * 255),
        bytes([0, 0, 8, 255]),
        idx(8, 5, 4, 4, content=bytes(5 * 4 * 4 + 1)),
        idx(8, 5, 4, 4, content=bytes(5 * 4 * 4 - 1)),
        b"",
    ],
)
def test_hostile_idx(tmp_path: Path, content: bytes, ending: str) -> None:
    path = tmp_path / f"train-images-idx3-ubyte{ending}"
    path.write_bytes(gzip.compress(content) if ending else content)
    refused(lambda: read_idx(path), path.name)


def test_gzip_that_unpacks_to_more_than_it_says(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx(8, 5, 4, 4) + bytes(300_000_000), 1))
    refused(lambda: read_idx(path), "more than 80 bytes of content")


def test_gzip_that_unpacks_to_more_than_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx(8, 50_000, 32, 32) + bytes(50_000 * 1024), 9))
    monkeypatch.setattr(memory, "free_memory", lambda: 50_000_000)
    refused(lambda: read_idx(path), "too much for the 50,000,000 bytes")
