"""Checks of the estimator's parameters: a wrong one is refused by the name that the user wrote."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from sklearn.utils import check_random_state
from torch import nn

from ..config import SearchName
from ..config.images import Color, InputKind, check_copies, check_image_size
from ..config.presets import AUGMENTATION, PresetName

if TYPE_CHECKING:
    from .clustering import SurpriseClustering

CHOICES: dict[str, tuple[str | None, ...]] = {
    "input": get_args(InputKind),
    "preset": get_args(PresetName),
    "search": (*get_args(SearchName), None),
    "augmentation": ("auto", *AUGMENTATION),
    "color": get_args(Color),
}
MOST_THREADS = 1024


def check_params(estimator: SurpriseClustering) -> None:
    """Refuse parameters that are wrong whatever the images are."""
    for name, known in CHOICES.items():
        value = getattr(estimator, name)
        if not any(value is choice or (isinstance(value, str) and value == choice) for choice in known):
            raise _wrong(name, value, "one of " + ", ".join(map(str, known)))
    for name in ("max_clusters", "n_clusters", "n_init"):
        if (value := getattr(estimator, name)) is not None or name == "max_clusters":
            integer(name, value)
    if (threads := estimator.n_threads) is not None and not 1 <= integer("n_threads", threads) <= MOST_THREADS:
        raise _wrong("n_threads", threads, f"from 1 to {MOST_THREADS}, or None for all that the process may use")
    check_image_size(estimator.image_size, "image_size")
    _check_backbone(estimator)
    for name in ("min_confidence", "max_novelty"):
        limit = getattr(estimator, name)
        if not isinstance(limit, numbers.Real) or isinstance(limit, bool) or not 0 <= float(limit) <= 1:
            raise _wrong(name, limit, "a number from 0 to 1")
    if not isinstance(estimator.device, str):
        raise _wrong("device", estimator.device, 'a name such as "cpu", "cuda" or "auto"')
    if not isinstance(estimator.settings, Mapping | None):
        raise _wrong("settings", estimator.settings, "a dict of settings")
    _check_random_state(estimator.random_state)
    _check_image_shape(estimator.image_shape)


def _check_backbone(estimator: SurpriseClustering) -> None:
    backbone = estimator.backbone
    if not isinstance(backbone, str | nn.Module | None) or backbone == "":
        raise _wrong("backbone", backbone, "a torch.nn.Module, an ONNX file, hf:ORG/NAME or a name of `cts backbones`")
    if not isinstance(estimator.freeze_backbone, bool | np.bool_):
        raise _wrong("freeze_backbone", estimator.freeze_backbone, "True or False")
    if estimator.freeze_backbone and backbone is None:
        raise ValueError("freeze_backbone is True, but there is no backbone; give one, or leave freeze_backbone out")
    for name in ("backbone_size", "copies"):
        if (value := getattr(estimator, name)) is not None and not isinstance(backbone, str):
            raise ValueError(f"{name} is {value!r}, but there is no backbone that is named by a string")
    if estimator.input == "embeddings":
        for name in ("backbone", "image_size", "image_shape"):
            if (value := getattr(estimator, name)) is not None:
                raise ValueError(f"{name} is {value!r}, but with input='embeddings' there are no images for it")
    check_image_size(estimator.backbone_size, "backbone_size")
    if (copies := estimator.copies) is not None:
        check_copies(integer("copies", copies), "copies")
    if isinstance(backbone, str) and (size := estimator.image_size) is not None:
        raise ValueError(f"image_size is {size}; with a backbone that is named give backbone_size instead")


def _check_image_shape(shape: Any) -> None:
    sides = shape if isinstance(shape, tuple | list) else () if shape is None else (None,)
    if not all(isinstance(side, int | np.integer) and not isinstance(side, bool) for side in sides):
        raise _wrong("image_shape", shape, "(H, W), (H, W, C) or (C, H, W)")


def _check_random_state(random_state: Any) -> None:
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if not whole and not isinstance(random_state, np.random.RandomState | None):
        raise _wrong("random_state", random_state, "an integer, a numpy RandomState or None")
    if whole and not 0 <= random_state < 2**63:
        raise _wrong("random_state", random_state, "from 0 to 2**63 - 1")


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """A seed from any random_state that scikit-learn accepts."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def integer(name: str, value: Any) -> int:
    """An integer parameter as a Python int, which can be saved."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _wrong(name, value, "an integer")
    return operator.index(value)


def _wrong(name: str, value: Any, expected: str) -> ValueError:
    return ValueError(f"{name} is {value!r}; it must be {expected}")
