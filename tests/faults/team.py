"""Runs of two processes, one of which is killed."""

from __future__ import annotations

import os
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

from .harness import SETTINGS, STEPS, Patient, Whole, demand, undisturbed
from .ward import Tally, Ward


def children(process: int) -> list[int]:
    """Processes that a process started, and those that they started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has ended meanwhile
        if int(parent) == process and state != "Z":
            found.append(int(entry.parent.name))
    return found + [grandchild for child in found for grandchild in children(child)]


def _wholes(ward: Ward) -> list[Whole]:
    """Undisturbed runs of two processes: their sums are rounded in another way than those of one."""
    if not ward.teams:
        flags = ("--processes", "2")
        ward.teams += [undisturbed(ward.folder / f"team-{name}", name, 0.0, flags=flags) for name in SETTINGS]
    return ward.teams


def _under_way(ward: Ward) -> tuple[Patient, BaseProcess]:
    """A run of two processes at a random step."""
    patient = ward.patient(whole=ward.rng.choice(_wholes(ward)))
    process = patient.begin()
    patient.await_steps(process, ward.rng.randint(1, STEPS - 6))
    return patient, process


def kill_worker(ward: Ward, tally: Tally, count: int) -> None:
    """Kill −9 falls on the worker at a random step: it is replaced, and the run ends with the same result."""
    for _ in range(count):
        with tally.trial():
            patient, process = _under_way(ward)
            assert process.pid is not None
            workers = children(process.pid)
            demand(len(workers) == 1, f"there is not one worker but {workers}")
            os.kill(workers[0], signal.SIGKILL)
            demand(patient.await_end(process) == 0, f"it did not go on: {patient.said()}")
            demand("its work is repeated" in patient.said(), f"the loss is not told: {patient.said()}")
            patient.compare()


def kill_first(ward: Ward, tally: Tally, count: int) -> None:
    """Kill −9 falls on the first process at a random step: its worker ends too, and the run can be resumed."""
    for _ in range(count):
        with tally.trial():
            patient, process = _under_way(ward)
            process.kill()
            process.join()
            process.close()
            patient.examine()
            patient.recover()
