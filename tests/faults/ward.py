"""Where patients lie and what became of them is counted."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .harness import Lost, Patient, Whole


@dataclass
class Tally:
    """Trials of one fault, and what was lost in them."""

    tried: int = 0
    lost: list[str] = field(default_factory=list)
    how: str = ""
    """By what means, where the machine decides."""

    @contextmanager
    def trial(self, count: int = 1) -> Iterator[None]:
        """A blow and what follows; a loss is noted and the next trial goes on."""
        self.tried += count
        try:
            yield
        except Lost as loss:
            self.lost.append(str(loss))


class Ward:
    """Undisturbed runs, fresh folders, and dice."""

    def __init__(self, folder: Path, wholes: list[Whole], seed: int = 0) -> None:
        self.folder = folder
        self.wholes = wholes
        self.rng = random.Random(seed)
        self._turn = itertools.cycle(wholes)
        self._number = itertools.count()

    def patient(self, out: Path | None = None, like: Patient | None = None) -> Patient:
        """A new one; in turn of each kind of run. ``like``: a copy of another."""
        place = self.folder / f"patient-{next(self._number)}"
        if like is None:
            return Patient(place, next(self._turn), out)
        copy = Patient(place, like.whole, acknowledged=like.acknowledged)
        shutil.copytree(like.run.path, copy.run.path)
        return copy

    @contextmanager
    def small_disk(self, size: int) -> Iterator[Path | None]:
        """A file system of so many bytes, or None if this machine does not let us make one."""
        place = self.folder / f"disk-{next(self._number)}"
        place.mkdir()
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, check=False
        )
        if made.returncode:
            yield None
            return
        try:
            yield place
        finally:
            subprocess.run(["umount", "--lazy", str(place)], check=True)
