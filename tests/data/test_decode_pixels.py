"""The pixels of a decoded picture: exact where they can be, upright, fitted, over white."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from support.pictures import SAVING, Pixels, photo, saved, skip_reason, write

from converge_to_surprise.data.decode import Probe, decode, probe

LOSSLESS = ["bmp", "png", "tiff", "webp"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pictures")


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
        assert ("not finite" if not np.isfinite(value) else "its pixels lie in") in skip_reason(path)

    def test_a_mode_that_is_not_supported(self, tmp_path: Path) -> None:
        assert skip_reason(saved(tmp_path / "x.tiff", Image.new("LAB", (8, 8)))) == (
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
