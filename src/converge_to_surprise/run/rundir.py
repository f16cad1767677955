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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from ..config import Config
from ..configfile import overlay, to_dict
from ..data.reading import LabelSource
from ..learn.record import Record
from .files import read_json, write_atomically, write_json

FORMAT = "converge-to-surprise run"
VERSION = 1
LOCK = ".lock"


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
        settings = json.dumps(to_dict(self.config), sort_keys=True)
        return hashlib.sha256(f"{self.fingerprint} {settings}".encode()).hexdigest()


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
        return run

    @classmethod
    def claim(cls, path: Path, force: bool) -> RunFolder:
        """A folder for a new run; nothing is touched yet. An earlier run is given up only with ``force``."""
        run = cls(path)
        if path.exists() and not path.is_dir():
            raise ValueError(f"--out is {path}, which is a file; give a folder")
        if path.is_dir() and any(entry.name != LOCK for entry in path.iterdir()):
            if not run.config.is_file():
                raise ValueError(f"{path} is not empty and holds no run; give another folder")
            if not force:
                raise ValueError(f"{path} already holds a run; continue it with `cts resume {path}` or give --force")
        return run

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
        leftovers = [path for file in self._files for path in self.path.glob(f".{file.name}.*")]
        for leftover in [*leftovers, *self.checkpoints.glob(".step-*")]:
            leftover.unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process; the lock goes with the process, however it ends."""
        lock = FileLock(self.path / LOCK, timeout=0)
        try:
            with lock:
                yield
        except Timeout:
            raise ValueError(f"another process is working on {self.path}; wait for it or stop it first") from None
        except PermissionError as error:
            raise ValueError(f"cannot write to {self.path}: {error.strerror}") from None

    def describe(self, description: Description) -> None:
        """Write config.json."""
        data = dataclasses.asdict(description) | {"config": to_dict(description.config)}
        write_json(self.config, {"format": FORMAT, "version": VERSION, **data})

    def description(self) -> Description:
        """Read config.json."""
        data = read_json(self.config)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise ValueError(f"{self.config} does not describe a run of this program")
        if (version := data.pop("version", None)) != VERSION:
            raise ValueError(f"{self.config} has version {version}; this program reads version {VERSION}")
        try:
            shape = tuple(data.pop("shape"))
            return Description(**data | {"config": overlay(Config(), data["config"]), "shape": shape})
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"{self.config} is damaged: {error}") from None

    def records(self) -> list[dict[str, Any]]:
        """The history; a line that a crash cut short ends it."""
        found: list[dict[str, Any]] = []
        if self.history.is_file():
            for line in self.history.read_text(encoding="utf-8").splitlines():
                try:
                    found.append(json.loads(line))
                except ValueError:
                    break
        return found

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


def _line(record: dict[str, Any]) -> bytes:
    return (json.dumps(record, allow_nan=False) + "\n").encode()
