"""The one converter from arrays to images: every dtype and layout, every range of values, every size."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from converge_to_surprise import SurpriseClustering
from converge_to_surprise.config import memory
from converge_to_surprise.config.images import ImageOptions
from converge_to_surprise.data import arrays
from converge_to_surprise.data.arrays import BYTES, FRACTIONS, Scale, natural_scale, to_images, to_nchw
from converge_to_surprise.data.datasets import load, load_arrays
from converge_to_surprise.data.decode import decode
from converge_to_surprise.data.store import map_array, to_store
from converge_to_surprise.data.working_size import array_size, size_like, working_size
from converge_to_surprise.estimator.inputs import first_input, later_input

RNG = np.random.default_rng(0)
DTYPES = ["bool", "uint8", "int8", "int16", "uint16", "int64", "uint64", "float16", "float32", "float64", ">f4", ">i2"]
SIDES = st.integers(1, 120)


def numbers(dtype: str, shape: tuple[int, ...], top: int) -> npt.NDArray[Any]:
    """Values that every converter has taken: 0..top, floats also halfway between two bytes."""
    drawn = RNG.integers(0, 2 * min(top, 127 if dtype == "int8" else top) + 1, shape) / 2
    return (drawn > 1 if dtype == "bool" else drawn).astype(dtype)


@settings(deadline=None, max_examples=60)
@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.sampled_from(
        [(3, 7, 9), (3, 7, 9, 1), (2, 7, 9, 3), (2, 1, 7, 9), (2, 3, 7, 9), (2, 70, 50), (2, 60, 9, 3)]
    ),
    top=st.sampled_from([1, 255]),
    image_size=st.sampled_from([None, 8, 64]),
)  # fmt: skip
def test_files_and_python_agree(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, shape: tuple[int, ...], top: int, image_size: int | None
) -> None:
    pixels = numbers(dtype, shape, top)
    path = tmp_path_factory.mktemp("a") / "x.npy"
    np.save(path, pixels)
    from_file = load(str(path), options=ImageOptions(image_size=image_size)).train.images
    from_python = first_input(SurpriseClustering(image_size=image_size), pixels)
    assert torch.equal(from_file, from_python.images)
    assert max(from_file.shape[2:]) == (image_size or min(48, max(from_file.shape[2:])))
    # Once more, as images that come later.
    again = later_input(SurpriseClustering(image_size=image_size), pixels, from_python.shape, from_python.scale)
    assert torch.equal(again.images, from_python.images)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_are_rounded_once(dtype: str) -> None:
    """Halfway values go to the even byte: no division comes before."""
    halves = np.arange(0, 255.5, 0.5).astype(dtype).reshape(1, 1, 1, -1)
    found = to_images(halves, natural_scale(halves, "x"), "x")[0, 0, 0].numpy()
    np.testing.assert_array_equal(found, np.round(np.arange(0, 255.5, 0.5)))


@given(low=st.floats(-1e6, 1e6), span=st.floats(1e-3, 1e6))
def test_a_scale_round_trips(low: float, span: float) -> None:
    scale = Scale(low, low + span)
    values = scale.low + np.arange(256) / 255 * (scale.high - scale.low)
    found = to_images(values.reshape(1, 1, 16, 16), scale, "x").flatten().numpy()
    assert np.abs(found.astype(int) - np.arange(256)).max() <= (0 if span > 1e-6 * abs(low) else 1)
    outside = np.array([low - span, low + 2 * span]).reshape(1, 1, 1, 2)
    assert to_images(outside, scale, "x").flatten().tolist() == [0, 255]


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        (np.array([0, 200], np.uint8), BYTES),
        (np.array([0, 1], np.uint8), BYTES),
        (np.array([False, True]), FRACTIONS),
        (np.array([0, 1]), BYTES),
        (np.array([0.0, 1.0]), FRACTIONS),
        (np.array([0.0, 1.5]), BYTES),
        (np.array([-1.0, 1.0]), Scale(-1, 1)),
        (np.array([0, 65535], np.uint16), Scale(0, 65535)),
    ],
)
def test_natural_scales(values: npt.NDArray[Any], scale: Scale) -> None:
    assert natural_scale(values.reshape(1, 1, 1, 2), "x") == scale


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = RNG.normal(size=(23, 3, 60, 50))
    scale = natural_scale(pixels, "x")
    whole = to_images(pixels, scale, "x", lambda _: (24, 20))
    monkeypatch.setattr(arrays, "BLOCK_VALUES", 4 * 9000)
    assert natural_scale(pixels, "x") == scale
    assert torch.equal(to_images(pixels, scale, "x", lambda _: (24, 20)), whole)
    pixels[17, 1, 5, 5], pixels[20, 0, 0, 0] = np.nan, np.inf
    with pytest.raises(ValueError, match=r"x has a pixel that is nan in image 17; pixels must be finite"):
        natural_scale(pixels, "x")


def test_what_is_no_number() -> None:
    for dtype in ("complex128", "U3", "O", "datetime64[s]"):
        with pytest.raises(ValueError, match="x has dtype"):
            to_nchw(np.zeros((2, 4, 4), dtype=dtype), "x")


@settings(deadline=None)
@given(SIDES, SIDES, st.one_of(st.none(), st.integers(8, 200)))
def test_sizes_of_arrays(height: int, width: int, image_size: int | None) -> None:
    found = array_size((1, height, width), image_size)
    if image_size is None and (max(height, width) <= 48 or min(height, width) == 1):
        assert found == (height, width)
    else:
        assert found == working_size([(width, height)], image_size)
        assert max(found) == (image_size or 48)
    # Images that a model was fitted on are always taken again, and so are those of its own size.
    assert size_like((1, height, width), (1, *found), "x") == found
    assert size_like((1, *found), (1, *found), "x") == found


def test_images_that_are_not_alike() -> None:
    assert size_like((3, 96, 72), (3, 48, 36), "x") == (48, 36)
    assert size_like((3, 24, 18), (3, 48, 36), "x") == (48, 36)
    with pytest.raises(ValueError, match=r"x are 1x96x72 \(ch.*\) and the model was made with 3x48x36, .* channels"):
        size_like((1, 96, 72), (3, 48, 36), "x")
    with pytest.raises(ValueError, match=r"x are 3x72x96 .* made with 3x48x36, another aspect: crop or pad them"):
        size_like((3, 72, 96), (3, 48, 36), "x")


@pytest.mark.parametrize("shape", [(500, 500), (300, 200, 3), (40, 700), (120, 49, 3), (20, 30)])
@pytest.mark.parametrize("image_size", [None, 64])
def test_an_array_is_resized_as_its_picture_is(tmp_path: Path, shape: tuple[int, ...], image_size: int | None) -> None:
    pixels = RNG.integers(0, 256, (3, *shape), dtype=np.uint8)
    np.save(tmp_path / "x.npy", pixels)
    images = load(str(tmp_path / "x.npy"), options=ImageOptions(image_size=image_size)).train.images
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
        own: Any = tuple(images.shape[1:])
        np.testing.assert_array_equal(decode(tmp_path / f"{number}.png", own), images[number].numpy())


def test_a_folder_of_large_pictures_is_its_array(tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (4, 130, 110, 3), dtype=np.uint8)
    (tmp_path / "in").mkdir()
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / "in" / f"{number}.png")
    np.save(tmp_path / "x.npy", pixels)
    found = [load(str(tmp_path / name)).train.images for name in ("in", "x.npy")]
    assert tuple(found[0].shape) == (4, 3, 48, 41)
    assert torch.equal(*found)


def test_large_files_are_resized_and_small_ones_stay_on_disk(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", RNG.integers(0, 256, (5, 40, 60), dtype=np.uint8))
    assert tuple(load(str(tmp_path / "x.npy")).train.images.shape) == (5, 1, 32, 48)
    assert tuple(load(str(tmp_path / "x.npy"), shape=(1, 20, 30)).train.images.shape) == (5, 1, 20, 30)
    assert tuple(load_arrays(str(tmp_path / "x.npy")).train.images.shape) == (5, 1, 40, 60)
    with pytest.raises(ValueError, match=r"x.npy are 1x40x60 .* another aspect"):
        load(str(tmp_path / "x.npy"), shape=(1, 20, 20))
    mapped = map_array(tmp_path / "x.npy")
    asked = to_store(mapped, None, "x", lambda own: array_size(own, 60))
    assert asked.images.data_ptr() == mapped.ctypes.data


def test_memory_for_images_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.zeros((50, 100, 100), np.float32)
    monkeypatch.setattr(memory, "free_memory", lambda: 400_000)
    with pytest.raises(
        ValueError, match=r"the 50 images of x, 100x100 pixels each, would take 500,000 bytes, too much"
    ):
        to_store(pixels, None, "x")
    assert to_store(pixels, None, "x", lambda own: array_size(own, None)).images.numel() == 50 * 48 * 48


def test_python_and_files_have_one_word_for_wrong_values(tmp_path: Path) -> None:
    pixels = np.zeros((4, 9, 9))
    pixels[2, 1, 1] = math.inf
    np.save(tmp_path / "x.npy", pixels)
    text = "has a pixel that is inf in image 2; pixels must be finite"
    with pytest.raises(ValueError, match=f"x.npy {text}"):
        load(str(tmp_path / "x.npy"))
    with pytest.raises(ValueError, match=f"X {text}"):
        first_input(SurpriseClustering(), pixels)
    with pytest.raises(ValueError, match=f"X {text}"):
        later_input(SurpriseClustering(), pixels, (1, 9, 9), FRACTIONS)


def test_bytes_from_python_are_not_copied() -> None:
    pixels = RNG.integers(0, 256, (5, 1, 9, 9), dtype=np.uint8)
    found: Tensor = first_input(SurpriseClustering(), pixels).images
    assert found.data_ptr() == pixels.ctypes.data
    pixels.setflags(write=False)
    assert first_input(SurpriseClustering(), pixels).images.data_ptr() == pixels.ctypes.data
    mirrored = first_input(SurpriseClustering(), pixels[:, :, :, ::-1]).images
    np.testing.assert_array_equal(mirrored.numpy(), pixels[:, :, :, ::-1])


@pytest.mark.parametrize("value", [0, -1, 2, 7, 1025, 5000, 3.5, 48.0, "48", True])
def test_sizes_that_make_no_sense(value: Any) -> None:
    text = rf"^image_size is {value!r}; it must be an integer from 8 to 1024$"
    with pytest.raises(ValueError, match=text):
        ImageOptions(image_size=value)
    with pytest.raises(ValueError, match=text):
        SurpriseClustering(image_size=value).fit(np.zeros((5, 9, 9), np.uint8))


@pytest.mark.parametrize("value", [8, 1024, np.int64(48)])
def test_sizes_that_do(value: int) -> None:
    assert ImageOptions(image_size=value).image_size == value
