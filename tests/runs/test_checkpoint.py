"""Checkpoints come back exactly or not at all."""

from __future__ import annotations

import errno
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from converge_to_surprise.config import Config
from converge_to_surprise.runs import checkpoint
from converge_to_surprise.search.snapshot import Snapshot
from converge_to_surprise.search.trainer import Trainer


def snapshot(step: int) -> Snapshot:
    generator = torch.Generator().manual_seed(step)
    tensors = {
        "network.weight": torch.randn(3, 4, generator=generator),
        "network.steps": torch.tensor(step),
        # A transposed tensor is not contiguous; its values must come back all the same.
        "optimizer.0.exp_avg": torch.randn(4, 3, generator=generator).t(),
    }
    return Snapshot(tensors, {"step": step, "seconds": 0.1 + step, "random": {"python": [3, [1, 2], None]}})


def assert_equal(found: Snapshot | None, expected: Snapshot) -> None:
    assert found is not None
    assert found.data == expected.data
    assert found.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name], tensor), name


def test_round_trip(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path / "checkpoints", snapshot(7))
    assert_equal(checkpoint.load(path), snapshot(7))
    assert_equal(checkpoint.load_newest(tmp_path / "checkpoints")[0], snapshot(7))


def test_a_trainer_s_snapshot_survives(tmp_path: Path, bars: torch.Tensor, small: Config) -> None:
    trainer = Trainer(bars, small)
    for _, _record in zip(range(7), trainer.run(), strict=False):  # as far as the first consolidation
        pass
    saved = trainer.snapshot()
    assert saved.data["optimizer"]
    found = checkpoint.load(checkpoint.save(tmp_path, saved))
    assert_equal(found, Snapshot(saved.tensors, json.loads(json.dumps(saved.data))))


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 9, 10, 11):
        checkpoint.save(tmp_path, snapshot(step))
    names = sorted(os.listdir(tmp_path))
    assert names == [
        "step-000000010.json", "step-000000010.safetensors", "step-000000011.json", "step-000000011.safetensors",
    ]  # fmt: skip
    assert_equal(checkpoint.load_newest(tmp_path)[0], snapshot(11))


def test_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.load_newest(tmp_path) == (None, [])
    assert checkpoint.load_newest(tmp_path / "none") == (None, [])


def test_tensors_without_description_do_not_count(tmp_path: Path) -> None:
    """A kill between the two files leaves the tensors alone: the pair was never finished."""
    checkpoint.save(tmp_path, snapshot(1))
    checkpoint.save(tmp_path, snapshot(2)).unlink()
    found, problems = checkpoint.load_newest(tmp_path)
    assert_equal(found, snapshot(1))
    assert problems == []
    checkpoint.save(tmp_path, snapshot(3))
    assert sorted({path.stem for path in tmp_path.iterdir()}) == ["step-000000001", "step-000000003"]


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def cut(path: Path, keep: float) -> None:
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])


def foreign_tensors(path: Path) -> None:
    path.with_suffix(".safetensors").write_bytes(safetensors.torch.save({"x": torch.zeros(3)}))


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "tensors truncated": (lambda p: cut(p.with_suffix(".safetensors"), 0.5), "truncated or damaged"),
    "tensors empty": (lambda p: cut(p.with_suffix(".safetensors"), 0), "truncated or damaged"),
    "one bit": (lambda p: flip_bit(p.with_suffix(".safetensors")), "truncated or damaged"),
    "tensors of another": (foreign_tensors, "truncated or damaged"),
    "tensors missing": (lambda p: p.with_suffix(".safetensors").unlink(), "cannot read the checkpoint"),
    "JSON truncated": (lambda p: cut(p, 0.5), "cannot read"),
    "JSON empty": (lambda p: cut(p, 0), "cannot read"),
    "JSON no text": (lambda p: p.write_bytes(b"\xff\xfe\x00"), "cannot read"),
    "JSON a list": (lambda p: p.write_text("[]"), "not a checkpoint of this program"),
    "foreign": (lambda p: edit(p, format="other"), "not a checkpoint of this program"),
    "other version": (lambda p: edit(p, version=99), "has version 99; this program reads versions up to 2"),
    "no version": (lambda p: edit(p, version=None), "has version None"),
    "no checksum": (lambda p: edit(p, sha256=None), "truncated or damaged"),
    "no data": (lambda p: edit(p, data=None), "it has no data"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_noticed_and_the_one_before_is_used(tmp_path: Path, name: str) -> None:
    damage, message = DAMAGE[name]
    checkpoint.save(tmp_path, snapshot(4))
    newest = checkpoint.save(tmp_path, snapshot(5))
    damage(newest)
    with pytest.raises(ValueError, match=message) as refused:
        checkpoint.load(newest)
    assert newest.stem in str(refused.value)
    found, problems = checkpoint.load_newest(tmp_path)
    assert_equal(found, snapshot(4))
    assert problems == [f"{refused.value}; using the checkpoint before it"]


def test_nothing_but_damage(tmp_path: Path) -> None:
    for step in (4, 5):
        cut(checkpoint.save(tmp_path, snapshot(step)).with_suffix(".safetensors"), 0.5)
    with pytest.raises(ValueError, match=r"no checkpoint can be used: .*step-000000005.*step-000000004"):
        checkpoint.load_newest(tmp_path)


def test_tensors_that_are_no_safetensors(tmp_path: Path) -> None:
    """Even with a checksum that fits: the file is handed to a parser that runs nothing."""
    path = checkpoint.save(tmp_path, snapshot(1))
    content = b"\x80\x04garbage"
    path.with_suffix(".safetensors").write_bytes(content)
    edit(path, sha256=checkpoint._checksum(content, checkpoint.VERSION, "", snapshot(1).data))
    with pytest.raises(ValueError, match="cannot be read"):
        checkpoint.load(path)


# The calls that write the tensors and then their description: each file is flushed, renamed, and its folder flushed.
@pytest.mark.parametrize(("call", "number"), [("fsync", 0), ("replace", 0), ("fsync", 2), ("replace", 1)])
def test_full_disk_keeps_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    for step in (4, 5):
        checkpoint.save(tmp_path, snapshot(step))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    original, calls = getattr(os, call), itertools.count()

    def full(*arguments: Any) -> None:
        if next(calls) == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(*arguments)

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(tmp_path, snapshot(6))
    monkeypatch.undo()
    found, problems = checkpoint.load_newest(tmp_path)
    assert_equal(found, snapshot(5))
    assert problems == []
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    # The tensors of the new one may be there already, but not the description that would make them count.
    assert {name: content for name, content in after.items() if name in before} == before
    assert set(after) - set(before) <= {"step-000000006.safetensors"}
    checkpoint.save(tmp_path, snapshot(6))
    assert_equal(checkpoint.load_newest(tmp_path)[0], snapshot(6))


def test_a_checkpoint_belongs_to_one_run(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, Snapshot({"x": torch.ones(2)}, {"step": 1}), run="this")
    assert checkpoint.load(path, "this").data == {"step": 1}
    with pytest.raises(ValueError, match="is a checkpoint of another run"):
        checkpoint.load(path, "that")
