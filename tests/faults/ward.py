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

from .harness import Patient, Whole, WorkerLost


@dataclass
class Tally:
    """Trials of one fault, and what was lost in them."""

    tried: int = 0
    lost: list[str] = field(default_factory=list)
    how: str = ""
    """By what means, where the machine decides."""
    seconds: float = 0.0

    @contextmanager
    def trial(self, count: int = 1) -> Iterator[None]:
        """A blow and what follows; a loss is noted and the next trial goes on."""
        self.tried += count
        try:
            yield
        except WorkerLost as loss:
            self.lost.append(str(loss))


class Ward:
    """Undisturbed runs, fresh folders, and dice."""

    def __init__(self, folder: Path, wholes: list[Whole], seed: int = 0) -> None:
        self.folder = folder
        self.wholes = wholes
        self.teams: list[Whole] = []
        """Undisturbed runs of several processes, once they are needed."""
        self.rng = random.Random(seed)
        self._turn = itertools.cycle(wholes)
        self._number = itertools.count()

    def patient(self, out: Path | None = None, like: Patient | None = None, whole: Whole | None = None) -> Patient:
        """A new one; in turn of each kind of run, unless one is named. ``like``: a copy of another."""
        place = self.folder / f"patient-{next(self._number)}"
        if like is None:
            return Patient(place, whole or next(self._turn), out)
        copy = Patient(place, like.whole, acknowledged=like.acknowledged)
        shutil.copytree(like.run.path, copy.run.path)
        if like.cache.exists():
            shutil.copytree(like.cache, copy.cache)
        return copy

    def whole_of_pictures(self) -> Whole:
        """An undisturbed run of a folder of pictures."""
        return self.rng.choice([whole for whole in self.wholes if whole.source.is_dir()])

    def whole_of_an_array(self) -> Whole:
        """An undisturbed run of an array file."""
        return self.rng.choice([whole for whole in self.wholes if whole.source.is_file()])

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
