"""One picture: right pixels, upright, aspect kept; or a reason, and never another error."""

from __future__ import annotations

import errno
import os
import re
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.pictures import NEEDS_AVIF, SAVING, bomb, encoded, photo, saved, skip_reason, write

from converge_to_surprise.data import decode as decoding
from converge_to_surprise.data.decode import BadPicture, Probe, decode, probe, to_plain


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pictures")


class TestBadFiles:
    @pytest.mark.parametrize("kind", SAVING)
    def test_truncated(self, tmp_path: Path, kind: str) -> None:
        content = encoded(photo(64, 64), kind)
        path = tmp_path / f"x.{kind}"
        for keep in (5, 20, len(content) // 2, len(content) * 9 // 10):
            path.write_bytes(content[:keep])
            assert "damaged" in skip_reason(path)

    def test_empty(self, tmp_path: Path) -> None:
        (tmp_path / "x.png").touch()
        assert skip_reason(tmp_path / "x.png") == "the file is empty"

    @pytest.mark.parametrize(
        "content", [b"hello", b"\0" * 1000, b"<svg></svg>", b"%PDF-1.4", b"%!PS-Adobe-3.0 EPSF-3.0"]
    )
    def test_not_a_picture(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "x.png").write_bytes(content)
        assert skip_reason(tmp_path / "x.png").startswith("not a picture")

    @pytest.mark.parametrize("kind", ["PPM", "ICO", "TGA", "JPEG2000", "PCX"])
    def test_formats_that_are_not_on_the_list(self, tmp_path: Path, kind: str) -> None:
        Image.fromarray(photo(16, 16)).save(tmp_path / "x.png", format=kind)
        assert skip_reason(tmp_path / "x.png").startswith("JPEG 2000 files" if kind == "JPEG2000" else "not a picture")

    def test_wrong_extension(self, tmp_path: Path) -> None:
        pixels = photo(8, 8)
        (tmp_path / "x.jpg").write_bytes(encoded(pixels, "png"))
        np.testing.assert_array_equal(decode(tmp_path / "x.jpg", (3, 8, 8)).transpose(1, 2, 0), pixels)

    def test_folder(self, tmp_path: Path) -> None:
        (tmp_path / "x.png").mkdir()
        assert skip_reason(tmp_path / "x.png") == "a folder, not a picture"

    def test_missing(self, tmp_path: Path) -> None:
        assert skip_reason(tmp_path / "x.png") == "there is no such file"
        assert skip_reason(tmp_path / "x\0.png").startswith("cannot be opened")
        assert skip_reason(tmp_path / ("x" * 5000)).startswith("cannot be opened")

    def test_links(self, tmp_path: Path) -> None:
        (tmp_path / "broken.png").symlink_to("nowhere.png")
        (tmp_path / "self.png").symlink_to("self.png")
        assert skip_reason(tmp_path / "broken.png") == "a broken link"
        assert skip_reason(tmp_path / "self.png") == "a link in a circle"

    @pytest.mark.parametrize("kind", ["pipe", "device"])
    def test_what_would_never_end(self, tmp_path: Path, kind: str) -> None:
        path = tmp_path / "x.png"
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
        assert skip_reason(path) == "not a regular file (a pipe, a socket or a device)"

    def test_permission(self, ordinary: Path) -> None:
        path = ordinary / "x.png"
        assert skip_reason(path) == "may not be read (permission denied)"
        assert skip_reason(ordinary / "locked") == "a folder that may not be read (permission denied)"
        assert skip_reason(ordinary / "locked" / "y.png") == "may not be read (permission denied)"

    @pytest.fixture
    def ordinary(self) -> Iterator[Path]:
        """A place with a file and a folder that may not be read, seen by a user who is not root."""
        with TemporaryDirectory() as name:
            place = Path(name)
            place.chmod(0o755)
            write(place / "x.png", photo(8, 8)).chmod(0)
            write(place / "locked" / "y.png", photo(8, 8))
            (place / "locked").chmod(0)
            if os.geteuid() != 0:
                yield place
            else:
                os.seteuid(65534)
                try:
                    yield place
                finally:
                    os.seteuid(0)
            (place / "locked").chmod(0o700)

    # Between Pillow's warning and its error; beyond its error; and as wide as a header can say.
    @pytest.mark.parametrize("size", [(10_000, 9_000), (20_000, 20_000), (2**31 - 1, 2**31 - 1)])
    @pytest.mark.parametrize("filters", ["ignore", "error"])
    def test_decompression_bombs(self, tmp_path: Path, size: tuple[int, int], filters: Any) -> None:
        (tmp_path / "x.png").write_bytes(bomb(*size))
        with warnings.catch_warnings():
            warnings.simplefilter(filters)
            assert "the limit is 89 million" in skip_reason(tmp_path / "x.png")

    def test_the_budget_is_not_pillows(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
        (tmp_path / "x.png").write_bytes(bomb(20_000, 20_000))
        assert skip_reason(tmp_path / "x.png") == "20000x20000 pixels; the limit is 89 million"

    def test_a_file_too_long(self, tmp_path: Path) -> None:
        with (tmp_path / "x.png").open("wb") as file:
            file.truncate(2**30 + 1)  # a hole, not a gigabyte
        assert "the limit is 1,073,741,824" in skip_reason(tmp_path / "x.png")

    def test_the_settings_of_the_process_are_left_alone(self, tmp_path: Path) -> None:
        before = Image.MAX_IMAGE_PIXELS, list(warnings.filters)
        decode(write(tmp_path / "x.png", photo(8, 8)), (3, 8, 8))
        assert (Image.MAX_IMAGE_PIXELS, list(warnings.filters)) == before

    @pytest.mark.parametrize("error", [SyntaxError, OverflowError, RecursionError, ZeroDivisionError])
    def test_no_other_error_comes_through(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
    ) -> None:
        path = write(tmp_path / "x.png", photo(8, 8))

        def fail(*_: Any, **__: Any) -> None:
            raise error("two\nlines")

        monkeypatch.setattr(Image.Image, "convert", fail)
        with pytest.raises(BadPicture, match="two lines"):
            decode(path, (1, 8, 8))

    @pytest.mark.parametrize("error", [MemoryError(), OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))])
    def test_a_picture_is_not_blamed_for_want_of_memory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        path = write(tmp_path / "x.png", photo(8, 8))
        monkeypatch.setattr(Image.Image, "convert", Mock(side_effect=error))
        with pytest.raises(MemoryError):
            decode(path, (1, 8, 8))

    def test_nor_if_the_decoder_does_not_say_so(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "x.png"
        path.write_bytes(encoded(photo(8, 8), "png")[:60])
        assert "truncated or damaged" in skip_reason(path)
        monkeypatch.setattr(decoding, "SPARE", 2**60)  # more than there ever is
        with pytest.raises(MemoryError, match=re.escape(f"the picture '{path}' cannot be decoded")):
            decode(path, (1, 8, 8))


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """A valid file with bytes changed, cut out, doubled or cut off."""
    kind = draw(st.sampled_from(sorted(SAVING)))
    content = bytearray(encoded(photo(24, 17, channels=draw(st.sampled_from([1, 3]))), kind))
    for _ in range(draw(st.integers(1, 4))):
        # Headers matter most.
        at = draw(st.one_of(st.integers(0, min(200, len(content) - 1)), st.integers(0, len(content) - 1)))
        how = draw(st.sampled_from(["change", "cut", "double", "end"]))
        length = draw(st.integers(1, 8))
        if how == "change":
            content[at : at + length] = draw(st.binary(min_size=length, max_size=length))
        elif how == "cut":
            del content[at : at + length]
        elif how == "double":
            content[at:at] = content[at : at + length]
        else:
            del content[max(1, at) :]
        if len(content) < 2:
            break
    return kind, bytes(content)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=300)
