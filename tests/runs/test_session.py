"""Stop and resume = no stop, bit for bit, however the stop came about."""

from __future__ import annotations

import errno
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from faults.harness import SETTINGS, STEPS

from converge_to_surprise import cli
from converge_to_surprise.cli import fit
from converge_to_surprise.data import datasets
from converge_to_surprise.data.store import ImageStore, fingerprint
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.runs import checkpoint, session
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.interruption import Interrupted
from converge_to_surprise.runs.load import load_newest_model
from converge_to_surprise.search.record import Record
from converge_to_surprise.search.restarts import Restarts
from converge_to_surprise.search.snapshot import Snapshot


@dataclass(frozen=True)
class Whole:
    """A run that was never stopped."""

    source: Path
    flags: list[str]
    run: RunFolder
    snapshots: list[Snapshot]
    """The state before each step, and at the end."""
    records: list[Record]


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Whole]:
    return {name: uninterrupted(name, tmp_path_factory.mktemp(name)) for name in SETTINGS}


@pytest.fixture(scope="module", params=list(SETTINGS))
def whole(request: pytest.FixtureRequest, wholes: dict[str, Whole]) -> Whole:
    return wholes[request.param]


@pytest.fixture(scope="module")
def evolved(wholes: dict[str, Whole]) -> Whole:
    return wholes["evolution"]


def uninterrupted(name: str, folder: Path) -> Whole:
    source, flags = folder / "bars.npz", SETTINGS[name].split()
    images, classes = striped_images(60)
    np.savez(source, images=images.numpy(), labels=classes)
    run, search, dataset = begin(source, flags, folder / "whole")
    snapshots, records = [search.snapshot()], []

    def read(record: Record) -> None:
        snapshots.append(search.snapshot())
        records.append(record)

    session.train(run, search, dataset, [read])
    return Whole(source, flags, run, snapshots, records)


def begin(source: Path, flags: list[str], out: Path) -> tuple[RunFolder, Restarts, datasets.Dataset]:
    """What ``cts fit`` does before the first step."""
    request = fit.parse_words([str(source), "--out", str(out), *flags])
    dataset = datasets.load(str(source))
    run = RunFolder.claim(out, force=False)
    kind, _ = fit.kind_of_pictures(request.command, dataset.train)
    config = fit.effective_config(request, (len(dataset.train), *dataset.train.shape), kind)
    origin = session.Origin(str(source), request.command.preset)
    return run, session.begin(run, dataset, origin, config), dataset


def resume(run: RunFolder) -> None:
    assert cli.main(["resume", str(run.path)]) == 0


def timeless(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != "seconds"}


def own(data: dict[str, Any]) -> dict[str, Any]:
    """Without the process-wide generators: they are kept for what the user adds, and differ between processes."""
    return {name: value for name, value in timeless(data).items() if name != "random"}


def assert_same_state(found: Snapshot | None, expected: Snapshot | None) -> None:
    assert found is not None
    assert expected is not None
    assert found.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        assert torch.equal(found.tensors[name], tensor), name
    plain = [json.loads(json.dumps(own(state.data))) for state in (found, expected)]
    assert plain[0] == plain[1]


def assert_same_run(run: RunFolder, whole: Whole) -> None:
    newest, problems = checkpoint.load_newest(run.checkpoints, run.description().identity)
    assert problems == []
    assert_same_state(newest, whole.snapshots[-1])
    assert [timeless(record) for record in run.records()] == [timeless(record) for record in whole.run.records()]
    assert run.labels.read_bytes() == whole.run.labels.read_bytes()
    results = [timeless(json.loads(file.read_text())) for file in (run.result, whole.run.result)]
    assert results[0] == results[1]
    assert run.config.read_bytes() == whole.run.config.read_bytes()
    assert run.outputs.read_bytes() == whole.run.outputs.read_bytes()
    assert not [path for path in run.path.rglob(".*") if path.name != ".lock"]


