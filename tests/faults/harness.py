"""A run that is hurt beside one that never was: what must hold after every blow, and at the end."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from converge_to_surprise.data.cache import BUILDING
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.runs import checkpoint
from converge_to_surprise.runs.folder import RunFolder

from .child import FINE, Conditions, start

COMMON = """
--no-report --views.upsample 1 --seed 2 --threads 1
--checkpoint-seconds 0 --network.no-space-to-depth --max-clusters 6 --network.width 2 --network.min-active-outputs 4
--augmentation.rotation 10 --augmentation.crop 1 --consolidation.tau 0 --consolidation.batch-size 16
"""
# Small batches give many updates: the running statistics of the network need some twenty of them before the labels
# that consolidation starts from tell images apart at all.
SETTINGS = {
    "evolution": f"""{COMMON} --search evolution --network.pixels 0 --n-init 1
        --schedule explore=evolution:3 strong=evolution:2:2@1
        --evolution.population 2 --evolution.batch-size 10 --evolution.ramp-epochs 2""",
    "restarts": f"""{COMMON} --search evolution --network.pixels 0 --n-init 2
        --schedule explore=evolution:2 strong=evolution:1:2@1
        --evolution.population 2 --evolution.batch-size 12 --evolution.ramp-epochs 2""",
    "relaxed": f"""{COMMON} --search relaxed --n-init 1 --seed 4
        --schedule search=relaxed:4 merge=merge:1 refine=refine:1 settle=consolidate:3
        --relaxed.heads 2 --relaxed.batch-size 10 --n-clusters 6
        --relaxed.diversity-floor 4 4 --relaxed.temperature 0.1 --network.width 4""",
}
STEPS = 34
"""Steps of each: 5 epochs of 6 updates and 4 passes; or twice 3 epochs of 5 updates and 2 passes; or 24 updates, a
merge, 6 updates and 3 passes."""
IMAGES = 60
LARGE = 3000
"""Pixels on a side of a large picture: 36 MB when it is decoded."""
PATIENCE = 120.0
"""Seconds after which a process that has not ended counts as hung."""


class Loss(Exception):  # noqa: N818 - what the harness looks for
    """Something that was acknowledged is lost, or a user saw a traceback or a wrong result."""


def demand(condition: bool, what: str) -> None:
    if not condition:
        raise Loss(what)


@dataclass(frozen=True)
class Whole:
    """A run that was never hurt."""

    source: Path
    flags: list[str]
    run: RunFolder
    seconds: float


def source_of(folder: Path) -> Path:
    """A file of small images with some structure."""
    source = folder / "bars.npz"
    images, classes = striped_images(IMAGES)
    np.savez(source, images=images.numpy(), labels=classes)
    return source


def pictures_in(folder: Path, large: int = 0) -> Path:
    """A folder of small pictures, so many of them large, and a file that is none and will be skipped."""
    source = folder / "bars"
    source.mkdir()
    for number, image in enumerate(striped_images(IMAGES)[0]):
        picture = Image.fromarray(image[0].numpy())
        if number < large:
            picture = picture.resize((LARGE, LARGE), Image.Resampling.NEAREST).convert("RGB")
        picture.save(source / f"{number:03d}.png", compress_level=1)
    (source / "broken.png").write_bytes(b"no picture")
    return source


def undisturbed(
    folder: Path,
    search: str,
    checkpoint_seconds: float,
    make_source: Callable[[Path], Path] = source_of,
    flags: Sequence[str] = (),
) -> Whole:
    """The run to compare with."""
    folder.mkdir()
    words = [*SETTINGS[search].split(), "--checkpoint-seconds", str(checkpoint_seconds), *flags]
    source = make_source(folder)
    if source.is_dir():
        words += ["--image-size", "8"]
    patient = Patient(folder, Whole(source, words, RunFolder(folder / "run"), 0.0))
    began = time.monotonic()
    demand(patient.await_end(patient.begin()) == 0, f"an undisturbed run failed: {patient.said()}")
    return Whole(source, words, patient.run, time.monotonic() - began)


@dataclass
class Patient:
    """A run that is hurt, in a folder of its own."""

    folder: Path
    whole: Whole
    out: Path | None = None
    """Where the run goes, if not into the folder."""
    acknowledged: int = 0
    """Steps in the newest checkpoint that was ever seen whole: none may be lost."""
    run: RunFolder = field(init=False)
    cache: Path = field(init=False)
    """Where decoded pictures are kept."""

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.cache = self.folder / "cache"
        self.run = RunFolder(self.out or self.folder / "run")

    def begin(self, *extra: str, conditions: Conditions = FINE) -> BaseProcess:
        """``cts fit``, or ``cts resume`` once there is a run."""
        if self.run.config.exists():
            return self.start("resume", str(self.run.path), "--no-report", conditions=conditions)
        words = ["fit", str(self.whole.source), "--out", str(self.run.path), *self.whole.flags, *extra]
        return self.start(*words, conditions=conditions)

    def start(self, *words: str, conditions: Conditions = FINE, said: str = "said") -> BaseProcess:
        return start(list(words), self.folder / said, self.run.path, self.cache, conditions)

    def said(self, name: str = "said") -> str:
        return (self.folder / name).read_text(encoding="utf-8", errors="replace")

    def await_end(self, process: BaseProcess, said: str = "said") -> int:
        """The exit code; whatever happened, no traceback is shown."""
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise Loss("the process hung")
        code = process.exitcode
        process.close()
        text = self.said(said)
        demand("Traceback" not in text, f"a traceback: {text}")
        return code

    def await_steps(self, process: BaseProcess, steps: int) -> None:
        """Wait until the history has this many lines or the process has ended."""
        until = time.monotonic() + PATIENCE
        while process.is_alive() and len(self._lines()) < steps and time.monotonic() < until:
            time.sleep(0.002)

    def stopped_at(self, steps: int) -> None:
        """Run up to about this step and stop there, politely."""
        process = self.begin()
        self.await_steps(process, steps)
        process.terminate()
        demand(self.await_end(process) == 128 + signal.SIGTERM, f"SIGTERM did not stop it: {self.said()}")
        self.examine()

    def _lines(self) -> list[bytes]:
        return self.run.history.read_bytes().split(b"\n")[:-1] if self.run.history.is_file() else []

    def examine(self) -> None:
        """After a blow: whole checkpoints, none older than before, and a history without hole or duplicate."""
        if not self.run.config.exists():
            demand(self.acknowledged == 0, "config.json is gone")
            return
        newest, problems = checkpoint.load_newest(self.run.checkpoints, self.run.description().identity)
        demand(not problems, f"a damaged checkpoint: {problems}")
        saved = 0 if newest is None else int(newest.data["step"])
        demand(saved >= self.acknowledged, f"step {self.acknowledged} was saved, now only {saved} is")
        self.acknowledged = saved
        steps = [json.loads(line)["step"] for line in self._lines()]
        demand(steps == list(range(len(steps))), f"the history has a hole or a duplicate: {steps}")
        demand(len(steps) >= saved, f"step {saved} is saved but the history has only {len(steps)}")

    def recover(self) -> str:
        """Resume to the end and compare with the undisturbed run; returns what the program said."""
        demand(self.await_end(self.begin()) == 0, f"it cannot be resumed: {self.said()}")
        self.compare()
        return self.said()

    def compare(self) -> None:
        """Everything but times is bit-identical, and nothing is left lying about."""
        self.examine()
        ours, theirs = self.run, self.whole.run
        demand(self.acknowledged == STEPS, "the last step is not saved")
        demand(ours.labels.read_bytes() == theirs.labels.read_bytes(), "other labels")
        last = f"checkpoints/step-{STEPS:09d}.safetensors"
        same = (ours.path / last).read_bytes() == (theirs.path / last).read_bytes()
        demand(same, "other tensors in the last checkpoint")
        demand(_timeless(ours.records()) == _timeless(theirs.records()), "another history")
        results = [json.loads(run.result.read_text()) for run in (ours, theirs)]
        demand(_timeless(results[:1]) == _timeless(results[1:]), "another result")
        demand(ours.model.read_bytes() == theirs.model.read_bytes(), "another model")
        demand(ours.outputs.read_bytes() == theirs.outputs.read_bytes(), "other outputs")
        demand(_names(ours) == _names(theirs), f"stray: {_names(ours) ^ _names(theirs)}")
        if theirs.quarantine.exists():
            demand(ours.quarantine.read_bytes() == theirs.quarantine.read_bytes(), "other pictures skipped")
        sets = [path.name for path in self.cache.iterdir()] if self.cache.exists() else []
        demand(not any(name.startswith(BUILDING) for name in sets), f"stray in the cache of pictures: {sets}")
        kept = sorted(path.name for path in ours.checkpoints.iterdir())
        pairs = {name.split(".")[0] for name in kept}
        demand(len(pairs) <= checkpoint.KEEP and len(kept) == 2 * len(pairs), f"stray checkpoints: {kept}")


def _timeless(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def _names(run: RunFolder) -> set[str]:
    return {path.name for path in run.path.iterdir()} - {".lock", "checkpoints"}
