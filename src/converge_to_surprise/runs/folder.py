"""The layout of a run folder, its lock and its history.

RUN/config.json         what determines the run: source of the images, their fingerprint, the configuration
RUN/history.jsonl       one record per step
RUN/checkpoints/        the last two checkpoints
RUN/result.json         the clusters that were found (when finished)
RUN/labels.csv          the cluster of every training image (when finished)
RUN/exemplars.csv       typical images of every cluster, and ones at its boundary (when finished)
RUN/model.safetensors   everything needed to label other images (when finished)
RUN/outputs.safetensors the outputs for every training image, from which the page is made (when finished)
RUN/training.safetensors the probabilities of every cluster for every training image, for Python (when finished)
RUN/projection.safetensors the principal components of stored features (runs with a backbone or on embeddings)
RUN/clusters.json       names, merges, noise marks and splits by hand (after `cts relabel` or `cts split`)
RUN/report.html         the report page (when finished)
RUN/duplicates.csv      images that show the same picture twice
RUN/quarantine.csv      skipped files with the reason (folders of pictures)
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

from filelock import FileLock

from ..config import Config
from ..config.files import overlay, to_dict, typed
from ..config.images import ImageOptions, InputKind, LabelSource
from ..config.storage import check_folder_target, locked, read_json, write_atomically, write_json, wrong_version
from ..config.text import parse_json
from ..model.feature_recipe import EmbeddingRecipe, Recipe, recipe_from_dict
from ..search.record import Record

FORMAT = "converge-to-surprise run"
VERSION = 2
LOCK = ".lock"


@dataclasses.dataclass(frozen=True)
class Description:
    """Everything that determines a run."""

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
    labels: LabelSource
    """Where the classes of pictures come from; for evaluation only."""
    pictures: str | None = None
    """Embeddings: where the pictures for the page are."""
    features: dict[str, Any] | None = None
    """How the stored features were made that the search works on; None if it works on pixels."""

    @property
    def recipe(self) -> Recipe | None:
        """``features``, checked."""
        return None if self.features is None else recipe_from_dict(self.features)

    @property
    def reading(self) -> ImageOptions:
        """How the source was read."""
        kind: InputKind = "embeddings" if isinstance(self.recipe, EmbeddingRecipe) else "images"
        return ImageOptions(labels=self.labels, input=kind, pictures=self.pictures)

    @property
    def local_data(self) -> Path | None:
        """``data_dir`` as a path."""
        return None if self.data_dir is None else Path(self.data_dir)

    @property
    def items(self) -> str:
        """What the run is about, in words."""
        if isinstance(self.recipe, EmbeddingRecipe):
            views = f", {self.shape[0]} views of each" if self.shape[0] > 1 else ""
            return f"{self.images:,} embeddings of {self.shape[2]} values{views}"
        return f"{self.images:,} images of {'x'.join(map(str, self.shape))}"

    @property
    def identity(self) -> str:
        """A hash of images and configuration, which identifies the run."""
        settings = json.dumps(to_dict(self.config), sort_keys=True)
        features = "" if self.features is None else json.dumps(self.features, sort_keys=True)
        return hashlib.sha256(f"{self.fingerprint} {settings}{features}".encode()).hexdigest()

    def plain(self) -> dict[str, Any]:
        """As plain data, the inverse of ``parse``."""
        return {**dataclasses.asdict(self), "config": to_dict(self.config)}

    @classmethod
    def parse(cls, data: dict[str, Any]) -> Description:
        """A description from plain data; a ValueError says what is wrong with it."""
        kinds = typing.get_type_hints(cls)
        if wrong := data.keys() ^ kinds.keys():
            raise ValueError(f"{', '.join(sorted(wrong))} is missing or unknown")
        nested = ("config", "features")
        given = {name: typed(value, kinds[name], name) for name, value in data.items() if name not in nested}
        found = cls(**given, config=overlay(Config(), data["config"]), features=data["features"])
        if (found.recipe is None) == found.config.views.stored:
            raise ValueError("its features do not fit its configuration")
        embedded = isinstance(found.recipe, EmbeddingRecipe)
        if min(found.images, *found.shape) < 1 or (found.shape[0] not in (1, 3) and not embedded):
            raise ValueError(f"there are no {found.images} images of {found.shape}")
        return found


class RunFolder:
    """A run folder by its path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.history = path / "history.jsonl"
        self.checkpoints = path / "checkpoints"
        self.result = path / "result.json"
        self.labels = path / "labels.csv"
        self.exemplars = path / "exemplars.csv"
        self.model = path / "model.safetensors"
        self.outputs = path / "outputs.safetensors"
        self.training = path / "training.safetensors"
        self.projection = path / "projection.safetensors"
        self.annotations = path / "clusters.json"
        self.duplicates = path / "duplicates.csv"
        self.quarantine = path / "quarantine.csv"
        self.report = path / "report.html"
        self.force = False
        """Whether an earlier run in this folder may be overwritten."""
        self._lock = FileLock(path / LOCK)  # reentrant within one RunFolder object

    @property
    def _files(self) -> tuple[Path, ...]:
        """The files of a run, in the order in which an earlier run is removed."""
        result = (self.result, self.labels, self.exemplars, self.model, self.outputs, self.training, self.projection)
        return (*result, self.annotations, self.duplicates, self.quarantine, self.report, self.history, self.config)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run folder."""
        run = cls(path)
        if not run.config.is_file():
            raise ValueError(f"{path} is not a run folder: it has no config.json")
        if run.checkpoints.is_symlink():
            raise ValueError(
                f"{run.checkpoints} is a link that leaves the run folder; replace it with the folder itself"
            )
        return run

    @classmethod
    def claim(cls, path: Path, force: bool) -> RunFolder:
        """A folder for a new run; nothing is changed yet. An earlier run is overwritten only with ``force``."""
        run = cls(path)
        run.force = force
        run.check_free()
        return run

    def check_free(self) -> None:
        """Refuse a folder that holds anything that must not be overwritten."""
        path = self.path
        if path.exists() and not path.is_dir():
            raise ValueError(f"--out is {path}, which is a file; give a folder")
        ours = {path / LOCK, *self._leftovers()}
        if path.is_dir() and any(entry not in ours for entry in path.iterdir()):
            if not self.config.is_file():
                raise ValueError(f"{path} is not empty and holds no run; give another folder")
            if not self.force:
                raise ValueError(f"{path} already holds a run; continue it with `cts resume {path}` or give --force")
        check_folder_target(path, "--out")

    def check_finished(self, *needed: Path) -> None:
        """Refuse a run that is not finished, or lacks one of its files."""
        if not all(file.is_file() for file in (self.result, *needed)):
            raise ValueError(f"{self.path} is not finished: continue it with `cts resume {self.path}`")

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
        """Remove temporary files of interrupted writes. The lock must be held."""
        for leftover in [*self._leftovers(), *self.checkpoints.glob(".step-*")]:
            leftover.unlink(missing_ok=True)

    def _leftovers(self) -> list[Path]:
        return [path for file in self._files for path in self.path.glob(f".{file.name}.*")]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for this process; the lock ends with the process."""
        if self.path.is_dir() and not os.access(self.path, os.W_OK | os.X_OK):  # the lock could be there already
            raise ValueError(f"cannot write to {self.path}: the folder is not writable")
        with locked(self._lock, self.path):
            yield

    def describe(self, description: Description) -> None:
        """Write config.json."""
        write_json(self.config, {"format": FORMAT, "version": VERSION, **description.plain()})

    def description(self) -> Description:
        """Read config.json."""
        data = read_json(self.config)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise ValueError(f"{self.config} does not describe a run of this program")
        if (version := data.pop("version", None)) != VERSION:
            raise ValueError(f"cannot read the run {self.path}: {wrong_version(version, VERSION)}")
        try:
            return Description.parse(data)
        except ValueError as error:
            raise ValueError(f"{self.config} is damaged: {error}") from None

    def records(self) -> list[dict[str, Any]]:
        """The history: every line that is a complete record of a later step than those before it."""
        found: list[dict[str, Any]] = []
        if self.history.is_file():
            with self.history.open("rb") as file:
                for line in file:
                    record = _record(line)
                    if record is not None and (not found or record["step"] > found[-1]["step"]):
                        found.append(record)
        return found

    def missing_before(self, step: int) -> int:
        """Number of missing records of earlier steps: none, unless the file was damaged."""
        return step - len([record for record in self.records() if record["step"] < step])

    def truncate_history(self, step: int) -> None:
        """Cut the history to the steps before ``step``: those after a checkpoint will be repeated."""
        kept = [record for record in self.records() if record["step"] < step]
        write_atomically(self.history, b"".join(_line(record) for record in kept))

    @contextmanager
    def history_file(self) -> Iterator[HistoryFile]:
        with self.history.open("ab") as file:
            yield HistoryFile(file)


class HistoryFile:
    """A history file that is being appended to."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def append(self, record: Record) -> None:
        self._file.write(_line(dataclasses.asdict(record)))
        self._file.flush()

    def flush(self) -> None:
        os.fsync(self._file.fileno())


_KINDS = {name: (int, float) if kind is float else kind for name, kind in typing.get_type_hints(Record).items()}


def _record(line: bytes) -> dict[str, Any] | None:
    """The record in a line of the history; None if the line is incomplete or damaged."""
    try:
        record = parse_json(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or not all(isinstance(record.get(name), kind) for name, kind in _KINDS.items()):
        return None
    return record if record["step"] >= 0 else None


def _line(record: dict[str, Any]) -> bytes:
    return (json.dumps(record, allow_nan=False) + "\n").encode()
