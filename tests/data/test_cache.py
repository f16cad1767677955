"""Decoded pictures on disk: reused as long as nothing changed, whole or not there."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image
from support.pictures import photo, write

from converge_to_surprise.config.images import ImageOptions
from converge_to_surprise.data import pictures
from converge_to_surprise.data import working_size as reading
from converge_to_surprise.data.cache import Decoded, cache_folder, cached
from converge_to_surprise.data.decode import decode, probe
from converge_to_surprise.data.listing import Listing, list_folder

COUNT = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pictures of one size, and two bad files."""
    for number in range(COUNT):
        write(tmp_path / "photos" / f"{number:02}.png", photo(10, 14, number))
    (tmp_path / "photos" / "05-empty.png").touch()
    (tmp_path / "photos" / "zz.png").write_bytes(b"no picture")
    return tmp_path / "photos"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CTS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pictures that are opened, to decode or to probe them."""
    paths: list[str] = []

    def noted(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(path: str, *rest: Any) -> Any:
            paths.append(path)
            return real(path, *rest)

        return wrapper

    monkeypatch.setattr(pictures, "decode", noted(decode))
    monkeypatch.setattr(reading, "probe", noted(probe))
    return paths


def check(found: Decoded, listing: Listing) -> None:
    """All good pictures, in order, and the two bad files."""
    assert found.pixels.shape == (COUNT, 3, 10, 14)
    for pixels, position in zip(found.pixels, found.positions, strict=True):
        np.testing.assert_array_equal(pixels, decode(listing.paths[position], (3, 10, 14)))
    assert [bad.name for bad in found.quarantine] == ["05-empty.png", "zz.png"]
    assert found.quarantine[0].reason == "the file is empty"


def entries(place: Path) -> list[str]:
    return sorted(entry.name for entry in place.iterdir())


class TestReuse:
    def test_a_second_time_nothing_is_decoded(self, folder: Path, place: Path, opened: list[str]) -> None:
        listing = list_folder(folder)
        heard: list[tuple[int, int]] = []
        check(cached(listing, ImageOptions(), progress=lambda done, total: heard.append((done, total))), listing)
        assert heard[-1] == (COUNT + 2, COUNT + 2)
        assert len(opened) == 2 * (COUNT + 2)
        opened.clear()
        heard.clear()
        again = cached(list_folder(folder), ImageOptions(), progress=lambda done, total: heard.append((done, total)))
        check(again, listing)
        assert opened == []
        assert heard == []
        assert isinstance(again.pixels, np.memmap)

    @pytest.mark.parametrize("change", ["touch", "grow", "add", "remove", "rename", "mode", "size", "color", "shape"])
    def test_every_change_counts(self, folder: Path, place: Path, opened: list[str], change: str) -> None:
        cached(list_folder(folder), ImageOptions())
        opened.clear()
        wish, shape = ImageOptions(), None
        if change == "touch":
            os.utime(folder / "03.png", ns=(1, 1))
        elif change == "grow":
            status = (folder / "zz.png").stat()
            (folder / "zz.png").write_bytes(b"no picture either")
            os.utime(folder / "zz.png", ns=(status.st_atime_ns, status.st_mtime_ns))
        elif change == "add":
            write(folder / "new.png", photo(10, 14, 99))
        elif change == "remove":
            (folder / "03.png").unlink()
        elif change == "rename":
            (folder / "03.png").rename(folder / "03b.png")
        elif change == "mode":
            (folder / "03.png").chmod(0)
        elif change == "size":
            wish = ImageOptions(image_size=9)
        elif change == "color":
            wish = ImageOptions(color="gray")
        else:
            shape = (3, 6, 6)
        found = cached(list_folder(folder), wish, shape)
        assert opened
        expected = {"size": (3, 6, 9), "color": (1, 10, 14), "shape": (3, 6, 6)}.get(change, (3, 10, 14))
        assert found.pixels.shape[1:] == expected

    @pytest.mark.parametrize("wish", [ImageOptions(), ImageOptions(image_size=14), ImageOptions(color="rgb")])
    def test_the_shape_they_were_brought_to(
        self, folder: Path, place: Path, opened: list[str], wish: ImageOptions
    ) -> None:
        """A run that is taken up again asks for the shape that its first start had found."""
        listing = list_folder(folder)
        shape = cached(listing, wish).pixels.shape[1:]
        opened.clear()
        check(cached(listing, ImageOptions(), shape), listing)
        assert opened == []
        assert len(entries(place)) == 1
        os.utime(folder / "03.png", ns=(1, 1))
        cached(list_folder(folder), ImageOptions(), shape)
        assert opened

    def test_a_damaged_set_of_that_shape_is_not_taken(self, folder: Path, place: Path) -> None:
        listing = list_folder(folder)
        cached(listing, ImageOptions())
        (name,) = entries(place)
        (place / name / "about.json").write_text("{}")
        check(cached(listing, ImageOptions(), (3, 10, 14)), listing)
        assert len(entries(place)) == 2

    def test_others_may_not_look(self, folder: Path, place: Path) -> None:
        cached(list_folder(folder), ImageOptions())
        assert place.stat().st_mode & 0o777 == 0o700
        assert (place / entries(place)[0]).stat().st_mode & 0o777 == 0o700

    def test_threads_and_labels_do_not_count(self, folder: Path, place: Path, opened: list[str]) -> None:
        cached(list_folder(folder), ImageOptions(threads=1))
        opened.clear()
        cached(list_folder(folder), ImageOptions(threads=3))
        assert opened == []

    def test_sets_from_before_a_change_are_dropped_and_others_kept(self, folder: Path, place: Path) -> None:
        cached(list_folder(folder), ImageOptions())
        cached(list_folder(folder), ImageOptions(color="gray"))
        assert len(entries(place)) == 2
        before = set(entries(place))
        os.utime(folder / "03.png", ns=(1, 1))
        cached(list_folder(folder), ImageOptions())
        after = set(entries(place))
        assert len(after) == 2
        assert len(after & before) == 1

    def test_the_mapped_pictures_are_not_the_file(self, folder: Path, place: Path) -> None:
        listing = list_folder(folder)
        found = cached(listing, ImageOptions())
        found.pixels[:] = 0
        check(cached(listing, ImageOptions()), listing)


class TestDamage:
    @pytest.mark.parametrize("file", ["pixels.npy", "positions.npy", "about.json"])
    @pytest.mark.parametrize("damage", ["truncated", "longer", "empty", "missing", "garbage"])
    def test_is_noticed_and_mended(self, folder: Path, place: Path, opened: list[str], file: str, damage: str) -> None:
        listing = list_folder(folder)
        cached(listing, ImageOptions())
        opened.clear()
        (name,) = entries(place)
        path = place / name / file
        content = path.read_bytes()
        if damage == "missing":
            path.unlink()
        else:
            path.write_bytes(
                {"truncated": content[:-9], "longer": content + b"}]x", "empty": b"", "garbage": b"\xfe" * 50}[damage]
            )
        check(cached(listing, ImageOptions()), listing)
        # numpy reads an array from the front, so that a few bytes behind it do no harm.
        assert bool(opened) == ((file, damage) != ("positions.npy", "longer"))
        assert entries(place) == [name]

    @pytest.mark.parametrize("about", [[], {}, {"shape": 3}, None, {"files": 14, "shape": [12, 3, 10, 14]}])
    def test_a_description_of_another_form(self, folder: Path, place: Path, about: Any) -> None:
        listing = list_folder(folder)
        cached(listing, ImageOptions())
        (name,) = entries(place)
        (place / name / "about.json").write_text(json.dumps(about))
        check(cached(listing, ImageOptions()), listing)

    def test_a_set_that_is_a_file(self, folder: Path, place: Path) -> None:
        listing = list_folder(folder)
        cached(listing, ImageOptions())
        (name,) = entries(place)
        shutil.rmtree(place / name)
        (place / name).write_text("in the way")
        check(cached(listing, ImageOptions()), listing)


BUILD = """
import sys, time
from converge_to_surprise.data.cache import cached
from converge_to_surprise.data.listing import list_folder
from converge_to_surprise.config.images import ImageOptions

