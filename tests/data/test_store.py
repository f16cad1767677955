"""Arrays of images: what is accepted, what it becomes, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis.extra import numpy as hnp

from converge_to_surprise.core.views import to_float
from converge_to_surprise.data.store import check_clusterable, fingerprint, map_array, to_store

RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 256, (5, 4, 6), dtype=np.uint8)


@pytest.mark.parametrize(
    ("given_shape", "stored_shape"),
    [
        ((5, 4, 6), (5, 1, 4, 6)),
        ((5, 4, 6, 1), (5, 1, 4, 6)),
        ((5, 4, 6, 3), (5, 3, 4, 6)),
        ((5, 1, 4, 6), (5, 1, 4, 6)),
        ((5, 3, 4, 6), (5, 3, 4, 6)),
        ((1, 7, 9), (1, 1, 7, 9)),
    ],
)
def test_shapes(given_shape: tuple[int, ...], stored_shape: tuple[int, ...]) -> None:
    pixels = RNG.integers(0, 256, given_shape, dtype=np.uint8)
    images = to_store(pixels, None, "x").images
    assert tuple(images.shape) == stored_shape
    assert images.dtype == torch.uint8
    assert images.is_contiguous()


def test_channels_go_where_they_belong() -> None:
    color = RNG.integers(0, 256, (5, 4, 6, 3), dtype=np.uint8)
    for pixels in (color, color.transpose(0, 3, 1, 2)):
        images = to_store(pixels, None, "x").images.numpy()
        for channel in range(3):
            np.testing.assert_array_equal(images[:, channel], color[..., channel])


@pytest.mark.parametrize("shape", [(), (5,), (5, 4), (5, 4, 6, 2), (5, 2, 4, 6), (5, 4, 6, 4), (5, 1, 1, 4, 6)])
def test_wrong_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="1 or 3 channels") as refused:
        to_store(np.zeros(shape, dtype=np.uint8), None, "holiday.npz")
    assert f"holiday.npz has shape {shape}" in str(refused.value)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint16, np.int64, np.uint64])
def test_integers_stay_as_they_are(dtype: type[np.integer[Any]]) -> None:
    pixels = (BYTES % 128).astype(dtype)
    np.testing.assert_array_equal(to_store(pixels, None, "x").images[:, 0].numpy(), BYTES % 128)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_fractions_from_0_to_1_and_from_0_to_255(dtype: type[np.floating[Any]]) -> None:
    pixels = BYTES.copy()
    pixels[0, 0, 0] = 255
    np.testing.assert_array_equal(to_store(pixels.astype(dtype), None, "x").images[:, 0].numpy(), pixels)
    unit = (pixels / 255).astype(dtype)
    # Half precision has too few digits to hit every byte from [0, 1] exactly.
    difference = np.abs(to_store(unit, None, "x").images[:, 0].numpy().astype(int) - pixels)
    assert difference.max() <= (1 if dtype is np.float16 else 0)


def test_integers_up_to_1_are_not_fractions() -> None:
    assert int(to_store(np.ones((2, 4, 4), dtype=np.int64), None, "x").images.max()) == 1


def test_booleans_are_black_and_white() -> None:
    pixels = BYTES > 127
    np.testing.assert_array_equal(to_store(pixels, None, "x").images[:, 0].numpy(), np.where(pixels, 255, 0))


@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=3, max_dims=3, max_side=5)))
def test_bytes_are_kept(pixels: npt.NDArray[np.uint8]) -> None:
    np.testing.assert_array_equal(to_store(pixels, None, "x").images[:, 0].numpy(), pixels)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_pixels_that_are_not_finite(value: float) -> None:
    pixels = BYTES / 255
    pixels[3, 1, 2] = value
    with pytest.raises(ValueError, match="must be finite") as refused:
        to_store(pixels, None, "holiday.npz")
    assert f"holiday.npz has a pixel that is {value} in image 3" in str(refused.value)


@pytest.mark.parametrize(
    ("pixels", "span"),
    [(np.full((2, 4, 4), -1), "-1 to -1"), (np.full((2, 4, 4), 256), "256 to 256"), (np.full((2, 4, 4), -0.5), "-0.5")],
)
def test_pixels_out_of_range(pixels: npt.NDArray[Any], span: str) -> None:
    with pytest.raises(ValueError, match=r"must lie in 0\.\.255") as refused:
        to_store(pixels, None, "x")
    assert span in str(refused.value)


@pytest.mark.parametrize("dtype", ["U1", "S1", "c16", "O", "M8[s]"])
def test_dtypes_that_are_no_pixels(dtype: str) -> None:
    with pytest.raises(ValueError, match="x has dtype"):
        to_store(np.zeros((2, 4, 4), dtype=dtype), None, "x")


def test_no_images() -> None:
    for dtype in (np.uint8, np.float64):
        with pytest.raises(ValueError, match="x holds no images"):
            to_store(np.zeros((0, 4, 4), dtype=dtype), None, "x")


def test_labels_are_kept_or_numbered() -> None:
    def stored(labels: Any) -> list[int]:
        found = to_store(BYTES, np.asarray(labels), "x").labels
        assert found is not None
        assert found.dtype == np.int64
        return [int(label) for label in found]

    assert stored(np.array([4, 0, 4, 9, 2], dtype=np.uint8)) == [4, 0, 4, 9, 2]
    assert stored(["dog", "cat", "dog", "eel", "cat"]) == [1, 0, 1, 2, 0]
    assert stored([-1, 5, -1, 7, 5]) == [0, 1, 0, 2, 1]
    assert stored([10**12, 3, 3, 3, 10**12]) == [1, 0, 0, 0, 1]
    assert stored([0.5, 0.5, 1.5, 0.5, 1.5]) == [0, 0, 1, 0, 1]
    assert to_store(BYTES, None, "x").labels is None


def test_words_are_kept_as_the_names_of_classes() -> None:
    def names(labels: Any) -> Any:
        return to_store(BYTES, np.asarray(labels), "x").class_names

    assert names(["dog", "cat", "dog", "eel", "cat"]) == ["cat", "dog", "eel"]
    assert names([-1, 5, -1, 7, 5]) == ["-1", "5", "7"]
    assert names([4, 0, 4, 9, 2]) is None
    assert to_store(BYTES, None, "x").class_names is None
    assert to_store(BYTES, None, "x").names is None


@pytest.mark.parametrize("shape", [(4,), (6,), (5, 1), ()])
def test_labels_that_do_not_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="x has 5 images but labels of shape") as refused:
        to_store(BYTES, np.zeros(shape, dtype=int), "x")
    assert str(shape) in str(refused.value)


def refusal(pixels: npt.NDArray[Any]) -> str:
    with pytest.raises(ValueError, match="holiday") as refused:
        check_clusterable(to_store(pixels, None, "holiday"), "holiday")
    return str(refused.value)


def test_nothing_to_cluster() -> None:
    assert "holds 1 image; clustering needs at least 2" in refusal(BYTES[:1])
    assert "images of 1x1 pixels" in refusal(BYTES[:, :1, :1])
    assert "images of 0x6 pixels" in refusal(BYTES[:, :0])
    assert "all 3 images of holiday are constant (every pixel is 7)" in refusal(np.full((3, 4, 4), 7, dtype=np.uint8))
    assert "all 4 images of holiday are the same" in refusal(np.repeat(BYTES[:1], 4, axis=0))
    grays = np.arange(3, dtype=np.uint8)[:, None, None].repeat(4, 1).repeat(4, 2)
    assert "every image of holiday is constant" in refusal(grays)


def test_enough_to_cluster() -> None:
    check_clusterable(to_store(BYTES, None, "x"), "x")
    check_clusterable(to_store(BYTES[:2, :1, :2], None, "x"), "x")
    mostly_black = np.zeros((3, 4, 4), dtype=np.uint8)
    mostly_black[1, 2, 2] = 1
    check_clusterable(to_store(mostly_black, None, "x"), "x")


def test_one_odd_image_far_behind_is_seen() -> None:
    """More images than are looked at together: the last one decides."""
    pixels = np.zeros((3000, 2, 2), dtype=np.uint8)
    pixels[2999] = 9
    assert "every image of holiday is constant" in refusal(pixels)
    pixels[2999, 0, 0] = 1
    check_clusterable(to_store(pixels, None, "x"), "x")


@pytest.mark.parametrize("shape", [(5, 4, 6), (5, 1, 4, 6), (5, 3, 4, 6), (5, 4, 6, 1), (5, 4, 6, 3)])
def test_bytes_on_disk_stay_there(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pixels = RNG.integers(0, 256, shape, dtype=np.uint8)
    np.save(tmp_path / "x.npy", pixels)
    mapped = map_array(tmp_path / "x.npy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = to_store(mapped, None, "x")
    assert store.images.data_ptr() == mapped.ctypes.data
    in_memory = to_store(pixels, None, "x").images
    assert torch.equal(store.images, in_memory)
    assert to_float(store.images[1:3]).stride() == to_float(in_memory[1:3]).stride()
    assert fingerprint(store.images) == fingerprint(in_memory)
    store.images[:] = 0  # a private copy of the page
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), pixels)


@pytest.mark.subprocess
def test_a_file_larger_than_the_memory_is_mapped(tmp_path: Path) -> None:
    path, count = tmp_path / "x.npy", 2**40 // 64
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (count, 1, 8, 8)})
        try:
            file.truncate(file.tell() + count * 64)  # a hole: it takes no room
        except OSError:
            pytest.skip("this file system has no files of a terabyte")
    script = (
        "import sys; from pathlib import Path; from converge_to_surprise.data.store import map_array, to_store\n"
        "print(to_store(map_array(Path(sys.argv[1])), None, 'x').images.shape)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script, path], capture_output=True, text=True)
    assert done.stdout == f"torch.Size([{count}, 1, 8, 8])\n", done.stderr