def test_the_runs_compared_here_do_everything(whole: Whole) -> None:
    """Otherwise what follows would prove little: consolidation trains, the optimizer has a memory, clusters form."""
    assert len(whole.records) == STEPS
    trained = {"evolution": 0, "relaxed": 0, "merge": 0, "refine": 0, "consolidate": 0}
    for before, after in itertools.pairwise(whole.snapshots):
        kind = whole.records[before.data["step"]].kind
        trained[kind] += after.data["views"] - before.data["views"]
    assert trained["consolidate"] > 100
    assert any(name.startswith("optimizer.") for name in whole.snapshots[-2].tensors)
    assert whole.records[-1].active >= 2
    assert (whole.snapshots[-1].data["merge"] is not None) == (whole.records[0].kind == "relaxed")


@pytest.mark.slow
def test_a_new_search_takes_over_at_every_step(whole: Whole, tmp_path: Path) -> None:
    """Step k from the checkpoint before it gives the state after it: by induction, any stops give the same end."""
    images, config = datasets.load(str(whole.source)).train.images, whole.run.description().config
    for (before, after), record in zip(itertools.pairwise(whole.snapshots), whole.records, strict=True):
        search = Restarts(images, config)
        search.restore(checkpoint.load(checkpoint.save(tmp_path, before)))
        steps = search.run()
        found = next(steps)
        steps.close()
        assert replace(found, seconds=record.seconds) == record
        assert_same_state(search.snapshot(), after)
        assert search.snapshot().data["random"] == after.data["random"]


def test_the_start_is_a_function_of_images_and_settings(whole: Whole) -> None:
    torch.rand(7)  # what was drawn before must not matter
    search = Restarts(datasets.load(str(whole.source)).train.images, whole.run.description().config)
    for name, tensor in search.snapshot().tensors.items():
        assert torch.equal(tensor, whole.snapshots[0].tensors[name]), name


