"""Pictures that are sorted by moving them: sort and undo are killed, and every picture is back in the end."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
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

from .child import FINE, Conditions
from .harness import PATIENCE, Patient, demand
from .places import one_line
from .ward import Tally, Ward

FILES = 60
SORTING = 90
"""Operations on the folder of a sort, about."""
UNDOING = 150
MOVED = 61
"""Files of an inbox that a sort moves: the pictures and the hard links, but the picture that a link leads to."""


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
        self._add_links()
        self.before = contents(self.folder)
        self.beside = contents(self.outside)

    def _add_links(self) -> None:
        """Links to files and folders, inside and outside, to links, to nothing and in a circle, and hard links."""
        self.outside = self.patient.folder / "outside"
        (self.outside / "deep").mkdir(parents=True, exist_ok=True)
        for name in ("a.png", "deep/b.png"):
            shutil.copy2(self.folder / "trip 0" / "001.png", self.outside / name)
        for name, target in {
            "link.png": "trip 0/000.png", "chain.png": "link.png", "out.png": "../outside/a.png", "gone.png": "nowhere",
            "folder": "trip 1", "old": "../outside", "trip 2/circle": "..",
        }.items():  # fmt: skip
            (self.folder / name).symlink_to(target)
        os.link(self.folder / "trip 0" / "002.png", self.folder / "second name.png")
        os.link(self.outside / "deep" / "b.png", self.folder / "shared.png")

    def sort(self, conditions: Conditions = FINE, out: Path | None = None, said: str = "said") -> BaseProcess:
        place = str(out or self.out)
        words = ["sort", str(self.patient.whole.run.path), str(self.folder), "--into", place, "--how", "move"]
        return self.patient.start(*words, "--threads", "1", conditions=conditions, said=said)

    def undo(self, conditions: Conditions = FINE) -> BaseProcess:
        return self.patient.start("sort", "--undo", str(self.out), conditions=conditions)

    def left(self) -> int:
        """Pictures that are still in their folders, counted quickly."""
        return sum(name.endswith(".png") for trip in range(3) for name in os.listdir(self.folder / f"trip {trip}"))

    def moved(self) -> int:
        """Files of the source that are gone from it."""
        return len(self.before.keys() - contents(self.folder).keys())

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
        demand(contents(self.outside) == self.beside, "files outside of the source changed")
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
    halfway = 0
    while tally.tried < count:
        with tally.trial(0), _inbox(ward, tally) as inbox:
            process = inbox.sort()
            if ward.rng.random() < 0.8:
                _await(process, inbox.out / JOURNAL)
                _await_moves(process, inbox, ward.rng.randint(0, FILES))
            else:
                process.join(ward.rng.uniform(0, 1))
            tally.tried += _kill(process)
            halfway += 0 < inbox.moved() < MOVED
            inbox.examine()
            inbox.recover()
    tally.how = f"{halfway} with some files moved"


def kill_in_sorting(ward: Ward, tally: Tally, count: int) -> None:
    """Kill −9 just before some operation on the folder of a sort; then it is undone."""
    halfway = 0
    while tally.tried < count:
        with tally.trial(0), _inbox(ward, tally) as inbox:
            deadly = Conditions(deadly=ward.rng.randint(1, SORTING), deadly_place=inbox.out)
            tally.tried += inbox.patient.await_end(inbox.sort(deadly)) != 0
            halfway += 0 < inbox.moved() < MOVED
            inbox.examine()
            inbox.recover()
    tally.how = f"{halfway} with some files moved"


def kill_in_undoing(ward: Ward, tally: Tally, count: int) -> None:
    """A sort, whole or killed, is undone, and the undoing is killed again and again before it is left to end."""
    halfway = 0
    while tally.tried < count:
        with tally.trial(0), _inbox(ward, tally) as inbox:
            process = inbox.sort()
            if ward.rng.random() < 0.5:
                _await(process, inbox.out / JOURNAL)
                _await_moves(process, inbox, ward.rng.randint(0, FILES))
                _kill(process)
            else:
                demand(inbox.patient.await_end(process) == 0, f"it cannot be sorted: {inbox.patient.said()}")
            ended = False
            while tally.tried < count and inbox.out.exists() and not ended:
                place = ward.rng.choice((inbox.out, inbox.folder))
                deadly = Conditions(deadly=ward.rng.randint(1, UNDOING), deadly_place=place)
                ended = inbox.patient.await_end(inbox.undo(deadly)) == 0
                tally.tried += not ended
                halfway += not ended and 0 < inbox.moved() < MOVED
                inbox.examine()
            inbox.recover()
    tally.how = f"{halfway} with some files moved"


def two_sorts_at_once(ward: Ward, tally: Tally, count: int) -> None:
    """Two sorts move the same pictures at once, every other time into the same folder; then both are undone."""
    while tally.tried < count:
        with tally.trial(), _inbox(ward, tally) as inbox:
            second = inbox.out if tally.tried % 2 else inbox.out.with_name("second")
            processes = [inbox.sort(said="first"), inbox.sort(out=second, said="other")]
            codes = []
            for process, said in zip(processes, ("first", "other"), strict=True):
                codes.append(inbox.patient.await_end(process, said))
                demand(codes[-1] in (0, 2), f"exit code {codes[-1]}: {inbox.patient.said(said)}")
            demand(0 in codes, "neither of two sorts did its work")
            demand(inbox.moved() == MOVED, f"{inbox.moved()} files were moved, not {MOVED}")
            places = {inbox.folder, inbox.out, second}
            found = sum((Counter(contents(place).values()) for place in places), Counter[str]())
            lost = Counter(inbox.before.values()) - found
            demand(not lost, f"{lost.total()} files are in no place")
            for out in {inbox.out, second}:
                if out.exists():
                    code = inbox.patient.await_end(inbox.patient.start("sort", "--undo", str(out)))
                    demand(code == 0, f"it cannot be undone: {inbox.patient.said()}")
            inbox.compare()
            demand(not second.exists(), "the second sort left its folder")


def _await(process: BaseProcess, path: Path) -> None:
    """Wait until there is a file or the process has ended."""
    until = time.monotonic() + PATIENCE
    while process.is_alive() and not path.exists() and time.monotonic() < until:
        time.sleep(0.0005)


def _await_moves(process: BaseProcess, inbox: Inbox, count: int) -> None:
    """Wait until so many pictures have been moved away or the process has ended."""
    until = time.monotonic() + PATIENCE
    while process.is_alive() and inbox.left() > FILES - count and time.monotonic() < until:
        pass  # all files are moved within milliseconds


def _kill(process: BaseProcess) -> bool:
    """Kill −9; whether the process had not ended before."""
    process.kill()
    process.join()
    killed = process.exitcode == -signal.SIGKILL
    process.close()
    return killed