def progress(done, total):
    print(done, flush=True)
    time.sleep(float(sys.argv[2]))

found = cached(list_folder(sys.argv[1]), ImageOptions(), progress=progress)
print(found.pixels.shape, int(found.pixels.astype(int).sum()), flush=True)
"""


def builder(folder: Path, wait: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILD, str(folder), str(wait)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


class TestBuilders:
    @pytest.mark.subprocess
    def test_a_killed_one_leaves_nothing_that_counts(self, folder: Path, place: Path, opened: list[str]) -> None:
        process = builder(folder, 60)
        assert process.stdout is not None
        assert process.stdout.readline() == f"{COUNT + 2}\n"  # all is decoded, but not yet whole
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert [name for name in entries(place) if name.startswith("building-")]
        listing = list_folder(folder)
        check(cached(listing, ImageOptions()), listing)
        assert opened  # nothing of the other was used
        assert len(entries(place)) == 1
        assert not entries(place)[0].startswith("building-")

    def test_the_lock_of_a_killed_one_goes_too(self, folder: Path, place: Path, opened: list[str]) -> None:
        """Killed before it made its folder, or after it gave the folder its name: only the lock is there."""
        listing = list_folder(folder)
        cached(listing, ImageOptions())
        (place / "building-0123456789abcdef.lock").touch()
        opened.clear()
        cached(listing, ImageOptions())
        assert opened == []
        assert [name for name in entries(place) if name.startswith("building-")] == []

    def test_a_lock_that_is_swept_away_is_made_again(
        self, folder: Path, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        acquire, swept = FileLock.acquire, list[str]()

        def sweeping(lock: Any, *rest: Any, **options: Any) -> Any:
            held = acquire(lock, *rest, **options)
            if not swept:
                swept.append(lock.lock_file)
                os.unlink(lock.lock_file)
            return held

        def look(done: int, total: int) -> None:
            assert [name for name in entries(place) if name == Path(swept[0]).name]

        monkeypatch.setattr(FileLock, "acquire", sweeping)
        listing = list_folder(folder)
        check(cached(listing, ImageOptions(), progress=look), listing)
        assert len(entries(place)) == 1

    def test_want_of_memory_puts_no_picture_aside(
        self, folder: Path, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A set without them would be taken for whole from then on."""
        listing = list_folder(folder)
        shape = (3, 10, 14)
        with monkeypatch.context() as starved:
            starved.setattr(Image.Image, "load", Mock(side_effect=MemoryError))
            with pytest.raises(MemoryError):
                cached(listing, ImageOptions(), shape)
        assert entries(place) == []
        check(cached(listing, ImageOptions(), shape), listing)

    @pytest.mark.subprocess
    def test_one_that_is_at_work_is_left_alone(self, folder: Path, place: Path) -> None:
        process = builder(folder, 3)
        assert process.stdout is not None
        process.stdout.readline()
        listing = list_folder(folder)
        check(cached(listing, ImageOptions()), listing)
        assert [name for name in entries(place) if name.startswith("building-")]
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert output.startswith(f"({COUNT}, 3, 10, 14)")
        assert len(entries(place)) == 1

    def test_many_at_once(self, folder: Path, place: Path) -> None:
        listing = list_folder(folder)
        found: list[Decoded] = []
        threads = [
            threading.Thread(target=lambda: found.append(cached(listing, ImageOptions(threads=1)))) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 6
        for each in found:
            check(each, listing)
        assert len(entries(place)) == 1

    def test_an_interrupted_one_cleans_up(self, folder: Path, place: Path) -> None:
        def interrupt(done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            cached(list_folder(folder), ImageOptions(), progress=interrupt)
        assert entries(place) == []


class Usage(NamedTuple):
    total: int
    used: int
    free: int


class TestPlace:
    def test_variables(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.delenv("CTS_CACHE")
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        assert cache_folder() == tmp_path / "home" / ".cache" / "converge-to-surprise"
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert cache_folder() == tmp_path / "xdg" / "converge-to-surprise"
        monkeypatch.setenv("CTS_CACHE", str(tmp_path / "own"))
        assert cache_folder() == tmp_path / "own"

    def test_a_place_that_cannot_be(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("CTS_CACHE", str(tmp_path / "file" / "below"))
        with pytest.raises(ValueError, match=r"cannot be kept in the cache folder .*file.*; set CTS_CACHE"):
            cache_folder()

    @pytest.mark.skipif(not Path("/proc/1").is_dir(), reason="needs a folder in which not even root may write")
    def test_a_place_that_may_not_be_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CTS_CACHE", "/proc/1")
        with pytest.raises(ValueError, match="cannot be kept in the cache folder"):
            cache_folder()

    def test_too_little_room_is_told_before(
        self, folder: Path, place: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9 - 3000, 3000))
        with pytest.raises(
            ValueError, match=r"need 0\.0 MB in .*cache, which has 0\.0 MB left; make room or set CTS_C"
        ):
            cached(list_folder(folder), ImageOptions())
        assert entries(place) == []

    @pytest.mark.parametrize(("code", "words"), [(errno.ENOSPC, "make room"), (errno.EIO, "cannot be kept in")])
    def test_a_disk_that_fails_on_the_way(
        self, folder: Path, place: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
    ) -> None:
        def fail(*_: Any) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(ValueError, match=words) as refused:
            cached(list_folder(folder), ImageOptions())
        assert str(place) in str(refused.value)
        assert entries(place) == []

    @pytest.mark.subprocess
    def test_a_file_larger_than_allowed(self, folder: Path, place: Path) -> None:
        """A real refusal of the system, in the middle of writing."""
        script = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n{BUILD}"
        done = subprocess.run([sys.executable, "-c", script, str(folder), "0"], capture_output=True, text=True)
        assert f"ValueError: decoded pictures cannot be kept in {place}" in done.stderr
        assert entries(place) == []
