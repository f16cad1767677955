from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from converge_to_surprise.config import PictureKind
from converge_to_surprise.config.kinds import DESCRIPTIONS, describe_kind, for_kind
from converge_to_surprise.config.presets import photo_augmentation, resolve
from converge_to_surprise.core.picture_kind import LOOKED_AT, picture_kind

SIDE = 24


def pictures(kind: PictureKind, count: int, seed: int) -> Tensor:
    """Pictures that are clearly of one kind, uint8."""
    generator = torch.Generator().manual_seed(seed)

    def noise(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    if kind == "scene":
        values = noise(count, 3, SIDE, SIDE)
    elif kind == "gray":  # an object that fills the frame
        values = noise(count, 1, SIDE, SIDE)
    else:
        # A blob in the middle, in front of one gray, or of light that falls off.
        channels = 3 if kind == "object" else 1
        values = 0.2 + 0.5 * noise(count, channels, 1, 1).expand(-1, -1, SIDE, SIDE).clone()
        if kind == "object":
            values *= torch.linspace(0.5, 1.2, SIDE)
        values[..., 8:16, 8:16] = noise(count, channels, 8, 8)
    return (values.clamp(0, 1) * 255).round().to(torch.uint8)


@pytest.mark.parametrize("kind", DESCRIPTIONS)
@given(seed=st.integers(0, 1000))
def test_the_kind_is_seen(kind: PictureKind, seed: int) -> None:
    assert picture_kind(pictures(kind, 20, seed)) == kind


@pytest.mark.parametrize("kind", DESCRIPTIONS)
def test_the_kind_does_not_depend_on_size_or_order_or_on_inverting(kind: PictureKind) -> None:
    images = pictures(kind, 30, 0)
    large = images.repeat_interleave(5, 2).repeat_interleave(5, 3)
    assert picture_kind(large) == picture_kind(images.flip(0)) == picture_kind(255 - images) == kind


def test_colored_objects_in_front_of_one_color_are_told_apart_by_their_edges() -> None:
    """Their pixels have the color in common and not the shape."""
    images = torch.tensor([30, 90, 200], dtype=torch.uint8)[None, :, None, None].repeat(20, 1, SIDE, SIDE)
    images[..., 2:22, 2:22] = pictures("scene", 20, 0)[..., 2:22, 2:22]
    assert picture_kind(images) == "object"


def test_gray_pictures_read_in_color_are_gray() -> None:
    assert picture_kind(pictures("gray", 20, 0).expand(-1, 3, -1, -1)) == "gray"


def test_a_sample_of_many_pictures_is_evenly_spaced() -> None:
    """Of a folder that is sorted, the first pictures alone do not decide."""
    first, rest = pictures("object", LOOKED_AT, 0), pictures("scene", 4 * LOOKED_AT, 1)
    assert picture_kind(torch.cat([first, rest])) == "scene"
    assert picture_kind(pictures("scene", 1, 0)) == "scene"


def test_gray_pictures_keep_their_background() -> None:
    """What lies at the rim of a glyph is paper; of another gray picture it is part of what is seen."""
    base = resolve("fast", None, "auto", 2000, (1, 48, 48))
    assert for_kind(base, "glyph") == replace(base, kind="glyph")
    gray = for_kind(base, "gray")
    assert (base.views.background, gray.views.background) == ("remove", "keep")
    assert (gray.network.padding, gray.augmentation.fill) == ("background", "background")
    assert gray.relaxed == base.relaxed


def test_photographs_get_other_settings() -> None:
    base = resolve("fast", None, "auto", 2000, (3, 48, 48))
    objects, scenes = for_kind(base, "object"), for_kind(base, "scene")
    assert (objects.views.edges, scenes.views.edges) == (True, False)
    assert scenes.augmentation.hue > 0
    assert scenes.augmentation.flip_prob == 0.5


def test_letters_have_no_mirror_images() -> None:
    assert photo_augmentation(128, "glyph").flip_prob == 0
    assert photo_augmentation(128, "object").flip_prob == 0.5


def test_the_line_names_the_setting() -> None:
    line = describe_kind("scene", "--kind")
    assert line.startswith("kind of pictures: scene (")
    assert line.endswith("; --kind sets another")