def test_signals_at_many_steps(whole: Whole, tmp_path: Path) -> None:
    """In the first step, in the search, between search and consolidation, in consolidation, after the last step."""
    run, search, dataset = begin(whole.source, whole.flags, tmp_path / "run")
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    for number, stop in zip((signal.SIGINT, signal.SIGTERM) * 3, (1, 17, 24, 31, 33, STEPS), strict=True):

        def interrupt(record: Record, number: int = number, stop: int = stop) -> None:
            if record.step + 1 == stop:
                signal.raise_signal(number)

        with pytest.raises(Interrupted) as stopped:
            session.train(run, search, dataset, [interrupt])
        assert stopped.value.signal_number == number
        saved, _ = checkpoint.load_newest(run.checkpoints, run.description().identity)
        assert_same_state(saved, whole.snapshots[stop])
        assert len(run.records()) == stop
        assert not run.result.exists()
        search, _ = session.reopen(run, dataset)
        assert search.step == stop
    session.train(run, search, dataset, [])
    assert_same_run(run, whole)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_an_error_in_a_step_saves_the_step_before(
    evolved: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, search, dataset = begin(evolved.source, [*evolved.flags, "--checkpoint-seconds", "600"], tmp_path / "run")
    do = search.trainer._do

    def fail_at_5(step: Any, workers: Any) -> Any:
        if step.number == 5:
            raise RuntimeError("a score of the user's own fails")
        return do(step, workers)

    monkeypatch.setattr(search.trainer, "_do", fail_at_5)
    with pytest.raises(RuntimeError, match="of the user's own"):
        session.train(run, search, dataset, [])
    assert_same_state(checkpoint.load_newest(run.checkpoints, run.description().identity)[0], evolved.snapshots[5])
    search, _ = session.reopen(run, dataset)
    for _ in search.run():
        pass
    assert_same_state(search.snapshot(), evolved.snapshots[-1])


def copy_of(whole: Whole, out: Path) -> RunFolder:
    shutil.copytree(whole.run.path, out)
    return RunFolder(out)


def test_a_run_that_merges_twice_goes_on_after_either(wholes: dict[str, Whole], tmp_path: Path) -> None:
    twice = "search=relaxed:4 merge=merge:1 refine=refine:1 again=merge:1 last=refine:1"
    flags = [*wholes["relaxed"].flags, "--max-clusters", "9", "--schedule", *twice.split()]
    source = wholes["relaxed"].source
    ends = []
    for number, stops in enumerate(((), (27, 33))):
        run, search, dataset = begin(source, flags, tmp_path / str(number))
        for stop in stops:
            for _ in itertools.islice(search.run(), stop - search.step):
                pass
            checkpoint.save(run.checkpoints, search.snapshot(), run.description().identity)
            run.history.write_text("".join(json.dumps({"step": step}) + "\n" for step in range(stop)))
            search, _ = session.reopen(run, dataset)
            assert search.step == stop
        for _ in search.run():
            pass
        ends.append(search.snapshot())
    assert ends[0].data["step"] == 38
    assert len(ends[0].tensors["unmerged.head.bias"]) == 6  # what the first merge left
    assert_same_state(ends[1], ends[0])


def test_a_damaged_newest_checkpoint_is_redone(
    whole: Whole, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy_of(whole, tmp_path / "run")
    newest = run.checkpoints / f"step-{STEPS:09d}.safetensors"
    newest.write_bytes(newest.read_bytes()[:1000])
    run.history.write_bytes(run.history.read_bytes()[:-20])
    resume(run)
    warning = capsys.readouterr().err
    assert "warning: the checkpoint" in warning
    assert newest.name in warning
    assert "using the previous checkpoint" in warning
    assert_same_run(run, whole)


def test_no_checkpoint_yet_is_a_fresh_start(evolved: Whole, tmp_path: Path) -> None:
    """A kill before the first checkpoint leaves a description, and perhaps a history that is ahead of it."""
    run = copy_of(evolved, tmp_path / "run")
    shutil.rmtree(run.checkpoints)
    resume(run)
    assert_same_run(run, evolved)


def test_a_finished_run_stays_as_it_is(whole: Whole, tmp_path: Path) -> None:
    run = copy_of(whole, tmp_path / "run")
    resume(run)
    assert_same_run(run, whole)


def test_a_checkpoint_of_another_run_is_refused(whole: Whole, tmp_path: Path) -> None:
    run, _, dataset = begin(whole.source, [*whole.flags, "--seed", "3"], tmp_path / "run")
    shutil.copytree(whole.run.checkpoints, run.checkpoints)
    for use in (lambda: session.reopen(run, dataset), lambda: load_newest_model(run)):
        with pytest.raises(ValueError, match="is a checkpoint of another run") as refused:
            use()
        assert str(run.checkpoints) in str(refused.value)


def test_other_images_are_refused(evolved: Whole, tmp_path: Path) -> None:
    run = copy_of(evolved, tmp_path / "run")
    images = datasets.load(str(evolved.source)).train.images.clone()
    images[59, 0, 7, 7] ^= 1
    changed = datasets.Dataset("bars", ImageStore(images))
    with pytest.raises(ValueError, match=r"does not hold the images that .* was begun with"):
        session.reopen(run, changed)


def test_fingerprint_sees_shape_and_every_pixel() -> None:
    images = torch.arange(5000 * 4, dtype=torch.uint8).reshape(5000, 1, 2, 2)
    changed = images.clone()
    changed[4999, 0, 1, 1] ^= 1
    seen = {fingerprint(x) for x in (images, changed, images.reshape(5000, 1, 4, 1), images[:4999])}
    assert len(seen) == 4
    assert fingerprint(images) == fingerprint(images.clone())


# Real processes from here on.

STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test() -> Iterator[None]:
    yield
    while STARTED:
        with STARTED.pop() as process:
            process.kill()


def start(whole: Whole, out: Path, *extra: str, limit: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    words = ["fit", str(whole.source), "--out", str(out), *whole.flags, *extra]
    return launch(*words, limit=limit)


def launch(*words: str, limit: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "converge_to_surprise", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )
    STARTED.append(process)
    return process


def wait_for_steps(process: subprocess.Popen[str], run: RunFolder, steps: int) -> None:
    until = time.monotonic() + 120
    while not run.history.is_file() or run.history.read_bytes().count(b"\n") < steps:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.002)


@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.parametrize(
    ("search", "kills"),
    [("evolution", (7, 24)), ("relaxed", (12, 27))],  # steps done at a kill; 24 begins consolidation, 27 is refining
)
def test_kill_9(wholes: dict[str, Whole], tmp_path: Path, search: str, kills: tuple[int, ...]) -> None:
    whole, run = wholes[search], RunFolder(tmp_path / "run")
    for steps in kills:
        process = start(whole, run.path) if steps == kills[0] else launch("resume", str(run.path))
        wait_for_steps(process, run, steps)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert not run.result.exists()
    resume(run)
    assert_same_run(run, whole)


@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_polite_signals(
    evolved: Whole, tmp_path: Path, number: signal.Signals, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunFolder(tmp_path / "run")
    process = start(evolved, run.path)
    wait_for_steps(process, run, 3)
    assert cli.main(["resume", str(run.path)]) == 2  # the process still holds the folder
    assert "another process is working on" in capsys.readouterr().err
    process.send_signal(number)
    _, message = process.communicate(timeout=60)
    assert process.returncode == code
    assert message.strip() == f"cts: stopped by {number.name}; the run is saved: continue it with `cts resume`"
    saved, problems = checkpoint.load_newest(run.checkpoints, run.description().identity)
    assert saved is not None
    assert problems == []
    assert 3 <= saved.data["step"] == len(run.records()) < STEPS
    resume(run)
    assert_same_run(run, evolved)


@pytest.mark.slow
@pytest.mark.subprocess
def test_a_file_too_large_for_the_disk(evolved: Whole, tmp_path: Path) -> None:
    """The system refuses the first checkpoint that holds an optimizer's memory: it is larger than the others."""
    sizes = [sum(t.numel() * t.element_size() for t in state.tensors.values()) for state in evolved.snapshots]
    limit = 2 * sizes[0]
    larger = next(step for step, size in enumerate(sizes) if size > limit)
    assert evolved.records[larger - 1].kind == "consolidate"
    run = RunFolder(tmp_path / "run")
    process = start(evolved, run.path, limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    _, message = process.communicate(timeout=120)
    assert process.returncode == 2
    assert message.startswith("cts: cannot use ")
    assert f"step-{larger:09}.safetensors" in message
    assert message.count("\n") == 1
    assert_same_state(
        checkpoint.load_newest(run.checkpoints, run.description().identity)[0], evolved.snapshots[larger - 1]
    )
    resume(run)
    assert_same_run(run, evolved)


def test_full_disk(
    evolved: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, replaced = RunFolder(tmp_path / "run"), os.replace

    def full(source: str, target: Path) -> None:
        if target.name == "step-000000009.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replaced(source, target)

    monkeypatch.setattr(os, "replace", full)
    assert cli.main(["fit", str(evolved.source), "--out", str(run.path), *evolved.flags]) == 2
    message = capsys.readouterr().err
    assert "No space left on device" in message
    assert "step-000000009.json" in message
    assert "free some space: `cts resume` then continues the run" in message
    assert_same_state(checkpoint.load_newest(run.checkpoints, run.description().identity)[0], evolved.snapshots[8])
    assert cli.main(["resume", str(run.path)]) == 2  # still full: nothing is lost by trying
    monkeypatch.undo()
    assert_same_state(checkpoint.load_newest(run.checkpoints, run.description().identity)[0], evolved.snapshots[8])
    resume(run)
    assert_same_run(run, evolved)


def test_full_disk_at_the_very_beginning(
    evolved: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    words = ["fit", str(evolved.source), "--out", str(tmp_path / "run"), *evolved.flags]
    monkeypatch.setattr(os, "replace", full)
    assert cli.main(words) == 2
    assert "No space left on device" in capsys.readouterr().err
    monkeypatch.undo()
    assert cli.main(words) == 0  # the attempt left nothing that bars the second one
