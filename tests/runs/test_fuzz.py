"""A little of what ``python -m tests.fuzz`` does at length, and whether its guard would notice."""

from __future__ import annotations

import os
import pickle
import random
import struct
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzz import guard
from fuzz.guard import Hang, Misdeed, guarded
from fuzz.place import Place, tolerated
from fuzz.spoil import spoil_bytes, spoil_png
from fuzz.targets import COSTLY, TARGETS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.pictures import encoded, photo

quick = settings(max_examples=30, suppress_health_check=list(HealthCheck))
costly = settings(quick, max_examples=4)
MOST = 256 << 20
"""Bytes that Python and numpy may take for an example."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TARGETS)
def test_spoilt_files_are_used_or_refused(
    place: Place, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CTS_CACHE", str(place.folder / "cache"))

    @(costly if name in COSTLY else quick)
    @given(st.data())
    def property_(data: st.DataObject) -> None:
        use = TARGETS[name](place, data.draw)
        tracemalloc.start()
        try:
            with guarded(place.folder):
                tolerated(use)
            assert tracemalloc.get_traced_memory()[1] < MOST
        finally:
            tracemalloc.stop()
        assert "\x1b[2J" not in "".join(capsys.readouterr())  # a file may not clear the screen

    property_()


def _sleep(folder: Path) -> None:
    time.sleep(5)


MISDEEDS: dict[str, tuple[Callable[[Path], object], type[BaseException]]] = {
    "a program": (lambda folder: subprocess.run(["true"], check=True), Misdeed),
    "a shell": (lambda folder: os.system("true"), Misdeed),
    "pickle": (lambda folder: pickle.loads(b"cos\ngetcwd\n."), Misdeed),
    "writing": (lambda folder: (folder.parent / "x").write_text("x"), Misdeed),
    "writing through ..": (lambda folder: (folder / ".." / "x").write_text("x"), Misdeed),
    "writing through a linked folder": (lambda folder: (folder / "link" / "x").write_text("x"), Misdeed),
    "removing": (lambda folder: (folder.parent / "x").unlink(), Misdeed),
    "moving out": (lambda folder: (folder / "a").rename(folder.parent / "a"), Misdeed),
    "a hang": (_sleep, Hang),
}


@pytest.mark.parametrize("name", MISDEEDS)
def test_the_guard_sees_misdeeds(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "link").symlink_to("..")
    (folder / "a").touch()
    monkeypatch.setattr(guard, "PATIENCE", 1)
    deed, complaint = MISDEEDS[name]
    with pytest.raises(complaint), guarded(folder):
        deed(folder)
    (folder / "b").write_text("what lies inside may be written")
    with guarded(folder):
        (folder / "a").rename(folder / "b")
        (folder / "b").write_text((folder / "b").read_text())


def test_spoilt_png_gets_past_the_checksums() -> None:
    """Otherwise nothing behind them would be tried."""
    content = encoded(photo(8, 8), "png")
    sizes = set()
    for number in range(300):
        spoilt = spoil_png(content, random.Random(number))
        assert spoilt[:8] == content[:8]
        if spoilt[12:16] == b"IHDR":
            sizes.add(struct.unpack(">I", spoilt[16:20])[0])
    assert len(sizes) > 10
    assert len({spoil_bytes(content, random.Random(number)) for number in range(300)}) > 200
