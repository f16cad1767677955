"""A file is whole or not there, whatever goes wrong while it is written."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from converge_to_surprise.config.storage import (
    flush_folder,
    read_bounded,
    read_json,
    write_atomically,
    write_json,
    wrong_version,
)


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for content in (b"old", b"", bytes(range(256)) * 1000):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["x"]


def test_pieces_make_one_file_or_none(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_atomically(path, (bytes([number]) * number for number in range(5)))
    assert path.read_bytes() == b"\1\2\2\3\3\3\4\4\4\4"

    def broken() -> Iterator[bytes]:
        yield b"new"
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        write_atomically(path, broken())
    assert path.read_bytes() == b"\1\2\2\3\3\3\4\4\4\4"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("call", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("before", [None, b"old"])
def test_a_failure_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, before: bytes | None
) -> None:
    path = tmp_path / "x"
    if before is not None:
        path.write_bytes(before)
    monkeypatch.setattr(os, call, full_disk)
    with pytest.raises(OSError, match="No space left") as failed:
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert failed.value.errno == errno.ENOSPC
    assert str(path) in str(failed.value)
    assert os.listdir(tmp_path) == ([] if before is None else ["x"])
    assert before is None or path.read_bytes() == before


def test_an_interruption_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "x"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert os.listdir(tmp_path) == ["x"]
    assert path.read_bytes() == b"old"


def test_order_of_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is on disk before the name changes, and the name before the call returns."""
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "content")
        fsync(descriptor)

    def record_replace(source: str, target: Path) -> None:
        assert Path(source).parent == target.parent
        assert Path(source).read_bytes() == b"new"
        done.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    write_atomically(tmp_path / "x", b"new")
    assert done == ["content", "rename", "folder"]


def test_usual_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "x", b"new")
        assert os.umask(0o027) == 0o027  # the process's own mask is as it was
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "none" / "x", b"new")


def test_a_folder_that_cannot_be_opened_is_no_failure(tmp_path: Path) -> None:
    flush_folder(tmp_path / "none")


def test_json(tmp_path: Path) -> None:
    data = {"a": [1, 2.5, None], "Ω": "é", "exact": 0.1 + 0.2}
    write_json(tmp_path / "x.json", data)
    assert read_json(tmp_path / "x.json") == data
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == data


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_without_numbers_that_json_does_not_have(tmp_path: Path, value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", {"a": value})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1,"])
def test_garbage_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot read .*x\.json"):
        read_json(tmp_path / "x.json")


def test_missing_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read .*none\.json"):
        read_json(tmp_path / "none.json")


def test_a_file_of_version_1_is_said_to_be_of_the_first_release() -> None:
    assert wrong_version(1, 2).startswith("it was made by version 0.1 of this program")
    assert wrong_version("x", 2) == "its format has version 'x'; this program reads version 2"


def test_reading_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"1234")
    assert read_bounded(path, 4) == b"1234"
    with pytest.raises(ValueError, match="more than 3 bytes"):
        read_bounded(path, 3)
    with pytest.raises(ValueError, match="not a regular file"):
        read_bounded(tmp_path, 4)
    with pytest.raises(ValueError, match="no such file"):
        read_bounded(tmp_path / "none", 4)
