"""Pictures that are sorted by moving them: sort and undo are killed, and every picture is back in the end."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from PIL import Image

from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.runs.place_file import PART
from converge_to_surprise.runs.sort_journal import JOURNAL

from .child import FINE, ProcessGroup
from .harness import PATIENCE, Patient, demand
from .places import one_line
from .ward import Tally, Ward

FILES = 60
SORTING = 90
"""Operations on the folder of a sort, about."""
UNDOING = 150
MOMENT = 0.04
"""Seconds that moving so many files takes, about."""


@dataclass
class Inbox:
    """A folder of pictures, with links, and the place that they are sorted into."""

    patient: Patient
    out: Path

    def __post_init__(self) -> None:
        self.folder = self.patient.folder / "inbox"
        for number, image in enumerate(striped_images(FILES)[0]):
            path = self.folder / f"trip {number % 3}" / f"{number // 3:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[0].numpy()).save(path)
        (self.folder / "broken.png").write_bytes(b"no picture")
        (self.folder / "link.png").symlink_to("trip 0/000.png")
        (self.folder / "folder").symlink_to("trip 1")
        self.before = contents(self.folder)

    def sort(self, world: ProcessGroup = FINE) -> BaseProcess:
        words = ["sort", str(self.patient.whole.run.path), str(self.folder), "--into", str(self.out), "--how", "move"]
        return self.patient.start(*words, "--threads", "1", world=world)

    def undo(self, world: ProcessGroup = FINE) -> BaseProcess:
        return self.patient.start("sort", "--undo", str(self.out), world=world)

    def examine(self) -> None:
        """After a kill: no picture is in neither place, and a sort that was begun is not begun again."""
        found = Counter(contents(self.folder).values()) + Counter(contents(self.out).values())
        lost = Counter(self.before.values()) - found
        demand(not lost, f"{lost.total()} files are in neither place")
        if (self.out / JOURNAL).exists():
            one_line(self.patient, self.patient.await_end(self.sort()), "cts sort --undo")

    def recover(self) -> None:
        """Undo the sort to the end: every file is where it was, and nothing else is left."""
        if self.out.exists():
            code = self.patient.await_end(self.undo())
            demand(code == 0, f"it cannot be undone: {self.patient.said()}")
        self.compare()

    def compare(self) -> None:
        after = contents(self.folder)
        different = {name for name in self.before | after if self.before.get(name) != after.get(name)}
        demand(not different, f"not as before: {sorted(different)}")
        left = sorted(path.name for path in self.out.rglob("*")) if self.out.exists() else []
        demand(not self.out.exists(), f"left in the folder of the sort: {left}")


def contents(folder: Path) -> dict[str, str]:
    """What each file below a folder holds and when it was written, or where a link leads; half copies do not count."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(place) / name
            if path.is_symlink():
                found[str(path.relative_to(folder))] = f"link to {os.readlink(path)}"
            elif path.is_file() and name != PART:
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                found[str(path.relative_to(folder))] = f"{content} {path.stat().st_mtime_ns}"
    return found


@contextlib.contextmanager
def _inbox(ward: Ward, tally: Tally) -> Iterator[Inbox]:
    """Pictures, sorted into a folder beside them or, every third time, on another file system."""
    patient = ward.patient(whole=ward.rng.choice(ward.wholes))
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(ward.small_disk(4 << 20)) if tally.tried % 3 == 2 else None
        yield Inbox(patient, (disk or patient.folder) / "out")


def kill_sort_at_random(ward: Ward, tally: Tally, count: int) -> None:
    """Kill −9 at a random moment of a sort, mostly while files are moved; then it is undone."""
    while tally.tried < count:
        with tally.trial(0), _inbox(ward, tally) as inbox:
            process = inbox.sort()
            if ward.rng.random() < 0.8:
                _await(process, inbox.out / JOURNAL)
            _kill(process, ward.rng.uniform(0, MOMENT))
            tally.tried += 1
            inbox.examine()
            inbox.recover()


def kill_in_sorting(ward: Ward, tally: Tally, count: int) -> None:
    """Kill −9 just before some operation on the folder of a sort; then it is undone."""
    while tally.tried < count:
        with tally.trial(0), _inbox(ward, tally) as inbox:
            deadly = ProcessGroup(deadly=ward.rng.randint(1, SORTING), deadly_place=inbox.out)
            tally.tried += inbox.patient.await_end(inbox.sort(deadly)) != 0
            inbox.examine()
            inbox.recover()


def kill_in_undoing(ward: Ward, tally: Tally, count: int) -> None:
    """A sort, whole or killed, is undone, and the undoing is killed again and again before it is left to end."""
    while tally.tried < count:
        with tally.trial(0), _inbox(ward, tally) as inbox:
            process = inbox.sort()
            if ward.rng.random() < 0.5:
                _await(process, inbox.out / JOURNAL)
                _kill(process, ward.rng.uniform(0, MOMENT))
            else:
                demand(inbox.patient.await_end(process) == 0, f"it cannot be sorted: {inbox.patient.said()}")
            ended = False
            while tally.tried < count and inbox.out.exists() and not ended:
                place = ward.rng.choice((inbox.out, inbox.folder))
                deadly = ProcessGroup(deadly=ward.rng.randint(1, UNDOING), deadly_place=place)
                ended = inbox.patient.await_end(inbox.undo(deadly)) == 0
                tally.tried += not ended
                inbox.examine()
            inbox.recover()


def _await(process: BaseProcess, path: Path) -> None:
    """Wait until there is a file or the process has ended."""
    until = time.monotonic() + PATIENCE
    while process.is_alive() and not path.exists() and time.monotonic() < until:
        time.sleep(0.0005)


def _kill(process: BaseProcess, seconds: float) -> None:
    process.join(seconds)
    process.kill()
    process.join()
    process.close()
