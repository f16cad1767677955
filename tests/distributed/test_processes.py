"""Several real processes on one run, started by the program itself or by torchrun; some are killed."""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.processes import children, is_running

from converge_to_surprise.data.synthetic import striped_images

SETTINGS = """
--no-report --views.upsample 1 --seed 2 --threads 2 --checkpoint-seconds 0 --network.no-space-to-depth
--max-clusters 6 --network.width 2 --network.min-active-outputs 4 --augmentation.rotation 10 --augmentation.crop 1
--search evolution --network.pixels 0 --n-init 2 --schedule explore=evolution:4
--evolution.population 8 --evolution.batch-size 30 --evolution.ramp-epochs 2
"""
FLAGS = SETTINGS.split()
STEPS = 32
TIMEOUT = 240
"""Seconds after which a process counts as hung."""
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
PROGRAM = ["-m", "converge_to_surprise"]

pytestmark = [pytest.mark.subprocess, pytest.mark.slow]


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def call(command: list[str], words: list[str]) -> str:
    """The output of a command, which must succeed without a traceback."""
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=TIMEOUT, env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bars") / "bars.npz"
    np.savez(path, images=striped_images(120)[0].numpy())
    return path


@pytest.fixture(scope="module")
def single(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process."""
    out = tmp_path_factory.mktemp("single") / "run"
    call([sys.executable, *PROGRAM], ["fit", str(source), "--out", str(out), *FLAGS])
    return out


def compare(run: Path, whole: Path) -> None:
    """Both runs have the same clusters; the history has no gap and no duplicate; no temporary file is left."""
    assert (run / "labels.csv").read_bytes() == (whole / "labels.csv").read_bytes()
    lines = [(path / "history.jsonl").read_text().splitlines() for path in (run, whole)]
    records, expected = ([json.loads(line) for line in history] for history in lines)
    assert [record["step"] for record in records] == list(range(STEPS))
    assert [record["surprise"] for record in records] == [record["surprise"] for record in expected]
    assert not [path for path in run.iterdir() if path.name.startswith(".") and path.name != ".lock"]


def test_every_process_finds_data_that_moved(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    images, classes = striped_images(120)
    np.savez(tmp_path / "before" / "usps.npz", x_train=images.numpy(), y_train=classes)
    words = ["--data-dir", str(tmp_path / "before"), "--out", str(tmp_path / "run"), "--processes", "2", *FLAGS]
    program = [sys.executable, *PROGRAM]
    call(program, ["fit", "usps", *words])
    labels = (tmp_path / "run" / "labels.csv").read_bytes()
    (tmp_path / "before").rename(tmp_path / "after")
    call(program, ["resume", str(tmp_path / "run"), "--data-dir", str(tmp_path / "after"), "--no-report"])
    call(program, ["resume", str(tmp_path / "run"), "--no-report"])
    assert (tmp_path / "run" / "labels.csv").read_bytes() == labels


def wait_for_steps(run: Path, steps: int, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + TIMEOUT
    history = run / "history.jsonl"
    while not history.is_file() or history.read_bytes().count(b"\n") < steps:
        assert process.poll() is None, "it ended too early"
        assert time.monotonic() < until, "it hangs"
        time.sleep(0.01)


def kill_worker(command: list[str], words: list[str], run: Path, steps: int) -> str:
    """Start a command, kill its youngest process after some steps and wait for the end; returns the output."""
    process = subprocess.Popen(
        [*command, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment()
    )
    wait_for_steps(run, steps, process)
    os.kill(max(children(process.pid)), signal.SIGKILL)
    output, _ = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, output
    return output


def test_a_killed_worker_is_replaced_and_the_result_is_that_of_one_process(
    source: Path, single: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ["fit", str(source), "--out", str(run), *FLAGS, "--processes", "2"]
    output = kill_worker([sys.executable, *PROGRAM], words, run, 5)
    assert "process 1 ended with code -9; its work is repeated from step" in output
    compare(run, single)


def test_the_first_process_is_killed_and_the_run_resumed(source: Path, single: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["fit", str(source), "--out", str(run), *FLAGS, "--processes", "2"]
    process = subprocess.Popen(
        [sys.executable, *PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=environment(),
    )  # fmt: skip
    wait_for_steps(run, 5, process)
    workers = children(process.pid)
    assert len(workers) == 1
    process.kill()
    _, errors = process.communicate(timeout=TIMEOUT)  # the worker has the same stderr: it has ended too
    assert "Traceback" not in errors
    assert "process 1 stops" in errors
    assert not any(is_running(worker) for worker in workers)
    call([sys.executable, *PROGRAM], ["resume", str(run), "--no-report"])
    compare(run, single)


def test_a_process_of_torchrun_is_killed_and_all_are_restarted(source: Path, single: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [*TORCHRUN, "--max-restarts", "2", *PROGRAM]
    output = kill_worker(command, ["fit", str(source), "--out", str(run), *FLAGS], run, 5)
    assert f"step {STEPS}/{STEPS}" in output
    compare(run, single)


def test_a_machine_is_lost_and_the_others_continue(source: Path, single: Path, tmp_path: Path) -> None:
    """Two launchers stand for two machines. One is killed with its process: the other continues on its own."""
    run = tmp_path / "run"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = f"""-m torch.distributed.run --nnodes 1:2 --nproc-per-node 1 --max-restarts 3 --rdzv-backend c10d
        --rdzv-endpoint 127.0.0.1:{port} --rdzv-conf last_call_timeout=5,keep_alive_interval=1,keep_alive_max_attempt=3
        -m converge_to_surprise""".split()
    words = ["fit", str(source), "--out", str(run), *FLAGS]
    machines = []
    for number in range(2):
        log = (tmp_path / f"machine-{number}").open("w")
        machines.append(
            subprocess.Popen(
                [sys.executable, *launcher, *words], stdout=log, stderr=log, text=True, env=environment(),
                start_new_session=True,
            )
        )  # fmt: skip
        if number == 0:
            time.sleep(2)  # the first one hosts the rendezvous
    first, second = machines
    wait_for_steps(run, 5, first)
    assert len(children(second.pid)) > 0
    for process in (second.pid, *children(second.pid)):
        os.kill(process, signal.SIGKILL)
    second.wait()
    assert first.wait(TIMEOUT) == 0, (tmp_path / "machine-0").read_text()
    compare(run, single)


def test_torchrun_does_not_overwrite_another_run(source: Path, single: Path) -> None:
    words = ["fit", str(source), "--out", str(single), *FLAGS, "--seed", "3"]
    done = subprocess.run(
        [*TORCHRUN, *PROGRAM, *words], capture_output=True, text=True, timeout=TIMEOUT, env=environment()
    )
    assert done.returncode != 0
    assert f"{single} already holds a run, with other images or settings" in done.stderr
    assert json.loads((single / "config.json").read_text())["config"]["seed"] == 2


def test_pictures_are_decoded_and_labeled_by_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,100 pictures, some damaged: in chunks of 256 each of two processes decodes some."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    images = striped_images(1100)[0].numpy()[:, 0]
    for number, pixels in enumerate(images):
        path = folder / f"{number:04d}.png"
        if number % 300 == 7:
            path.write_bytes(b"broken")
        else:
            Image.fromarray(pixels).save(path)
    tables = []
    for name, command in (("one", [sys.executable, *PROGRAM]), ("two", [*TORCHRUN, *PROGRAM])):
        out = tmp_path / name
        monkeypatch.setenv("CTS_CACHE", str(tmp_path / f"cache-{name}"))
        call(command, ["fit", str(folder), "--out", str(out), *FLAGS, "--schedule", "explore=evolution:1"])
        with (out / "labels.csv").open(newline="") as file:
            tables.append(list(csv.DictReader(file)))
        with (out / "quarantine.csv").open(newline="") as file:
            assert [row["file"] for row in csv.DictReader(file)] == ["0007.png", "0307.png", "0607.png", "0907.png"]
    assert tables[0] == tables[1]
    assert len(tables[0]) == 1096
    predicted = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for path, processes in zip(predicted, ("1", "2"), strict=True):
        words = ["predict", str(tmp_path / "one"), str(folder), "--out", str(path), "--processes", processes]
        assert "1,096 images in" in call([sys.executable, *PROGRAM], words)
    assert predicted[0].read_bytes() == predicted[1].read_bytes()
    assert not list(tmp_path.glob("*.part*"))
    quarantines = [path.with_name(f"{path.stem}.quarantine.csv").read_bytes() for path in predicted]
    assert quarantines[0] == quarantines[1]
