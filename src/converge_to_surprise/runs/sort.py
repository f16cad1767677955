"""``cts sort``: a folder for every cluster, with its pictures: copies, links, or the files themselves.

First a plan gives every picture its place, then the plan is written to the journal, then it is carried out.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from ..config.storage import csv_bytes, errors_name, write_atomically
from ..data.cache import Progress
from ..data.skipped import SkippedFile
from ..data.source import Source, SourceChunk
from ..model.cluster_model import Model
from ..model.hierarchy import Path as TreePath
from ..model.hierarchy import path_text
from ..model.limits import Limits
from . import sort_journal as journal
from .labels import shown, write_quarantine
from .place_file import GONE, PART, How, Skip, State, place, write_png
from .sort_journal import Entry
from .source_bounds import MoveScope

TABLE = "sorted.csv"
"""Which file went where."""
SKIPPED = "quarantine.csv"
"""Which files were not sorted, and why."""
KEPT = "kept.csv"
"""Which files could not be taken back, and why."""


@dataclass(frozen=True)
class SortOptions:
    """What is done with the pictures, and where."""

    into: Path
    """New folder for the clusters' folders."""
    how: How = "copy"
    limits: Limits = field(default_factory=Limits)
    """Beyond them a picture goes into the folder "noise"."""
    threads: int = 0
    """Pictures decoded at the same time; 0: as many as the machine offers."""


class Placed(NamedTuple):
    """An image and its place."""

    name: str | int
    """What the user calls it: its path within the source, or its number in an array."""
    entry: Entry
    cluster: int
    confidence: float
    novelty: float


@dataclass(frozen=True)
class Plan:
    """Everything that a sort is going to do."""

    seen: int
    """Images of the source: those that are placed and those that are skipped."""
    placed: list[Placed]
    skipped: list[SkippedFile]

    def sizes(self) -> dict[str, int]:
        """Number of images per folder, by its path; the folder of a cluster that is split holds folders only."""
        counts = Counter(item.entry.to.rsplit("/", 1)[0] for item in self.placed)
        return {folder: counts[folder] for folder in sorted(counts)}


@contextmanager
def claimed(into: Path) -> Iterator[None]:
    """Make and lock the folder; if no sort is begun in it, it is removed again at the end."""
    journal.check_free(into)
    new = not into.exists()
    into.mkdir(parents=True, exist_ok=True)
    with journal.lock(into):
        journal.check_free(into)  # another sort may have begun meanwhile
        try:
            yield
        finally:
            if not (into / journal.JOURNAL).exists():
                (into / journal.LOCK).unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    if new:
                        into.rmdir()


def make_plan(model: Model, source: Source, options: SortOptions, progress: Progress) -> Plan:
    """Find the place of every image. Changes nothing on disk."""
    if source.listing is None and options.how != "copy":
        raise ValueError(
            f"{source.name} holds images that are not files of their own: they can only be copied; "
            f"leave out --how {options.how}"
        )
    options.limits.check(model)
    seen = len(source)
    source, skipped = _eligible(source, options.how)
    folders: dict[tuple[int, ...], str] = {}
    names = _Names()
    now = time.time_ns()
    placed: list[Placed] = []
    for chunk in source.chunks(range(len(source)), options.threads):
        row = 0
        for found in model.predict(chunk.images):
            numbers = options.limits.clusters(found).tolist()
            leaves = found.leaf.tolist()
            measures = zip(found.confidence.tolist(), found.novelty.tolist(), strict=True)
            for cluster, leaf, (confidence, novelty) in zip(numbers, leaves, measures, strict=True):
                path = model.paths[leaf] if cluster >= 0 else (-1,)
                folder = folders.setdefault(path, folder_path(model, path))
                try:
                    origin, state = _origin(chunk, row, options.how, now)
                    name = f"{chunk.names[row]:07d}.png" if origin is None else os.path.basename(origin)
                    entry = Entry(origin, f"{folder}/{names.free(folder, name)}", state)
                    placed.append(Placed(chunk.names[row], entry, cluster, confidence, novelty))
                except OSError:
                    skipped.append(SkippedFile(str(chunk.names[row]), GONE, "gone"))
                row += 1
        skipped += chunk.quarantined
        progress(chunk.stop, len(source))
    return Plan(seen, placed, skipped)


