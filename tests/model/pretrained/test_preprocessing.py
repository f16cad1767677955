"""Preprocessing out of the files that models bring."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.model.pretrained.identity import Identity, Preprocess
from converge_to_surprise.model.pretrained.preprocessing import complete, from_metadata, from_preprocessor, from_timm

IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
NUMBERS = st.floats(-4, 4)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        ({"size": 224}, 224),
        ({"size": [224]}, 224),
        ({"size": {"height": 384, "width": 384}}, 384),
        ({"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}}, 224),
        ({"size": {"shortest_edge": 256}, "crop_size": 224, "do_center_crop": False}, 256),
        ({"size": 256, "crop_size": 224, "do_center_crop": True}, 224),
    ],
)
def test_sizes_of_preprocessor_files(data: dict[str, Any], size: int) -> None:
    assert complete(from_preprocessor(data | IMAGENET)).size == size


@pytest.mark.parametrize(("code", "name"), [(0, "nearest"), (1, "lanczos"), (2, "bilinear"), (3, "bicubic")])
def test_codes_of_pillow(code: int, name: str) -> None:
    assert from_preprocessor({"resample": code})["resample"] == name


@given(NUMBERS, st.floats(0.1, 4), st.floats(0.001, 1), st.booleans(), st.floats(0, 1))
def test_rescaling_is_folded_into_mean_and_std(mean: float, std: float, factor: float, offset: bool, x: float) -> None:
    """The same numbers reach the model as by the steps that the file describes, from bytes."""
    data = {"image_mean": [mean] * 3, "image_std": [std] * 3, "rescale_factor": factor, "rescale_offset": offset}
    found = complete(from_preprocessor(data))
    stepwise = (x * 255 * factor - offset - mean) / std
    assert (x - found.mean[0]) / found.std[0] == pytest.approx(stepwise, abs=2e-3 * (1 + abs(stepwise)))


def test_steps_that_are_turned_off() -> None:
    plain = complete(from_preprocessor({"do_normalize": False, **IMAGENET}))
    assert (plain.mean, plain.std) == ((0.0,) * 3, (1.0,) * 3)
    raw = complete(from_preprocessor({"do_rescale": False, "do_normalize": False}))
    assert raw.std[0] == pytest.approx(1 / 255)


def test_timm_is_read() -> None:
    held = {"input_size": [3, 288, 288], "mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic"}
    assert complete(from_timm({"pretrained_cfg": held})) == Preprocess(288, (0.5,) * 3, (0.5,) * 3, "bicubic")
    assert from_timm({"model_type": "vit"}) == from_timm([]) == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "must be a JSON object"),
        ({"size": {"height": 224, "width": 112}}, "only square inputs"),
        ({"size": {"longest_edge": 224}}, "only square inputs"),
        ({"size": "large"}, "must be a number of pixels"),
        ({"size": True}, "must be a number of pixels"),
        ({"size": 10**9}, "8 to 1024"),
        ({"image_mean": [1, 2]}, "three numbers"),
        ({"image_std": [0, 1, 1]}, "above 0"),
        ({"image_mean": ["a", "b", "c"]}, "three numbers"),
        ({"resample": 9}, "resample is 9"),
        ({"rescale_factor": 0}, "rescale_factor is 0"),
        ({"do_flip_channel_order": True}, "blue, green, red"),
    ],
)
def test_wrong_files_are_refused(data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        complete(from_preprocessor(data))


@given(st.dictionaries(st.sampled_from(["size", "mean", "std", "resample", "preprocessor"]), st.text(max_size=20)))
def test_any_metadata_is_read_or_refused(metadata: dict[str, str]) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(complete(from_metadata(metadata)), Preprocess)


PREPROCESSES = st.builds(
    Preprocess, st.integers(8, 1024), st.tuples(NUMBERS, NUMBERS, NUMBERS), st.tuples(*[st.floats(0.01, 9)] * 3),
    st.sampled_from(["bilinear", "bicubic", "nearest", "lanczos"]),
)  # fmt: skip


@given(PREPROCESSES, st.text(), st.one_of(st.none(), st.text()))
def test_records_are_plain_data(preprocess: Preprocess, source: str, pinned: str | None) -> None:
    identity = Identity(source, "ab" * 32, preprocess, 5, pinned)
    assert Identity.from_dict(identity.to_dict()) == identity


@pytest.mark.parametrize("change", [{"sha256": "x"}, {"features": 0}, {"source": 1}, {"preprocess": {}}, {"more": 1}])
def test_wrong_records_are_refused(change: dict[str, Any]) -> None:
    record = Identity("a", "ab" * 32, complete({}), 5).to_dict()
    with pytest.raises(ValueError, match="backbone"):
        Identity.from_dict(record | change)
