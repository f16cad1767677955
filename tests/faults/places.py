"""Disks, files and memory that fail."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np

from .child import ProcessGroup
from .harness import STEPS, Patient, demand
from .ward import Tally, Ward


def one_line(patient: Patient, code: int, *words: str) -> None:
    """A refusal is exit code 2 and one line with these words in it."""
    said = patient.said().strip().splitlines()
    demand(code == 2, f"exit code {code}: {said}")
    complaints = [line for line in said if line.startswith("cts: ")]
    demand(len(complaints) == 1 and said[-1] == complaints[0], f"not one line: {said}")
    for word in words:
        demand(word in complaints[0], f"{word!r} is not in {complaints[0]!r}")


def full_disk(ward: Ward, tally: Tally, count: int) -> None:
    """The disk fills up at some step; room is made; the run goes on."""
    for number in range(count):
        with tally.trial(), ward.small_disk(8 << 20) as disk:
            if disk is None:
                tally.how = "file size limit"
                _too_large(ward)
                continue
            tally.how = "tmpfs"
            patient = ward.patient(out=disk / "run")
            ballast = disk / "ballast"
            need = sum(path.stat().st_size for path in patient.whole.run.path.rglob("*.*"))
            process = patient.begin()
            if number % 3:  # otherwise there is no room from the start
                patient.await_steps(process, ward.rng.randint(1, STEPS - 5))
            fill(ballast, ward.rng.randint(0, need // 2) if number % 2 else 0)
            code = patient.await_end(process)
            if code:
                one_line(patient, code, "No space left on device")
            patient.examine()
            ballast.unlink()
            patient.recover()


def fill(path: Path, spare: int) -> None:
    """Take all room but so many bytes."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
        file.truncate(max(0, file.tell() - spare))


def _too_large(ward: Ward) -> None:
    patient = ward.patient()
    sizes = [path.stat().st_size for path in patient.whole.run.checkpoints.iterdir()]
    code = patient.await_end(patient.begin(world=ProcessGroup(file_size=max(sizes) - 1)))
    if code:
        one_line(patient, code, "File too large")
    patient.examine()
    patient.recover()


def read_only(ward: Ward, tally: Tally, count: int) -> None:
    """The folder cannot be written, from the start or from some step on; looking at the run still works."""
    for number in range(count):
        with tally.trial():
            patient = ward.patient()
            if number % 3:
                process = patient.begin()
                patient.await_steps(process, ward.rng.randint(1, STEPS - 5))
                if number % 3 == 1:
                    process.terminate()
                    patient.await_end(process)
            else:
                patient.run.path.mkdir()
            targets = [path for path in (patient.run.path, patient.run.checkpoints) if path.exists()]
            tally.how = _freeze(targets, True)
            try:
                code = patient.await_end(process if number % 3 == 2 else patient.begin())
                if code:
                    one_line(patient, code, str(patient.run.path))
                demand(code == 2 or number % 3 == 2, f"it wrote to a folder that cannot be written: {patient.said()}")
                if patient.run.config.exists():
                    shown = patient.await_end(patient.start("show", str(patient.run.path)))
                    demand(shown == 0, f"cannot be shown: {patient.said()}")
            finally:
                _freeze(targets, False)
            patient.examine()
            patient.recover()


def _freeze(folders: list[Path], frozen: bool) -> str:
    """The super-user is stopped by the immutable flag only, others by permissions."""
    if os.geteuid() == 0:
        subprocess.run(["chattr", "+i" if frozen else "-i", *map(str, folders)], check=True)
        return "immutable flag"
    for folder in folders:
        folder.chmod(0o500 if frozen else 0o700)
    return "permissions"


def refused(patient: Patient, *words: str) -> None:
    """The run cannot be resumed, one line says why, and nothing in its folder is touched."""
    before = _content(patient.run.path)
    one_line(patient, patient.await_end(patient.begin()), *words)
    demand(_content(patient.run.path) == before, "a refusal changed the folder")


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def changed_source(ward: Ward, tally: Tally, count: int) -> None:
    """The images are other ones, fewer, gone or garbage when the run is resumed: refused until they are back."""
    for number in range(count):
        with tally.trial():
            patient = ward.patient(whole=ward.whole_of_an_array())
            patient.stopped_at(ward.rng.randint(1, STEPS - 5))
            source = patient.whole.source
            kept = source.read_bytes()
            with np.load(source) as arrays:
                images = arrays["images"]
            try:
                match number % 4:
                    case 0:
                        source.unlink()
                    case 1:
                        images[-1, 0, 0, 0] ^= 1
                        np.savez(source, images=images)
                    case 2:
                        np.savez(source, images=images[:-1])
                    case _:
                        os.truncate(source, len(kept) // 2)
                refused(patient, source.name)
            finally:
                source.write_bytes(kept)
            patient.recover()


def out_of_memory(ward: Ward, tally: Tally, count: int) -> None:
    """Address space runs out while images are loaded, while a run is set up or in the middle of a step."""
    for number in range(count):
        with tally.trial():
            patient = ward.patient()
            if number % 2:
                big = patient.folder / "big.npz"
                np.savez(big, images=np.zeros((40_000, 32, 32), np.float32))
                words = ["fit", str(big), "--out", str(patient.run.path), *patient.whole.flags]
                spare = ward.rng.choice((20, 100, 180, 250, 330))
                code = patient.await_end(patient.start(*words, world=ProcessGroup(memory=spare << 20)))
                one_line(patient, code, "memory")
                demand(not patient.run.path.exists(), "a run was begun")
                big.unlink()
            else:
                spare = ward.rng.randrange(0, 60)
                code = patient.await_end(patient.begin(world=ProcessGroup(memory=spare << 20)))
                demand(code <= 2 and code != 1, f"exit code {code}: {patient.said()}")
                if code == 2:
                    one_line(patient, code, "memory")
                patient.examine()
            patient.recover()