def carry_out(plan: Plan, source: Source, options: SortOptions, progress: Progress) -> Plan:
    """Do what is planned, in a claimed folder; returns what was done of it. Nothing that exists is overwritten."""
    into, done, skipped = options.into, list[Placed](), list(plan.skipped)
    try:
        with journal.Writer.begin(into, options.how, [item.entry for item in plan.placed]) as log:
            for folder in plan.sizes():
                (into / folder).mkdir(parents=True)
            for number, item in enumerate(plan.placed):
                try:
                    size = _place(item, source, options)
                    done.append(item)
                    if size is not None:
                        log.note("size", number, size)
                except Skip as reason:
                    log.note("skipped", number)
                    skipped.append(SkippedFile(str(item.name), str(reason), "not sorted"))
                progress(number + 1, len(plan.placed))
            _write_tables(into, done, skipped)
            log.finish()
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise ValueError(
            f"the sort was interrupted: {error.strerror or error}{where}; `cts sort --undo {into}` puts everything back"
        ) from None
    return Plan(plan.seen, done, skipped)


def _place(item: Placed, source: Source, options: SortOptions) -> int | None:
    """Bring one image to its place; returns the bytes of a picture that had to be written."""
    entry, target, part = item.entry, options.into / item.entry.to, options.into / PART
    with errors_name(target):
        if entry.origin is not None:
            place(entry.origin, target, options.how, entry.state, part)
            return None
        assert source.array is not None
        return write_png(source.array[int(item.name)].numpy(), target, part, entry.state.mtime_ns)


def folder_name(model: Model, cluster: int) -> str:
    """The folder of a cluster: its number, and its name if a person gave it one."""
    if cluster < 0:
        return "noise"
    names = model.cluster_names
    number = f"{cluster:0{len(str(max(1, len(names) - 1)))}d}"
    if model.annotations is None or names[cluster] == str(cluster):
        return number
    return _named(number, names[cluster])


def folder_path(model: Model, path: TreePath) -> str:
    """The folder of a leaf: folders of sub-clusters lie within that of their cluster."""
    parts = [folder_name(model, path[0])]
    for end in range(2, len(path) + 1):
        name = model.node_names.get(path_text(path[:end]))
        parts.append(str(path[end - 1]) if name is None else _named(str(path[end - 1]), name))
    return "/".join(parts)


def _named(number: str, name: str) -> str:
    """A number with a name of which characters that a file system may refuse are replaced."""
    plain = re.sub(r"[^\w .()+-]+", "_", name).strip(" ._")[:60]
    return f"{number} {plain}" if plain else number


def _eligible(source: Source, how: How) -> tuple[Source, list[SkippedFile]]:
    """The images that may be sorted: every file once, and to be moved only files within the source itself."""
    listing = source.listing
    if listing is None:
        return source, []
    scope = MoveScope.of(source) if how == "move" else None
    kept: list[int] = []
    skipped: list[SkippedFile] = []
    known: set[str] = set()
    for position, path in enumerate(listing.paths):
        reason = scope.why_not_move(path) if scope is not None else None
        if path in known:
            reason = "it is listed more than once"
        known.add(path)
        if reason is None:
            kept.append(position)
        else:
            skipped.append(SkippedFile(listing.names[position], reason, "outside of the source"))
    paths, names = ([column[k] for k in kept] for column in (listing.paths, listing.names))
    return replace(source, listing=replace(listing, paths=paths, names=names, classes=None)), skipped


def _origin(chunk: SourceChunk, row: int, how: How, now: int) -> tuple[str | None, State]:
    """The file of an image, if it has one, and its state."""
    if chunk.paths is None:
        return None, State(-1, now, 0)
    return chunk.paths[row], State.of(chunk.paths[row], follow=how != "move")


class _Names:
    """Unique names within folders: pictures from different folders may have the same name."""

    def __init__(self) -> None:
        self._taken: Counter[tuple[str, str]] = Counter()

    def free(self, folder: str, name: str) -> str:
        """The name, or the name with a number. Case is ignored, as some file systems do."""
        stem, ending = os.path.splitext(name)
        free, key = name, (folder, name.casefold())
        while (folder, free.casefold()) in self._taken:
            self._taken[key] += 1
            free = f"{stem}~{self._taken[key]}{ending}"
        self._taken[folder, free.casefold()] += 1
        return free


def _write_tables(into: Path, done: Sequence[Placed], skipped: Sequence[SkippedFile]) -> None:
    rows = (
        [
            *(item.name if item.entry.origin is None else item.entry.origin, item.entry.to, item.cluster),
            *(shown(item.confidence), shown(item.novelty)),
        ]
        for item in done
    )
    write_atomically(into / TABLE, csv_bytes([("from", "to", "cluster", "confidence", "novelty"), *rows]))
    if skipped:
        write_quarantine(into / SKIPPED, skipped)
