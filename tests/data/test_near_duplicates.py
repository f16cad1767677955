"""Near-duplicates: all pairs within the radius are found, and nothing else."""

from __future__ import annotations

import io

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance
from torch import Tensor

from converge_to_surprise.data import near_duplicates as module
from converge_to_surprise.data.near_duplicates import RADIUS, near_duplicates


def scenes(count: int, channels: int = 3, side: int = 40, seed: int = 0) -> Tensor:
    """Smooth random pictures, no two alike. uint8 (count, channels, side, side)"""
    coarse = torch.rand(count, channels, 5, 5, generator=torch.Generator().manual_seed(seed)) * 255
    fine = torch.nn.functional.interpolate(coarse, (side, side), mode="bicubic").clamp(0, 255)
    return fine.round().to(torch.uint8)


def to_picture(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def to_tensor(picture: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)


def as_jpeg(picture: Image.Image) -> Image.Image:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=60)
    return Image.open(io.BytesIO(buffer.getvalue()))


def changed(image: Tensor) -> list[Tensor]:
    """The same picture saved again, made smaller, and brighter."""
    picture = to_picture(image)
    half = picture.resize((20, 20), Image.Resampling.BICUBIC).resize((40, 40), Image.Resampling.BICUBIC)
    return [to_tensor(one) for one in (as_jpeg(picture), half, ImageEnhance.Brightness(picture).enhance(1.1))]


def test_the_same_picture_saved_again_is_found() -> None:
    images = scenes(30)
    again = torch.stack([*changed(images[4]), images[4], *changed(images[20])])
    (first, second) = near_duplicates(torch.cat([images, again]))
    assert first.images == [4, 30, 31, 32, 33]
    assert second.images == [20, 34, 35, 36]
    assert first.distances[0] == 0
    assert first.distances[4] == 0
    assert all(0 < distance <= RADIUS for distance in first.distances[1:4])


@pytest.mark.parametrize(
    "images",
    [
        scenes(40),
        scenes(40, channels=1, side=8),
        torch.arange(40, 240, 50).to(torch.uint8)[:, None, None, None].expand(-1, 1, 12, 12),
    ],
    ids=["scenes", "tiny", "plain grays"],
)
def test_pictures_that_differ_are_no_duplicates(images: Tensor) -> None:
    assert near_duplicates(images) == []


def test_pictures_that_differ_in_color_alone_are_no_duplicates() -> None:
    image = scenes(1)
    assert near_duplicates(torch.cat([image, image.flip(1), image.roll(1, 1)])) == []


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 12), st.sampled_from([1, 3]), st.floats(0.0, 14.0))
def test_groups_are_those_of_the_slow_loop(seed: int, count: int, channels: int, noise: float) -> None:
    """Copies with noise lie on both sides of the radius."""
    generator = torch.Generator().manual_seed(seed)
    base = scenes(3, channels, 20, seed)[torch.randint(3, (count,), generator=generator)]
    shift = noise * torch.randn(base.shape, generator=generator)
    images = (base + shift).round().clamp(0, 255).to(torch.uint8)
    found = [group.images for group in near_duplicates(images)]
    expected = reference.near_duplicate_groups(images.tolist(), RADIUS)
    if expected is not None:  # None: a distance lies so near to the radius that rounding decides
        assert found == expected


def test_blocks_and_the_bound_on_pairs_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    images = scenes(8)[torch.arange(96) % 8]
    expected = near_duplicates(images)
    assert [group.images for group in expected] == [list(range(first, 96, 8)) for first in range(8)]
    monkeypatch.setattr(module, "BLOCK", 5)
    monkeypatch.setattr(module, "MOST_PAIRS", 15)
    monkeypatch.setattr(module, "CHUNK_PIXELS", 1)
    assert near_duplicates(images) == expected
