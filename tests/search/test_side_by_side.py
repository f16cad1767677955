"""Initializations side by side give what they give one after the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.configs import few_initializations, stored, timeless
from torch import Tensor

from converge_to_surprise.config import Config
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.distributed.side_by_side import SideBySide
from converge_to_surprise.runs.checkpoint import check_position, check_snapshot
from converge_to_surprise.search import initialization_process
from converge_to_surprise.search.record import Record
from converge_to_surprise.search.restarts import Restarts
from converge_to_surprise.search.snapshot import Snapshot

pytestmark = pytest.mark.subprocess
IGNORED = {"seconds": 0, "random": {}}
"""The process-wide generators, from which nothing is drawn, are left as they are."""


@pytest.fixture(scope="module")
def images() -> Tensor:
    return striped_images(60)[0]


@pytest.fixture(scope="module")
def config(small: Config) -> Config:
    return replace(few_initializations(small, 3), threads=2)


class Run:
    """A search with its records, the state after each of them, and how many initializations came from processes."""

    def __init__(self, images: Tensor, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
        self.received = 0
        take = SideBySide.take

        def counted(tasks: SideBySide, task: int) -> bytes | None:
            found = take(tasks, task)
            self.received += found is not None
            return found

        with monkeypatch.context() as patched:
            patched.setattr(SideBySide, "take", counted)
            self.search = Restarts(images, config)
            self.records: list[Record] = []
            self.snapshots: list[Snapshot] = []
            self.seeds: list[int | None] = []
            for record in self.search.run():
                self.records.append(record)
                self.snapshots.append(stored(self.search.snapshot()))
                self.seeds.append(self.search.next_seed)

    def same_as(self, other: Run) -> bool:
        ends = self.snapshots[-1], other.snapshots[-1]
        tensors = ends[0].tensors
        return (
            [timeless(record) for record in self.records] == [timeless(record) for record in other.records]
            and tensors.keys() == ends[1].tensors.keys()
            and all(torch.equal(value, ends[1].tensors[name]) for name, value in tensors.items())
            and ends[0].data | IGNORED == ends[1].data | IGNORED
            and self.search.summary() == other.search.summary()
            and self.seeds == other.seeds
        )


@pytest.fixture(scope="module")
def runs(images: Tensor, config: Config) -> Sequence[Run]:
    """Side by side, and one after the other."""
    with pytest.MonkeyPatch.context() as patched:
        together = Run(images, config, patched)
        patched.setattr(Restarts, "_fits", lambda self, processes: False)
        return together, Run(images, config, patched)


def test_side_by_side_and_one_after_the_other_are_the_same(runs: Sequence[Run]) -> None:
    together, alone = runs
    assert (together.received, alone.received) == (1, 0)
    assert together.same_as(alone)
    assert all(a.seconds <= b.seconds for a, b in zip(together.records, together.records[1:], strict=False))


def test_a_search_can_be_resumed_after_any_record(images: Tensor, config: Config, runs: Sequence[Run]) -> None:
    together = runs[0]
    steps = together.search.total // 3
    for position in (2 * steps - 1, 2 * steps, 3 * steps - 2):
        snapshot = together.snapshots[position]
        check_snapshot(snapshot, config, 1)
        check_position(snapshot, config, len(images))
        assert snapshot.data["step"] <= position + 1, "the history is never shorter than a checkpoint"
        search = Restarts(images, config)
        search.restore(snapshot)
        for _ in search.run():
            pass
        assert search.summary() == together.search.summary()


def test_a_process_that_fails_leaves_its_work_to_the_first(
    images: Tensor, config: Config, runs: Sequence[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(folder: Path, _: Tensor, configs: Sequence[Config], tasks: range, processes: int) -> SideBySide:
        return SideBySide("converge_to_surprise.nothing", folder, tasks, processes)

    monkeypatch.setattr(initialization_process, "start", start)
    found = Run(images, config, monkeypatch)
    assert found.received == 0
    assert found.same_as(runs[1])


def test_without_room_for_the_images_there_are_no_processes(
    images: Tensor, config: Config, runs: Sequence[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> SideBySide:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(initialization_process, "start", full)
    assert Run(images, config, monkeypatch).same_as(runs[1])


def test_threads_are_divided_only_where_processes_can_take_part(images: Tensor, config: Config) -> None:
    def each(wanted: Config, **more: object) -> int | None:
        return Restarts(images, wanted, **more).trainer.config.threads  # type: ignore[arg-type]

    assert each(config) == 1
    assert each(replace(config, threads=7)) == 2
    assert each(replace(config, n_init=1)) == 2
    assert each(replace(config, processes=2)) == 2
    assert each(config, score=lambda i, j: 0.0) == 2
    assert Restarts(images, config).config.threads == 2


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(
        "import sys, time, pathlib\n"
        "from converge_to_surprise.distributed.side_by_side import end_with_parent\n"
        "end_with_parent()\n"
        "pathlib.Path(sys.argv[1], 'pid').write_text(str(__import__('os').getpid()))\n"
        "time.sleep(600)\n"
    )
    code = (
        "import sys, time, pathlib\n"
        "from converge_to_surprise.distributed.side_by_side import SideBySide\n"
        "others = SideBySide('endless', pathlib.Path(sys.argv[1]), range(1, 2), 1)\n"
        "others.advance()\n"
        "time.sleep(600)\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    parent = subprocess.Popen(words, env=os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"})
    until = time.monotonic() + 60
    while not (tmp_path / "pid").is_file() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < until
        time.sleep(0.05)
    child = int((tmp_path / "pid").read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while alive(child):
        assert time.monotonic() < until, "the process outlives the one that started it"
        time.sleep(0.05)


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2]
    except FileNotFoundError:
        return False
    return not state.startswith("Z")
