"""Processes that are stopped: kills, signals, rivals, clocks."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from multiprocessing.process import BaseProcess

from .child import ProcessGroup
from .harness import STEPS, Patient, demand
from .ward import Tally, Ward


def kill_at_random(ward: Ward, tally: Tally, count: int) -> None:
    """Kill −9 at random moments of one run after the other until there were so many."""
    while tally.tried < count:
        with tally.trial(0):
            patient = ward.patient()
            while tally.tried < count and patient.acknowledged < STEPS:
                process = patient.begin()
                process.join(ward.rng.uniform(0, 0.4 * patient.whole.seconds))
                process.kill()
                process.join()
                process.close()
                tally.tried += 1
                patient.examine()
            patient.recover()


def _send(process: BaseProcess, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
        if process.is_alive() and process.pid is not None:
            os.kill(process.pid, number)


def kill_in_writing(ward: Ward, tally: Tally, count: int, longest: int = 40) -> None:
    """Kill −9 just before some operation on a file of the run folder."""
    while tally.tried < count:
        with tally.trial(0):
            patient = ward.patient()
            ended = False
            while tally.tried < count and not ended:
                # A run that does not exist yet has a handful of operations only until it does.
                most = longest if patient.run.config.exists() else 16
                process = patient.begin(world=ProcessGroup(deadly=ward.rng.randint(1, most)))
                ended = patient.await_end(process) == 0
                tally.tried += not ended
                patient.examine()
            patient.recover()


def polite_signal(ward: Ward, tally: Tally, count: int, number: signal.Signals) -> None:
    """A signal that asks to stop, at a random moment."""
    for _ in range(count):
        with tally.trial():
            patient = ward.patient()
            process = patient.begin()
            process.join(ward.rng.uniform(0, patient.whole.seconds))
            _send(process, number)
            _check_stop(patient, patient.await_end(process), number)
            patient.recover()


def interrupt_twice(ward: Ward, tally: Tally, count: int) -> None:
    """Ctrl-C by someone impatient: the second one falls into the saving that the first one began."""
    for _ in range(count):
        with tally.trial():
            patient = ward.patient()
            process = patient.begin()
            patient.await_steps(process, ward.rng.randint(1, STEPS - 1))
            for _ in range(2):
                _send(process, signal.SIGINT)
                time.sleep(ward.rng.uniform(0, 0.03))
            _check_stop(patient, patient.await_end(process), signal.SIGINT)
            patient.recover()


def _check_stop(patient: Patient, code: int, number: signal.Signals) -> None:
    """It ended as asked, or had finished before; if it says that the run is saved, every step it made is."""
    demand(code in (0, 128 + number, -number), f"exit code {code} after {number.name}: {patient.said()}")
    patient.examine()
    if "the run is saved" in patient.said():
        steps = len(patient.run.records())
        demand(patient.acknowledged == steps, f"{steps} steps were done but only {patient.acknowledged} saved")
    elif code == 0:
        patient.compare()


def clock_jumps(ward: Ward, tally: Tally, count: int) -> None:
    """The time of day jumps by years between two looks at it, before and after a kill."""
    for _ in range(count):
        with tally.trial():
            patient = ward.patient()
            process = patient.begin(world=ProcessGroup(clock=True))
            patient.await_steps(process, STEPS // 2)
            process.kill()
            process.join()
            patient.examine()
            code = patient.await_end(patient.begin(world=ProcessGroup(clock=True)))
            demand(code == 0, f"exit code {code}: {patient.said()}")
            patient.compare()


def second_writer(ward: Ward, tally: Tally, count: int) -> None:
    """While a process works on the folder others want it too, also by force."""
    for _ in range(count):
        with tally.trial():
            patient = ward.patient()
            process = patient.begin()
            patient.await_steps(process, 3)
            fit = ["fit", str(patient.whole.source), "--out", str(patient.run.path), *patient.whole.flags, "--force"]
            rivals = [
                patient.start(*words, said=f"rival-{number}")
                for number, words in enumerate(
                    [["resume", str(patient.run.path), "--no-report"], [*fit, "--seed", "9"]]
                )
            ]
            forced = 2
            for number, rival in enumerate(rivals):
                forced, said = patient.await_end(rival, f"rival-{number}"), patient.said(f"rival-{number}")
                if process.is_alive():
                    demand(forced == 2 and "another process is working on" in said, f"a rival got in: {forced} {said}")
            demand(patient.await_end(process) == 0, f"the first writer failed: {patient.said()}")
            if forced == 2:  # else it came when the first was done, and force is what it has
                patient.compare()


def race(ward: Ward, tally: Tally, count: int) -> None:
    """Three processes reach for one stopped run at once, and are killed at a random moment; then two more."""
    for _ in range(count):
        with tally.trial():
            patient = ward.patient()
            patient.stopped_at(STEPS // 2)
            rivals = [
                patient.start("resume", str(patient.run.path), "--no-report", said=f"rival-{n}") for n in range(3)
            ]
            time.sleep(ward.rng.uniform(0, 2 * patient.whole.seconds))
            for rival in rivals:
                rival.kill()
                rival.join()
                patient.examine()
            rivals = [
                patient.start("resume", str(patient.run.path), "--no-report", said=f"rival-{n}") for n in range(2)
            ]
            codes = [patient.await_end(rival, f"rival-{number}") for number, rival in enumerate(rivals)]
            demand(0 in codes and set(codes) <= {0, 2}, f"exit codes {codes}")
            patient.compare()
