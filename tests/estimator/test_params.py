"""Wrong parameters, images and files are refused by the name that the user wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from support.estimators import TINY, tiny
from torch import Tensor

from converge_to_surprise import SurpriseClustering
from converge_to_surprise.config import Config, Stage, check_n_clusters, presets
from converge_to_surprise.data.synthetic import striped_images

EVOLVED = {**TINY, "schedule": ["explore=evolution:1"], "evolution": {"population": 2}}


@pytest.fixture(scope="module")
def images() -> Tensor:
    return striped_images(60)[0]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"preset": "Fast"}, "preset is 'Fast'; it must be one of fast, paper"),
        ({"preset": None}, "preset is None; it must be one of fast, paper"),
        ({"preset": ["fast"]}, "preset is ['fast']; it must be one of"),
        ({"search": "Relaxed"}, "search is 'Relaxed'; it must be one of evolution, guided, relaxed"),
        (
            {"augmentation": "flip"},
            "augmentation is 'flip'; it must be one of auto, mnist, fashion-mnist, usps, digits",
        ),
        ({"color": "red"}, "color is 'red'; it must be one of auto, gray, rgb"),
        ({"n_clusters": 0}, "n_clusters is 0; it must be at least 1"),
        ({"n_clusters": "3"}, "n_clusters is '3'; it must be an integer"),
        ({"n_clusters": 13}, "n_clusters is 13; it must be at most max_clusters, which is 12"),
        ({"n_clusters": 61, "max_clusters": 64}, "n_clusters is 61; it must be at most the number of images"),
        ({"n_clusters": 3, "settings": EVOLVED}, "n_clusters is 3; it must be left out: the schedule has no merge"),
        ({"max_clusters": None}, "max_clusters is None; it must be an integer"),
        ({"image_size": 2}, "image_size is 2; it must be an integer from 8 to 1024"),
        ({"freeze_backbone": True}, "freeze_backbone is True, but there is no backbone"),
        ({"freeze_backbone": "yes"}, "freeze_backbone is 'yes'; it must be True or False"),
        ({"n_threads": 0}, "n_threads is 0; it must be from 1 to 1024"),
        ({"n_threads": -1}, "n_threads is -1; it must be from 1 to 1024"),
        ({"n_threads": "all"}, "n_threads is 'all'; it must be an integer"),
        ({"random_state": -1}, "random_state is -1; it must be from 0"),
        ({"random_state": "luck"}, "random_state is 'luck'; it must be an integer"),
        ({"min_confidence": "high"}, "min_confidence is 'high'; it must be a number from 0 to 1"),
        ({"min_confidence": 1.5}, "min_confidence is 1.5; it must be a number from 0 to 1"),
        ({"max_novelty": -0.5}, "max_novelty is -0.5; it must be a number from 0 to 1"),
        ({"device": None}, "device is None; it must be a name"),
        ({"settings": "fast"}, "settings is 'fast'; it must be a dict"),
        ({"image_shape": "8x8"}, "image_shape is '8x8'; it must be (H, W)"),
        ({"image_shape": 8}, "image_shape is 8; it must be (H, W)"),
    ],
)
def test_a_wrong_parameter_is_named_as_the_user_wrote_it(images: Tensor, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"^") as refused:
        tiny(**params).fit(images)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


@given(st.text(max_size=8))
def test_only_the_known_names_of_presets_and_searches_are_taken(word: str) -> None:
    shape = (1, 8, 8)
    if word not in ("fast", "paper"):
        with pytest.raises(ValueError, match="preset is"):
            presets.resolve(word, None, "auto", 100, shape)  # type: ignore[arg-type]
    if word not in ("relaxed", "evolution"):
        with pytest.raises(ValueError, match="search is"):
            presets.resolve("fast", word, "auto", 100, shape)  # type: ignore[arg-type]


@given(wanted=st.integers(1, 80), most=st.integers(2, 80), count=st.integers(1, 80))
def test_a_number_of_clusters_is_taken_if_there_can_be_so_many(wanted: int, most: int, count: int) -> None:
    merged = (Stage("search", "relaxed", 1), Stage("merge", "merge", 1))
    if wanted <= most and wanted <= count:
        check_n_clusters(Config(n_clusters=wanted, max_clusters=most, schedule=merged), count)
        return
    with pytest.raises(ValueError, match=f"n_clusters is {wanted}; it must be at most"):
        check_n_clusters(Config(n_clusters=wanted, max_clusters=most, schedule=merged), count)


def test_fewer_clusters_than_asked_for_are_told(images: Tensor) -> None:
    with pytest.warns(ConvergenceWarning, match="n_clusters is 11, but only [0-9] clusters came out"):
        tiny(n_clusters=11).fit(images)


@pytest.mark.parametrize("cut", ["3", 2.5, True, None])
def test_a_cut_is_an_integer(images: Tensor, cut: Any) -> None:
    fitted = tiny().fit(images)
    if cut is None:
        assert (fitted.cut(cut).labels_ == fitted.labels_).all()
        return
    with pytest.raises(ValueError, match=f"n_clusters is {cut!r}; it must be an integer"):
        fitted.cut(cut)


@pytest.mark.parametrize(
    ("given_images", "message"),
    [
        ([np.zeros((8, 8)), np.zeros((9, 9))], "X holds images of different shapes: (8, 8) first and (9, 9) at 1"),
        ([torch.zeros(8, 8), torch.zeros(8, 7)], "X holds images of different shapes: (8, 8) first and (8, 7) at 1"),
        ([[1, 2, 3, 4], [5, 6]], "X holds images of different shapes: (4,) first and (2,) at 1"),
        ([[[1, 2], [3]], [[1, 2], [3]]], "X holds a list that is no image: its rows differ in length"),
        (["a.png", np.zeros((8, 8))], "X mixes paths with other things"),
        ([None, None], "X holds None at 0, which is neither an image nor a path"),
        ([], "X is empty"),
        ({"a": 1}, "X is of type dict; give arrays"),
        (None, "X is of type NoneType; give arrays"),
        (b"bytes", "X is of type bytes; give arrays"),
        ((one for one in range(3)), "X is of type generator; give arrays"),
    ],
)
def test_what_is_no_set_of_images_is_told_in_one_line(given_images: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"^") as refused:
        tiny().fit(given_images)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


FOREIGN: dict[str, Callable[[Path], Any]] = {
    "empty": lambda path: path.touch(),
    "text": lambda path: path.write_text("some words that are longer than a header"),
    "json": lambda path: path.write_text('{"a": 1}'),
    "picture": lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100)),
    "pickle": lambda path: torch.save({"a": torch.zeros(3)}, path),
    "bytes": lambda path: path.write_bytes(bytes(range(256)) * 8),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_no_model(kind: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    FOREIGN[kind](path)
    with pytest.raises(ValueError, match=r"^") as refused:
        SurpriseClustering.load(path)
    assert str(refused.value) == f"cannot read the model {path}: it is not a model file of this program"


def test_what_else_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "foreign.safetensors"
    safetensors.torch.save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match="it is a safetensors file, but not a model of this program"):
        SurpriseClustering.load(path)
    for wrong in (None, 5, b"model"):
        with pytest.raises(ValueError, match=r"path is .*; it must be"):
            SurpriseClustering.load(wrong)  # type: ignore[arg-type]
