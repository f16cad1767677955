"""Formats that are not read, and pictures of phones (HEIC, AVIF)."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image
from support.pictures import HEIC_HEAD, NEEDS_AVIF, NEEDS_HEIC, SAVING, bomb, encoded, photo, saved, skip_reason, write

from converge_to_surprise.data import formats
from converge_to_surprise.data.decode import BadPicture, Probe, decode, probe
from converge_to_surprise.data.formats import UNREAD, heif_version


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
        assert skip_reason(path) == UNREAD[ending].remedy
        assert re.search("export it as JPEG|convert them to (PNG|JPEG)", skip_reason(path))
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
        assert skip_reason(path) == "camera raw; export it as JPEG"

    @pytest.mark.parametrize("name", ["x.heic", "x.nef", "x.svg", "x", "x.unknown"])
    def test_a_wrong_name_does_not_matter(self, tmp_path: Path, name: str) -> None:
        pixels = photo(8, 8)
        (tmp_path / name).write_bytes(encoded(pixels, "png"))
        np.testing.assert_array_equal(decode(tmp_path / name, (3, 8, 8)).transpose(1, 2, 0), pixels)

    @pytest.mark.usefixtures("without_heif")
    @pytest.mark.parametrize("name", ["x.heic", "x.jpg", "x"])
    def test_heic_without_its_decoder(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(HEIC_HEAD)
        assert (
            skip_reason(tmp_path / name) == "HEIC pictures need pillow-heif: pip install 'converge-to-surprise[photos]'"
        )
        assert kind_of(tmp_path / name) == "HEIC (needs pillow-heif)"

    @pytest.mark.usefixtures("without_heif")
    def test_an_old_decoder_that_trusts_sizes_is_none(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for version in ("0.22.0", "1.3.0", "odd"):
            monkeypatch.setitem(sys.modules, "pillow_heif", Mock(__version__=version))
            heif_version.cache_clear()
            (tmp_path / "x.heic").write_bytes(HEIC_HEAD)
            assert "need pillow-heif" in skip_reason(tmp_path / "x.heic")

    def test_avif_without_its_decoder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(formats, "avif_version", lambda: None)
        (tmp_path / "x").write_bytes(HEIC_HEAD.replace(b"heic", b"avif"))
        assert skip_reason(tmp_path / "x") == "AVIF pictures need Pillow 11.3 or later: pip install --upgrade pillow"
        assert kind_of(tmp_path / "x") == "AVIF (needs Pillow 11.3)"

    @pytest.mark.subprocess
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
                assert re.search("the limit is 89 million|damaged", skip_reason(path))

    def test_cut_off_anywhere(self, tmp_path: Path, kind: str) -> None:
        content = encoded(photo(20, 20), kind)
        for keep in (1, 4, 7, 8, 10, 12, 15, 17, 20, 28, 31, 40, 60, *range(100, len(content) - 20, 40)):
            (tmp_path / f"x.{kind}").write_bytes(content[:keep])
            assert "damaged" in skip_reason(tmp_path / f"x.{kind}")

    def test_a_box_with_a_wrong_length(self, tmp_path: Path, kind: str) -> None:
        content = encoded(photo(20, 20), kind)
        for length in (0, 1, 7, 8, 12, 16, 2**31, 2**32 - 1):
            (tmp_path / f"x.{kind}").write_bytes(struct.pack(">I", length) + content[4:])
            assert "damaged" in skip_reason(tmp_path / f"x.{kind}")

    def test_text(self, tmp_path: Path, kind: str) -> None:
        (tmp_path / f"x.{kind}").write_text("not a photo")
        assert skip_reason(tmp_path / f"x.{kind}").startswith("not a picture, or a damaged one (none of AVIF, BMP")
        assert kind_of(tmp_path / f"x.{kind}") == "not a picture"


@NEEDS_HEIC
class TestHeic:
    def test_a_picture_larger_than_it_claims(self, tmp_path: Path) -> None:
        path = tmp_path / "x.heic"
        for claim in ((8, 8), (160, 119), (1, 1)):
            path.write_bytes(with_claim(encoded(photo(120, 160), "heic"), *claim))
            assert "truncated or damaged" in skip_reason(path)

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