@given(damaged())
def test_damage_is_decoded_or_refused(place: Path, case: tuple[str, bytes]) -> None:
    path = place / f"damaged.{case[0]}"
    path.write_bytes(case[1])
    try:
        pixels = decode(path, (3, 9, 7))
        assert pixels.shape == (3, 9, 7)
        assert pixels.dtype == np.uint8
    except BadPicture:
        pass


class TestProbe:
    def test_color(self, tmp_path: Path) -> None:
        assert probe(write(tmp_path / "x.png", photo(30, 40))) == Probe(40, 30, colored=True)
        assert probe(write(tmp_path / "x.jpg", photo(30, 40))) == Probe(40, 30, colored=True)

    @pytest.mark.parametrize("quality", [5, 30, 95])
    def test_gray_saved_as_color_is_gray(self, tmp_path: Path, quality: int) -> None:
        noisy = np.clip(
            photo(100, 100, channels=1).astype(int) + np.random.default_rng(0).normal(0, 20, (100, 100)), 0, 255
        )
        image = Image.fromarray(noisy.astype(np.uint8)).convert("RGB")
        assert not probe(saved(tmp_path / "x.jpg", image, quality=quality)).colored
        tinted = np.clip(noisy[..., None] + np.random.default_rng(1).normal(0, 8, (100, 100, 3)), 0, 255)
        image = Image.fromarray(tinted.astype(np.uint8))
        assert not probe(saved(tmp_path / "x.jpg", image, quality=quality)).colored

    def test_a_colored_corner_is_enough(self, tmp_path: Path) -> None:
        pixels = np.full((50, 50, 3), 128, np.uint8)
        pixels[:10, :10] = (200, 30, 30)
        assert probe(write(tmp_path / "x.png", pixels)).colored
        pixels[:10, :10] = (128, 128, 135)
        assert not probe(write(tmp_path / "x.png", pixels)).colored


def test_a_program_may_keep_the_screen_clean(tmp_path: Path) -> None:
    cut = tmp_path / "cut.tiff"
    cut.write_bytes(encoded(photo(64, 64), "tiff")[:-6])
    (tmp_path / "bomb.png").write_bytes(bomb(10_000, 9_000))
    for quiet in (False, True):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            if quiet:
                decoding.hide_pillow_warnings()
            skip_reason(cut)
            assert "the limit is 89 million" in skip_reason(tmp_path / "bomb.png")
        assert bool(heard) != quiet


@pytest.mark.parametrize("kind", ["png", pytest.param("avif", marks=NEEDS_AVIF)])
def test_large_pictures_are_decoded_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = write(tmp_path / f"x.{kind}", photo(60, 60))
    if kind != "avif":  # they may be larger than they claim
        monkeypatch.setattr(decoding, "LARGE", 1000)
    inside = most = 0
    guard = threading.Lock()
    convert = to_plain

    def counted(image: Image.Image) -> Image.Image:
        nonlocal inside, most
        with guard:
            inside += 1
            most = max(most, inside)
        time.sleep(0.02)
        with guard:
            inside -= 1
        return convert(image)

    monkeypatch.setattr(decoding, "to_plain", counted)
    threads = [threading.Thread(target=decode, args=(path, (3, 8, 8))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_an_open_file_is_closed_again(tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(encoded(photo(30, 30), "png")[:300])
    good = write(tmp_path / "good.png", photo(30, 30))
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    for _ in range(5):
        decode(good, (3, 8, 8))
        with pytest.raises(BadPicture):
            decode(bad, (3, 8, 8))
    after = len(os.listdir("/proc/self/fd")) if before else 0
    assert after == before
