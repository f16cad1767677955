"""The layout of a run folder, its lock and its history.

RUN/config.json         what determines the run: source of the images, their fingerprint, the effective configuration
RUN/history.jsonl       one record per step
RUN/checkpoints/        the last two checkpoints
RUN/result.json         the clusters that were found (when finished)
RUN/labels.csv          the cluster of every training image (when finished)
RUN/model.safetensors   everything needed to sort other images (when finished)
RUN/clusters.json       names, merges and noise as a person marked them (after `cts relabel`)
RUN/report.html         the page to look at (when finished)
RUN/quarantine.csv      files that could not be read, with the reason (picture folders)
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from ..config import Config
from ..config.files import overlay, to_dict, typed
from ..config.storage import read_json, write_atomically, write_json
from ..config.text import parse_json
from ..data.image_options import LabelSource
from ..search.record import Record

FORMAT = "converge-to-surprise run"
VERSION = 1
LOCK = ".lock"
LATER = {
    ("", "precision"): "float32",
    ("", "processes"): 1,
    ("", "starts"): 1,
    ("views", "background"): "kept",
    ("network", "boundary"): "black",
    ("relaxed", "refine_temperature"): 0.025,
}
"""Settings that came later, by section and name, and what earlier versions did: a run of theirs stays what it was."""


@dataclasses.dataclass(frozen=True)
class Description:
    """What determines a run."""

    source: str
    data_dir: str | None
    preset: str
    fingerprint: str
    """SHA-256 over the images, so that a run is never continued on other images."""
    images: int
    shape: tuple[int, int, int]
    """Channels, height and width."""
    program: str
    """Version of this program that began the run."""
    config: Config
    labels: LabelSource = "none"
    """Where the classes of pictures come from; for evaluation only."""

    @property
    def identity(self) -> str:
        """Tells this run from others: images and configuration, hashed."""
        data = to_dict(self.config)
        for (section, name), before in LATER.items():
            place = data[section] if section else data
            if place[name] == before:
                del place[name]
        settings = json.dumps(data, sort_keys=True)
        return hashlib.sha256(f"{self.fingerprint} {settings}".encode()).hexdigest()

    def plain(self) -> dict[str, Any]:
        """As plain data, the inverse of ``parse``."""
        return {**dataclasses.asdict(self), "config": to_dict(self.config)}

    @classmethod
    def parse(cls, data: dict[str, Any]) -> Description:
        """A description from plain data; a ValueError says what is wrong with it."""
        kinds = typing.get_type_hints(cls)
        # Earlier versions did not say where the labels come from.
        if wrong := (data.keys() | {"labels"}) ^ kinds.keys():
            raise ValueError(f"{', '.join(sorted(wrong))} is missing or unknown")
        given = {name: typed(value, kinds[name], name) for name, value in data.items() if name != "config"}
        found = cls(**given, config=overlay(Config(), data["config"]))
        if min(found.images, *found.shape) < 1 or found.shape[0] not in (1, 3):
            raise ValueError(f"there are no {found.images} images of {found.shape}")
        return found


class RunFolder:
    """A run folder by its path. Opening and creating check; the rest trusts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.history = path / "history.jsonl"
        self.checkpoints = path / "checkpoints"
        self.result = path / "result.json"
        self.labels = path / "labels.csv"
        self.model = path / "model.safetensors"
        self.names = path / "clusters.json"
        self.quarantine = path / "quarantine.csv"
        self.report = path / "report.html"
        self.force = False
        """Whether an earlier run in this folder may be given up."""
        self._lock = FileLock(path / LOCK, timeout=0)  # of one folder object: whoever holds it may take it again

    @property
    def _files(self) -> tuple[Path, ...]:
        """What a run writes, in the order in which an earlier run is given up."""
        result = (self.result, self.labels, self.model, self.names, self.quarantine, self.report)
        return (*result, self.history, self.config)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run folder."""
        run = cls(path)
        if not run.config.is_file():
            raise ValueError(f"{path} is not a run folder: it has no config.json")
        if run.checkpoints.is_symlink():
            raise ValueError(f"{run.checkpoints} leads out of the run folder; put the folder itself there")
        return run

    @classmethod
    def claim(cls, path: Path, force: bool) -> RunFolder:
        """A folder for a new run; nothing is touched yet. An earlier run is given up only with ``force``."""
        run = cls(path)
        run.force = force
        run.check_free()
        return run

    def check_free(self) -> None:
        """Refuse a folder that holds anything but what may be given up."""
        path = self.path
        if path.exists() and not path.is_dir():
            raise ValueError(f"--out is {path}, which is a file; give a folder")
        ours = {path / LOCK, *self._leftovers()}
        if path.is_dir() and any(entry not in ours for entry in path.iterdir()):
            if not self.config.is_file():
                raise ValueError(f"{path} is not empty and holds no run; give another folder")
            if not self.force:
                raise ValueError(f"{path} already holds a run; continue it with `cts resume {path}` or give --force")

    def make(self) -> None:
        """Create the folder itself."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"cannot make the run folder {self.path}: {error.strerror}") from None

    def clear(self) -> None:
        """Remove an earlier run's files, and nothing else."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        for file in self._files:
            file.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what a kill in the middle of a write left behind. Only for who holds the lock."""
        for leftover in [*self._leftovers(), *self.checkpoints.glob(".step-*")]:
            leftover.unlink(missing_ok=True)

    def _leftovers(self) -> list[Path]:
        return [path for file in self._files for path in self.path.glob(f".{file.name}.*")]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process; the lock goes with the process, however it ends."""
        try:
            with self._lock:
                yield
        except Timeout:
            raise ValueError(f"another process is working on {self.path}; wait for it or stop it first") from None
        except PermissionError as error:
            raise ValueError(f"cannot write to {self.path}: {error.strerror}") from None

    def describe(self, description: Description) -> None:
        """Write config.json."""
        write_json(self.config, {"format": FORMAT, "version": VERSION, **description.plain()})

    def description(self) -> Description:
        """Read config.json."""
        data = read_json(self.config)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise ValueError(f"{self.config} does not describe a run of this program")
        if (version := data.pop("version", None)) != VERSION:
            raise ValueError(f"{self.config} has version {version}; this program reads version {VERSION}")
        try:
            return Description.parse(data)
        except ValueError as error:
            raise ValueError(f"{self.config} is damaged: {error}") from None

    def records(self) -> list[dict[str, Any]]:
        """The history: every line that is a whole record of a later step than those before it."""
        found: list[dict[str, Any]] = []
        if self.history.is_file():
            with self.history.open("rb") as file:
                for line in file:
                    record = _record(line)
                    if record is not None and (not found or record["step"] > found[-1]["step"]):
                        found.append(record)
        return found

    def missing_before(self, step: int) -> int:
        """How many records of the steps before this one the history has lost: none, unless the file was damaged."""
        return step - len([record for record in self.records() if record["step"] < step])

    def forget_after(self, step: int) -> None:
        """Cut the history to the steps before ``step``: those after a checkpoint will be done again."""
        kept = [record for record in self.records() if record["step"] < step]
        write_atomically(self.history, b"".join(_line(record) for record in kept))

    @contextmanager
    def history_file(self) -> Iterator[HistoryFile]:
        with self.history.open("ab") as file:
            yield HistoryFile(file)


class HistoryFile:
    """The open end of a history."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def append(self, record: Record) -> None:
        self._file.write(_line(dataclasses.asdict(record)))
        self._file.flush()

    def to_disk(self) -> None:
        os.fsync(self._file.fileno())


_KINDS = {name: (int, float) if kind is float else kind for name, kind in typing.get_type_hints(Record).items()}


def _record(line: bytes) -> dict[str, Any] | None:
    """The record in a line of the history; None if a crash or a damaged disk left less than that."""
    try:
        record = parse_json(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or not all(isinstance(record.get(name), kind) for name, kind in _KINDS.items()):
        return None
    return record if record["step"] >= 0 else None


def _line(record: dict[str, Any]) -> bytes:
    return (json.dumps(record, allow_nan=False) + "\n").encode()
