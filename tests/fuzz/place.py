"""Where files are spoilt, and what using them may come to."""

from __future__ import annotations

import contextlib
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from faults.harness import SETTINGS, source_of
from hypothesis import strategies as st

from converge_to_surprise import cli
from converge_to_surprise.runs import checkpoint
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.search.snapshot import Snapshot

Use = Callable[[], object]
"""Uses a file; it may raise ValueError and nothing else."""
Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class Place:
    """A folder to spoil files in, with a finished run once somebody asks for it."""

    folder: Path

    @cached_property
    def finished(self) -> RunFolder:
        """A finished run with a merge tree and an optimizer."""
        home = self.folder / "finished"
        home.mkdir()
        words = ["fit", str(source_of(home)), "--out", str(home / "run"), *SETTINGS["relaxed"].split()]
        assert cli.main([*words, "--checkpoint-seconds", "60"]) == 0
        return RunFolder(home / "run")

    @cached_property
    def newest(self) -> Snapshot:
        """The last checkpoint of the run."""
        found, _ = checkpoint.load_newest(self.finished.checkpoints, self.finished.description().identity)
        assert found is not None
        return found

    def copy(self) -> RunFolder:
        """The run anew."""
        shutil.rmtree(self.folder / "copy", ignore_errors=True)
        return RunFolder(Path(shutil.copytree(self.finished.path, self.folder / "copy")))

    def file(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path


def tolerated(use: Use) -> bool:
    """Whether it works; or else it is refused, and nothing else may come out."""
    try:
        use()
    except ValueError:
        return False
    return True


def command(*words: object) -> bool:
    """A command that works, or else is refused."""
    code = cli.main([str(word) for word in words])
    assert code in (0, 2), f"exit code {code} of {words}"
    if code:
        raise ValueError(f"{words} was refused")
    return True


@contextlib.contextmanager
def modest(most: int = 64 << 20) -> Iterator[None]:
    """What happens inside takes no more memory than this."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def refused(use: Use, match: str | None = None) -> None:
    """It is refused, and takes no more memory than it may."""
    with modest(), pytest.raises(ValueError, match=match):
        use()
