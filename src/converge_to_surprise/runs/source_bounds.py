"""Which files belong to a source of pictures itself, and which are reached only by links."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from ..data.source import Source


@dataclass(frozen=True)
class MoveScope:
    """The folder from which a sort may move files: the source, or the folder of a table of paths."""

    base: str
    """Absolute path of that folder as the user named it."""
    linked: dict[str, str]
    """Real path of a file to which a link leads: the link."""
    _parents: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source) -> MoveScope:
        """Search the folder for links; folders behind links too, if the source reads them."""
        is_folder = os.path.isdir(source.name)
        base = os.path.abspath(source.name if is_folder else os.path.dirname(os.path.abspath(source.name)))
        return cls(base, _survey(base, follow=is_folder)[1])

    def why_not_move(self, path: str) -> str | None:
        """The reason why a file must stay where it is, or None if it may be moved."""
        if not self._holds(os.path.dirname(path)):
            return f"it lies outside of {self.base} or in a linked folder"
        if os.path.islink(path):
            return "it is a link; only files are moved"
        if (link := self.linked.get(os.path.realpath(path))) is not None:
            return f"the link {link} leads to it and would break"
        return None

    def _holds(self, folder: str) -> bool:
        """Whether a folder is below the base and no part of its path is a link."""
        if folder not in self._parents:
            relative = os.path.relpath(folder, self.base)
            inside = relative != os.pardir and not relative.startswith(os.pardir + os.sep)
            straight = os.path.normpath(os.path.join(os.path.realpath(self.base), relative))
            self._parents[folder] = inside and os.path.realpath(folder) == straight
        return self._parents[folder]


def check_apart(source: Source, into: Path) -> None:
    """Refuse a place for sorted pictures that the source reads, by its own folders or by links.

    The source cannot lie within that place, because it must be new or empty.
    """
    if source.listing is None or not os.path.isdir(source.name):
        return
    folders, _ = _survey(os.path.abspath(source.name), follow=True)
    target = Path(os.path.realpath(into))
    for place in (target, *target.parents):
        with contextlib.suppress(FileNotFoundError):  # not there yet
            status = place.stat()
            if (status.st_dev, status.st_ino) in folders:
                raise ValueError(
                    f"--into is {into}, which lies within {source.name}: sorted pictures would be read again; "
                    "give a folder outside of it"
                )


def _survey(base: str, follow: bool) -> tuple[set[tuple[int, int]], dict[str, str]]:
    """Device and inode of every folder at and below a folder, and the real paths to which links in them lead."""
    folders: set[tuple[int, int]] = set()
    linked: dict[str, str] = {}
    waiting = [base]
    while waiting:
        folder = waiting.pop()
        try:
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in folders:
                continue
            folders.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        linked.setdefault(os.path.realpath(entry.path), entry.path)
                    if entry.is_dir(follow_symlinks=follow):
                        waiting.append(entry.path)
        except OSError:
            continue  # what cannot be read cannot be moved either
    return folders, linked
