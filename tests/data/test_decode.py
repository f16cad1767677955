"""One picture: right pixels, upright, aspect kept; or a reason, and never another error."""

from __future__ import annotations

import errno
import itertools
import os
import re
import struct
import subprocess
import sys
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
from hypothesis.extra import numpy as hnp
from PIL import Image
from support.pictures import HEIC_HEAD, NEEDS_AVIF, NEEDS_HEIC, SAVING, Pixels, bomb, encoded, photo, write

from converge_to_surprise.data import decode as decoding
from converge_to_surprise.data import formats
from converge_to_surprise.data.color_modes import to_plain
from converge_to_surprise.data.decode import BadPicture, Probe, decode, probe
from converge_to_surprise.data.formats import UNREAD, heif_version

LOSSLESS = ["bmp", "png", "tiff", "webp"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pictures")


def reason(path: Path) -> str:
    """Why a file is skipped; decoding and probing must agree."""
    with pytest.raises(BadPicture) as bad:
        decode(path, (3, 8, 8))
    with pytest.raises(BadPicture) as again:
        probe(path)
    assert (str(bad.value), bad.value.kind) == (str(again.value), again.value.kind)
    assert "\n" not in str(bad.value)
    return str(bad.value)


def saved(path: Path, image: Image.Image, **options: Any) -> Path:
    image.save(path, **options)
    return path


class TestBadFiles:
    @pytest.mark.parametrize("kind", SAVING)
    def test_truncated(self, tmp_path: Path, kind: str) -> None:
        content = encoded(photo(64, 64), kind)
        path = tmp_path / f"x.{kind}"
        for keep in (5, 20, len(content) // 2, len(content) * 9 // 10):
            path.write_bytes(content[:keep])
            assert "damaged" in reason(path)

    def test_empty(self, tmp_path: Path) -> None:
        (tmp_path / "x.png").touch()
        assert reason(tmp_path / "x.png") == "the file is empty"

    @pytest.mark.parametrize(
        "content", [b"hello", b"\0" * 1000, b"<svg></svg>", b"%PDF-1.4", b"%!PS-Adobe-3.0 EPSF-3.0"]
    )
    def test_not_a_picture(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "x.png").write_bytes(content)
        assert reason(tmp_path / "x.png").startswith("not a picture")

    @pytest.mark.parametrize("kind", ["PPM", "ICO", "TGA", "JPEG2000", "PCX"])
    def test_formats_that_are_not_on_the_list(self, tmp_path: Path, kind: str) -> None:
        Image.fromarray(photo(16, 16)).save(tmp_path / "x.png", format=kind)
        assert reason(tmp_path / "x.png").startswith("JPEG 2000 files" if kind == "JPEG2000" else "not a picture")

    def test_wrong_extension(self, tmp_path: Path) -> None:
        pixels = photo(8, 8)
        (tmp_path / "x.jpg").write_bytes(encoded(pixels, "png"))
        np.testing.assert_array_equal(decode(tmp_path / "x.jpg", (3, 8, 8)).transpose(1, 2, 0), pixels)

    def test_folder(self, tmp_path: Path) -> None:
        (tmp_path / "x.png").mkdir()
        assert reason(tmp_path / "x.png") == "a folder, not a picture"

    def test_missing(self, tmp_path: Path) -> None:
        assert reason(tmp_path / "x.png") == "there is no such file"
        assert reason(tmp_path / "x\0.png").startswith("cannot be opened")
        assert reason(tmp_path / ("x" * 5000)).startswith("cannot be opened")

    def test_links(self, tmp_path: Path) -> None:
        (tmp_path / "broken.png").symlink_to("nowhere.png")
        (tmp_path / "self.png").symlink_to("self.png")
        assert reason(tmp_path / "broken.png") == "a broken link"
        assert reason(tmp_path / "self.png") == "a link in a circle"

    @pytest.mark.parametrize("kind", ["pipe", "device"])
    def test_what_would_never_end(self, tmp_path: Path, kind: str) -> None:
        path = tmp_path / "x.png"
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
        assert reason(path) == "not a regular file (a pipe, a socket or a device)"

    def test_permission(self, ordinary: Path) -> None:
        path = ordinary / "x.png"
        assert reason(path) == "may not be read (permission denied)"
        assert reason(ordinary / "locked") == "a folder that may not be read (permission denied)"
        assert reason(ordinary / "locked" / "y.png") == "may not be read (permission denied)"

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
            began = time.monotonic()
            assert "the limit is 89 million" in reason(tmp_path / "x.png")
            assert time.monotonic() - began < 5

    def test_the_budget_is_not_pillows(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
        (tmp_path / "x.png").write_bytes(bomb(20_000, 20_000))
        assert reason(tmp_path / "x.png") == "20000x20000 pixels; the limit is 89 million"

    def test_a_file_too_long(self, tmp_path: Path) -> None:
        with (tmp_path / "x.png").open("wb") as file:
            file.truncate(2**30 + 1)  # a hole, not a gigabyte
        assert "the limit is 1,073,741,824" in reason(tmp_path / "x.png")

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
        assert "truncated or damaged" in reason(path)
        monkeypatch.setattr(decoding, "SPARE", 2**60)  # more than there ever is
        with pytest.raises(MemoryError, match=re.escape(f"the picture '{path}' cannot be decoded")):
            decode(path, (1, 8, 8))


@pytest.fixture
def without_heif(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if pillow-heif was not installed."""
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    heif_version.cache_clear()
    yield
    monkeypatch.undo()
    heif_version.cache_clear()


def kind_of(path: Path) -> str:
    with pytest.raises(BadPicture) as bad:
        decode(path, (3, 8, 8))
    return bad.value.kind


class TestFormatsThatAreNotRead:
    @pytest.mark.parametrize("ending", sorted(UNREAD))
    def test_the_reason_follows_the_name(self, tmp_path: Path, ending: str) -> None:
        path = tmp_path / f"x{ending.upper()}"
        path.write_bytes(b"whatever there is in such a file")
        assert reason(path) == UNREAD[ending].remedy
        assert re.search("export it as JPEG|convert them to (PNG|JPEG)", reason(path))
        assert kind_of(path) == UNREAD[ending].label

    def test_or_the_content(self, tmp_path: Path) -> None:
        for content, kind in (
            (b"8BPS\0\1", "Photoshop"),
            (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
            (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
            (b"II*\0\x10\0\0\0CR\2\0", "camera raw"),
            (b"\0\0\0\x18ftypcrx \0\0\0\1crx isom", "camera raw"),
        ):
            (tmp_path / "x.jpg").write_bytes(content)
            assert kind_of(tmp_path / "x.jpg") == kind

    def test_a_camera_raw_is_not_read_as_its_preview(self, tmp_path: Path) -> None:
        path = tmp_path / "x.nef"
        path.write_bytes(encoded(photo(16, 16), "tiff"))
        assert reason(path) == "camera raw; export it as JPEG"

    @pytest.mark.parametrize("name", ["x.heic", "x.nef", "x.svg", "x", "x.unknown"])
    def test_a_wrong_name_does_not_matter(self, tmp_path: Path, name: str) -> None:
        pixels = photo(8, 8)
        (tmp_path / name).write_bytes(encoded(pixels, "png"))
        np.testing.assert_array_equal(decode(tmp_path / name, (3, 8, 8)).transpose(1, 2, 0), pixels)

    @pytest.mark.usefixtures("without_heif")
    @pytest.mark.parametrize("name", ["x.heic", "x.jpg", "x"])
    def test_heic_without_its_decoder(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(HEIC_HEAD)
        assert reason(tmp_path / name) == "HEIC pictures need pillow-heif: pip install 'converge-to-surprise[photos]'"
        assert kind_of(tmp_path / name) == "HEIC (needs pillow-heif)"

    @pytest.mark.usefixtures("without_heif")
    def test_an_old_decoder_that_trusts_sizes_is_none(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for version in ("0.22.0", "1.3.0", "odd"):
            monkeypatch.setitem(sys.modules, "pillow_heif", Mock(__version__=version))
            heif_version.cache_clear()
            (tmp_path / "x.heic").write_bytes(HEIC_HEAD)
            assert "need pillow-heif" in reason(tmp_path / "x.heic")

    def test_avif_without_its_decoder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(formats, "avif_version", lambda: None)
        (tmp_path / "x").write_bytes(HEIC_HEAD.replace(b"heic", b"avif"))
        assert reason(tmp_path / "x") == "AVIF pictures need Pillow 11.3 or later: pip install --upgrade pillow"
        assert kind_of(tmp_path / "x") == "AVIF (needs Pillow 11.3)"

    def test_the_decoder_is_not_loaded_before_it_is_needed(self) -> None:
        program = "import sys, converge_to_surprise.data.decode; sys.exit('pillow_heif' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

    def test_kinds(self, tmp_path: Path) -> None:
        (tmp_path / "empty.png").touch()
        (tmp_path / "text.png").write_text("text")
        (tmp_path / "cut.png").write_bytes(encoded(photo(64, 64), "png")[:200])
        (tmp_path / "bomb.png").write_bytes(bomb(20_000, 20_000))
        (tmp_path / "link.png").symlink_to("nowhere")
        (tmp_path / "folder.png").mkdir()
        Image.new("LAB", (8, 8)).save(tmp_path / "lab.tiff")
        kinds = {path.stem: kind_of(path) for path in tmp_path.iterdir()}
        assert kinds == {
            "empty": "empty", "text": "not a picture", "cut": "damaged", "bomb": "too large", "link": "missing",
            "folder": "not a file", "lab": "unsupported pixels",
        }  # fmt: skip


def with_claim(content: bytes, width: int, height: int) -> bytes:
    """An AVIF or HEIC file that claims another size."""
    at = content.index(b"ispe") + 8
    return content[:at] + struct.pack(">II", width, height) + content[at + 8 :]


@pytest.mark.parametrize(
    "kind", [pytest.param("avif", marks=NEEDS_AVIF), pytest.param("heic", marks=NEEDS_HEIC)]
)  # fmt: skip
class TestPhonePictures:
    @pytest.mark.parametrize("name", ["x.heic", "x.avif", "x.jpg", "IMG_1"])
    def test_are_read_whatever_they_are_called(self, tmp_path: Path, kind: str, name: str) -> None:
        pixels = photo(30, 40)
        for content in (encoded(pixels, kind), encoded(pixels, kind).replace(b"ftyp" + kind.encode(), b"ftypmif1")):
            (tmp_path / name).write_bytes(content)
            assert probe(tmp_path / name) == Probe(40, 30, colored=True)
            seen = decode(tmp_path / name, (3, 30, 40)).transpose(1, 2, 0)
            assert np.abs(seen.astype(int) - pixels).max() <= 8

    def test_gray_and_transparent(self, tmp_path: Path, kind: str) -> None:
        gray = photo(20, 30, channels=1)
        seen = decode(write(tmp_path / f"gray.{kind}", gray), (1, 20, 30))[0]
        assert np.abs(seen.astype(int) - gray).max() <= 8
        image = Image.new("RGBA", (16, 16), (200, 10, 10, 255))
        image.paste((0, 0, 0, 0), (0, 0, 16, 8))
        seen = decode(saved(tmp_path / f"alpha.{kind}", image, **SAVING[kind]), (3, 16, 16))
        assert (seen[:, 2] >= 250).all()
        assert np.abs(seen[:, 13, 5].astype(int) - [200, 10, 10]).max() <= 8

    def test_claims_of_too_many_pixels(self, tmp_path: Path, kind: str) -> None:
        path = tmp_path / f"x.{kind}"
        for width, height in ((10_000, 9_000), (16_000, 16_000), (60_000, 60_000), (2**31 - 1, 2**31 - 1), (0, 0)):
            path.write_bytes(with_claim(encoded(photo(64, 64), kind), width, height))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert re.search("the limit is 89 million|damaged", reason(path))

    def test_cut_off_anywhere(self, tmp_path: Path, kind: str) -> None:
        content = encoded(photo(20, 20), kind)
        for keep in (1, 4, 7, 8, 10, 12, 15, 17, 20, 28, 31, 40, 60, *range(100, len(content) - 20, 40)):
            (tmp_path / f"x.{kind}").write_bytes(content[:keep])
            assert "damaged" in reason(tmp_path / f"x.{kind}")

    def test_a_box_with_a_wrong_length(self, tmp_path: Path, kind: str) -> None:
        content = encoded(photo(20, 20), kind)
        for length in (0, 1, 7, 8, 12, 16, 2**31, 2**32 - 1):
            (tmp_path / f"x.{kind}").write_bytes(struct.pack(">I", length) + content[4:])
            assert "damaged" in reason(tmp_path / f"x.{kind}")

    def test_text(self, tmp_path: Path, kind: str) -> None:
        (tmp_path / f"x.{kind}").write_text("not a photo")
        assert reason(tmp_path / f"x.{kind}").startswith("not a picture, or a damaged one (none of AVIF, BMP")
        assert kind_of(tmp_path / f"x.{kind}") == "not a picture"


@NEEDS_HEIC
class TestHeic:
    def test_a_picture_larger_than_it_claims(self, tmp_path: Path) -> None:
        path = tmp_path / "x.heic"
        for claim in ((8, 8), (160, 119), (1, 1)):
            path.write_bytes(with_claim(encoded(photo(120, 160), "heic"), *claim))
            assert "truncated or damaged" in reason(path)

    def test_ten_bits(self, tmp_path: Path) -> None:
        import pillow_heif

        levels = (np.add.outer(np.arange(32), np.arange(48)) * 800).astype(np.uint16)
        expected = np.round(levels / 257)
        for mode, pixels in (("I;16", levels), ("RGB;16", np.stack([levels] * 3, -1))):
            file = pillow_heif.from_bytes(mode=mode, size=(48, 32), data=pixels.tobytes())
            file.save(tmp_path / "x.heic", quality=-1, chroma=444)
            assert Image.open(tmp_path / "x.heic").info["bit_depth"] == 10
            for channel in decode(tmp_path / "x.heic", (3, 32, 48)):
                assert np.abs(channel - expected).max() <= 4

    def test_only_the_primary_picture_is_read(self, tmp_path: Path) -> None:
        frames = [Image.new("RGB", (16 * k, 16), color) for k, color in enumerate(("red", "lime", "blue"), 1)]
        path = tmp_path / "x.heic"
        for primary, frame in enumerate(frames):
            frames[0].save(path, **SAVING["heic"], save_all=True, append_images=frames[1:], primary_index=primary)
            assert probe(path)[:2] == frame.size
            assert np.abs(decode(path, (3, 8, 8))[:, 4, 4].astype(int) - frame.getpixel((0, 0))).max() <= 8

    def test_the_thumbnail_in_a_file_is_not_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write(tmp_path / "x.heic", photo(400, 400), thumbnails=[128])
        taken: list[Any] = []
        with Image.open(path) as image:
            assert image.info["thumbnails"]
            draft = type(image).draft
            monkeypatch.setattr(type(image), "draft", lambda *rest: taken.append(draft(*rest)))
        assert probe(path)[:2] == (400, 400)
        assert decode(path, (3, 8, 8)).shape == (3, 8, 8)
        assert not any(taken)

    def test_exif_data_do_not_turn_it_again(self, tmp_path: Path) -> None:
        """The container says how it is turned; what EXIF data say of it is not for the reader of such a file."""
        exif = Image.Exif()
        exif[0x0112] = 6
        stored = photo(20, 30)
        path = write(tmp_path / "x.heic", stored)
        plain = decode(path, (3, 20, 30))
        with Image.open(path) as image:
            image.save(tmp_path / "y.heic", **SAVING["heic"], exif=exif)  # not bytes: no turn in the container
        assert np.abs(decode(tmp_path / "y.heic", (3, 20, 30)).astype(int) - plain).max() <= 8


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


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=300)
@given(damaged())
def test_damage_is_decoded_or_refused(place: Path, case: tuple[str, bytes]) -> None:
    path = place / f"damaged.{case[0]}"
    path.write_bytes(case[1])
    began = time.monotonic()
    try:
        pixels = decode(path, (3, 9, 7))
        assert pixels.shape == (3, 9, 7)
        assert pixels.dtype == np.uint8
    except BadPicture:
        pass
    assert time.monotonic() - began < 20


class TestPixels:
    @given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=3, max_dims=3, max_side=12).map(lambda s: (*s[:2], 3))),
           st.sampled_from(LOSSLESS))  # fmt: skip
    def test_color_of_the_right_size_is_exact(self, place: Path, pixels: Pixels, kind: str) -> None:
        path = write(place / f"exact.{kind}", pixels)
        np.testing.assert_array_equal(decode(path, (3, *pixels.shape[:2])), pixels.transpose(2, 0, 1))

    @given(
        hnp.arrays(np.uint8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=12)), st.sampled_from([*LOSSLESS, "gif"])
    )
    def test_gray_of_the_right_size_is_exact(self, place: Path, pixels: Pixels, kind: str) -> None:
        path = write(place / f"exact.{kind}", pixels)
        np.testing.assert_array_equal(decode(path, (1, *pixels.shape))[0], pixels)
        np.testing.assert_array_equal(decode(path, (3, *pixels.shape)), np.stack([pixels] * 3))

    @given(
        hnp.arrays(np.uint16, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8)), st.sampled_from(["png", "tiff"])
    )
    def test_sixteen_bits(self, place: Path, pixels: Any, kind: str) -> None:
        path = saved(place / f"deep.{kind}", Image.fromarray(pixels))
        np.testing.assert_array_equal(decode(path, (1, *pixels.shape))[0], np.round(pixels / 257))

    @given(
        hnp.arrays(np.bool_, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8)),
        st.sampled_from(["png", "tiff", "bmp"]),
    )
    def test_one_bit(self, place: Path, pixels: Any, kind: str) -> None:
        path = saved(place / f"bits.{kind}", Image.fromarray(pixels))
        np.testing.assert_array_equal(decode(path, (1, *pixels.shape))[0], np.where(pixels, 255, 0))

    @pytest.mark.parametrize(("values", "expected"), [
        (np.array([[0, 1000], [30_000, 65_535]], np.int32), [[0, 4], [117, 255]]),
        (np.array([[0, 3], [200, 255]], np.int32), [[0, 3], [200, 255]]),
        (np.array([[0, 0.5], [0.25, 1]], np.float32), [[0, 128], [64, 255]]),
        (np.array([[0, 0.5], [200, 255]], np.float32), [[0, 0], [200, 255]]),
        (np.array([[0, 257], [514, 65_535]], np.float32), [[0, 1], [2, 255]]),
    ])  # fmt: skip
    def test_32_bits_and_fractions(self, tmp_path: Path, values: Any, expected: list[list[int]]) -> None:
        path = saved(tmp_path / "x.tiff", Image.fromarray(values))
        assert decode(path, (1, 2, 2))[0].tolist() == expected

    @pytest.mark.parametrize("value", [-1.0, 70_000.0, np.nan, np.inf])
    def test_fractions_without_a_scale(self, tmp_path: Path, value: float) -> None:
        path = saved(tmp_path / "x.tiff", Image.fromarray(np.array([[0, 1], [1, value]], np.float32)))
        assert ("not finite" if not np.isfinite(value) else "its pixels lie in") in reason(path)

    def test_a_mode_that_is_not_supported(self, tmp_path: Path) -> None:
        assert reason(saved(tmp_path / "x.tiff", Image.new("LAB", (8, 8)))) == (
            "its pixels are of the kind LAB, which is not supported"
        )

    @pytest.mark.parametrize("kind", ["jpg", "tiff"])
    def test_print_colors(self, tmp_path: Path, kind: str) -> None:
        # Cyan ink alone absorbs red; all inks absorb everything.
        for inks, color in (
            ((255, 0, 0, 0), (0, 255, 255)),
            ((0, 0, 0, 0), (255, 255, 255)),
            ((0, 0, 0, 255), (0, 0, 0)),
        ):
            path = saved(tmp_path / f"x.{kind}", Image.new("CMYK", (8, 8), inks))
            assert np.abs(decode(path, (3, 8, 8)).astype(int) - np.array(color)[:, None, None]).max() <= 3

    @pytest.mark.parametrize("kind", ["png", "webp", "tiff"])
    def test_what_is_transparent_shows_white(self, tmp_path: Path, kind: str) -> None:
        image = Image.new("RGBA", (4, 1))
        image.putdata([(10, 20, 30, 255), (10, 20, 30, 0), (0, 0, 0, 51), (255, 255, 255, 0)])
        options = {"lossless": True, "exact": True} if kind == "webp" else {}
        pixels = decode(saved(tmp_path / f"x.{kind}", image, **options), (3, 1, 4))[:, 0]
        assert pixels.T.tolist() == [[10, 20, 30], [255, 255, 255], [204, 204, 204], [255, 255, 255]]

    def test_gray_with_alpha(self, tmp_path: Path) -> None:
        image = Image.new("LA", (3, 1))
        image.putdata([(40, 255), (40, 0), (0, 51)])
        path = saved(tmp_path / "x.png", image)
        assert decode(path, (1, 1, 3)).tolist() == [[[40, 255, 204]]]
        assert not probe(path).colored

    def test_a_color_that_stands_for_transparent(self, tmp_path: Path) -> None:
        gray = saved(tmp_path / "gray.png", Image.fromarray(np.array([[7, 9]], np.uint8)), transparency=7)
        assert decode(gray, (1, 1, 2)).tolist() == [[[255, 9]]]
        color = saved(tmp_path / "color.png", Image.fromarray(np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8)),
                       transparency=(1, 2, 3))  # fmt: skip
        assert decode(color, (3, 1, 2))[:, 0].T.tolist() == [[255, 255, 255], [4, 5, 6]]

    @pytest.mark.parametrize("kind", ["png", "gif", "bmp", "tiff"])
    def test_palette(self, tmp_path: Path, kind: str) -> None:
        image = Image.new("P", (3, 1))
        image.putpalette([200, 10, 10, 10, 200, 10, 10, 10, 200])
        image.putdata([2, 0, 1])
        path = saved(tmp_path / f"x.{kind}", image)
        assert decode(path, (3, 1, 3))[:, 0].T.tolist() == [[10, 10, 200], [200, 10, 10], [10, 200, 10]]

    @pytest.mark.parametrize("kind", ["png", "gif"])
    def test_palette_with_a_transparent_entry(self, tmp_path: Path, kind: str) -> None:
        image = Image.new("P", (3, 1))
        image.putpalette([200, 10, 10, 10, 200, 10, 10, 10, 200])
        image.putdata([2, 0, 1])
        path = saved(tmp_path / f"x.{kind}", image, transparency=0)
        assert decode(path, (3, 1, 3))[:, 0].T.tolist() == [[10, 10, 200], [255, 255, 255], [10, 200, 10]]

    @pytest.mark.parametrize("kind", ["gif", "png", "webp", "tiff"])
    def test_the_first_frame_counts(self, tmp_path: Path, kind: str) -> None:
        frames = [Image.new("RGB", (8, 8), color) for color in ("red", "lime", "blue")]
        options = {"lossless": True} if kind == "webp" else {}
        path = saved(tmp_path / f"x.{kind}", frames[0], save_all=True, append_images=frames[1:], **options)
        assert decode(path, (3, 8, 8))[:, 0, 0].tolist() == [255, 0, 0]


def upright(stored: Pixels, orientation: int) -> Pixels:
    """From the EXIF standard: which side of the scene the first row and the first column of the file are."""
    row, column = {
        1: ("top", "left"), 2: ("top", "right"), 3: ("bottom", "right"), 4: ("bottom", "left"),
        5: ("left", "top"), 6: ("right", "top"), 7: ("right", "bottom"), 8: ("left", "bottom"),
    }[orientation]  # fmt: skip
    height, width = stored.shape[:2]
    seen = np.empty((height, width, 3) if orientation < 5 else (width, height, 3), np.uint8)
    for r, c in itertools.product(range(height), range(width)):
        along_row = r if row in ("top", "left") else height - 1 - r
        along_column = c if column in ("top", "left") else width - 1 - c
        y, x = (along_row, along_column) if row in ("top", "bottom") else (along_column, along_row)
        seen[y, x] = stored[r, c]
    return seen


class TestOrientation:
    @pytest.mark.parametrize("orientation", range(1, 9))
    @pytest.mark.parametrize("kind", sorted({*SAVING} - {"bmp", "gif"}))
    def test_all_eight(self, tmp_path: Path, kind: str, orientation: int) -> None:
        stored = photo(10, 6)
        exif = Image.Exif()
        exif[0x0112] = orientation
        # pillow-heif ignores the orientation of anything but bytes.
        path = write(tmp_path / f"x.{kind}", stored, exif=exif.tobytes() if kind == "heic" else exif)
        expected = upright(stored, orientation)
        seen = decode(path, (3, *expected.shape[:2])).transpose(1, 2, 0)
        assert np.abs(seen.astype(int) - expected).max() <= {"jpg": 40, "avif": 8, "heic": 8}.get(kind, 0)
        assert probe(path)[:2] == expected.shape[1::-1]

    def test_of_a_picture_read_at_a_smaller_scale(self, tmp_path: Path) -> None:
        exif = Image.Exif()
        exif[0x0112] = 6
        stored = photo(600, 900)
        path = write(tmp_path / "x.jpg", stored, exif=exif)
        assert probe(path) == Probe(600, 900, colored=True)
        expected = Image.fromarray(np.rot90(stored, -1)).resize((20, 30), Image.Resampling.BICUBIC)
        seen = decode(path, (3, 30, 20)).transpose(1, 2, 0)
        assert np.abs(seen.astype(int) - np.asarray(expected)).max() <= 12

    @pytest.mark.parametrize("exif", [b"Exif\0\0garbage", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0"])
    @pytest.mark.filterwarnings("ignore")
    def test_damaged_exif_data_do_not_matter(self, tmp_path: Path, exif: bytes) -> None:
        pixels = photo(8, 8)
        for kind in ("png", "jpg"):
            seen = decode(write(tmp_path / f"x.{kind}", pixels, exif=exif), (3, 8, 8)).transpose(1, 2, 0)
            assert np.abs(seen.astype(int) - pixels).max() <= 40

    @pytest.mark.parametrize("orientation", [0, 9, 65_535])
    def test_an_orientation_that_is_none(self, tmp_path: Path, orientation: int) -> None:
        exif = Image.Exif()
        exif[0x0112] = orientation
        pixels = photo(4, 8)
        path = write(tmp_path / "x.png", pixels, exif=exif)
        np.testing.assert_array_equal(decode(path, (3, 4, 8)).transpose(1, 2, 0), pixels)


class TestFitting:
    def test_a_wide_picture_in_a_square(self, tmp_path: Path) -> None:
        pixels = np.full((10, 40), 100, np.uint8)
        pixels[:, 20:] = 200
        seen = decode(write(tmp_path / "x.png", pixels), (1, 20, 20))[0]
        # 40x10 becomes 20x5, centered; its boundary is half 100 and half 200.
        assert (seen[:7] == 150).all()
        assert (seen[12:] == 150).all()
        assert (seen[7:12, :8] == 100).all()
        assert (seen[7:12, 12:] == 200).all()

    def test_a_tall_picture_in_a_square(self, tmp_path: Path) -> None:
        seen = decode(write(tmp_path / "x.png", np.full((40, 10), 60, np.uint8)), (1, 20, 20))
        assert (seen == 60).all()

    @given(st.integers(1, 60), st.integers(1, 60), st.integers(2, 30), st.integers(2, 30), st.integers(0, 255))
    def test_padding_carries_no_contrast(self, place: Path, h: int, w: int, high: int, wide: int, gray: int) -> None:
        path = write(place / "flat.png", np.full((h, w), gray, np.uint8))
        assert (decode(path, (1, high, wide)) == gray).all()

    @given(st.integers(16, 60), st.integers(16, 60), st.integers(16, 60), st.integers(16, 60))
    def test_the_aspect_is_kept(self, place: Path, h: int, w: int, high: int, wide: int) -> None:
        quarters = (np.arange(h)[:, None] < h / 2) ^ (np.arange(w) < w / 2)
        seen = decode(write(place / "quarters.png", np.where(quarters, 255, 0).astype(np.uint8)), (1, high, wide))[0]
        covered = np.abs(seen.astype(int) - 128) > 64  # the rest is about half bright
        scale = min(wide / w, high / h)
        for there, full, side in ((covered.any(1), high, round(h * scale)), (covered.any(0), wide, round(w * scale))):
            first, last = there.argmax(), full - 1 - there[::-1].argmax()
            assert (first, last - first + 1) == ((full - side) // 2, side)

    def test_reduction_does_not_alias(self, tmp_path: Path) -> None:
        lines = np.zeros((400, 400), np.uint8)
        lines[::2] = 255
        seen = decode(write(tmp_path / "x.png", lines), (1, 20, 20))[0]
        assert np.abs(seen.astype(int) - 128).max() <= 3

    def test_small_pictures_grow(self, tmp_path: Path) -> None:
        seen = decode(write(tmp_path / "x.png", np.array([[0, 255]], np.uint8)), (1, 10, 20))[0]
        assert seen.shape == (10, 20)
        assert (seen[:, :4] < 20).all()
        assert (seen[:, -4:] > 235).all()

    def test_a_huge_jpeg_is_read_at_a_smaller_scale(self, tmp_path: Path) -> None:
        pixels = photo(1500, 2000)
        path = write(tmp_path / "x.jpg", pixels)
        expected = np.asarray(Image.fromarray(pixels).resize((40, 30), Image.Resampling.BICUBIC))
        seen = decode(path, (3, 30, 40)).transpose(1, 2, 0)
        assert np.abs(seen.astype(int) - expected).max() <= 10


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
                decoding.own_pillow_warnings()
            reason(cut)
            assert "the limit is 89 million" in reason(tmp_path / "bomb.png")
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
