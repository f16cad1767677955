"""Every wrong value is refused when a configuration is built, by a message that names the field and the value."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.config import (
    Augmentation,
    Config,
    Consolidation,
    Evolution,
    Merge,
    Network,
    Relaxed,
    Stage,
    StageKind,
    Views,
)

WRONG: list[tuple[type[Any], str, Any]] = [
    (Views, "upsample", 0),
    (Views, "upsample", 9),
    (Augmentation, "rotation", -1.0),
    (Augmentation, "rotation", 181.0),
    (Augmentation, "rotation", math.nan),
    (Augmentation, "rotation_prob", 1.5),
    (Augmentation, "crop_prob", -0.1),
    (Augmentation, "zoom_out_prob", 2.0),
    (Augmentation, "flip_prob", math.nan),
    (Augmentation, "brightness", 1.0),
    (Augmentation, "contrast", -0.5),
    (Augmentation, "saturation", 3.0),
    (Augmentation, "crop", -1),
    (Augmentation, "zoom_out", (6, 2)),
    (Augmentation, "zoom_out", (-1, 2)),
    (Network, "width", 0),
    (Network, "width", 513),
    (Network, "min_active_outputs", 0),
    (Evolution, "population", 0),
    (Evolution, "population", 31),
    (Evolution, "population", -2),
    (Evolution, "sigma", 0.0),
    (Evolution, "sigma", math.inf),
    (Evolution, "learning_rate", -0.1),
    (Evolution, "learning_rate", math.nan),
    (Evolution, "weight_decay", -1e-9),
    (Evolution, "batch_size", 1),
    (Evolution, "ramp_start", 0.0),
    (Evolution, "ramp_start", 1.01),
    (Evolution, "ramp_epochs", 0),
    (Evolution, "score", ""),
    (Evolution, "chunk_size", -1),
    (Relaxed, "temperature", 0.0),
    (Relaxed, "heads", 0),
    (Relaxed, "heads", 257),
    (Relaxed, "batch_size", 1),
    (Relaxed, "learning_rate", 0.0),
    (Relaxed, "diversity", -0.1),
    (Relaxed, "diversity_until", 0.0),
    (Relaxed, "diversity_until", 1.1),
    (Relaxed, "diversity_floor", (0.5, 3)),
    (Relaxed, "diversity_floor", (9, 3)),
    (Relaxed, "neighbors", 0),
    (Relaxed, "neighbor_prob", 1.1),
    (Evolution, "neighbor_prob", -0.1),
    (Relaxed, "refine_learning_rate", 0),
    (Relaxed, "refine_temperature", 0.0),
    (Relaxed, "refine_temperature", math.inf),
    (Merge, "rotation", -1.0),
    (Merge, "rotation", 181.0),
    (Merge, "crop", 1.0),
    (Merge, "min_cluster_fraction", 1.0),
    (Merge, "min_cluster_fraction", -0.1),
    (Consolidation, "tau", -0.001),
    (Consolidation, "learning_rate", math.inf),
    (Consolidation, "batch_size", 1),
    (Consolidation, "logit_scale", 0.0),
]


@pytest.mark.parametrize(("section", "name", "value"), WRONG)
def test_wrong_value_is_named(section: type[Any], name: str, value: Any) -> None:
    with pytest.raises(ValueError, match="must be") as refused:
        section(**{name: value})
    assert str(refused.value).startswith(f"{section.__name__.lower()}.{name} is {value!r}; it must be ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", -1),
        ("seed", 2**63),
        ("n_init", 0),
        ("n_init", 1001),
        ("max_clusters", 1),
        ("max_clusters", 4097),
        ("n_clusters", 0),
        ("n_clusters", -1),
        ("processes", 0),
        ("processes", 1025),
        ("threads", -1),
        ("threads", 1025),
        ("checkpoint_seconds", -0.5),
        ("precision", "float64"),
        ("checkpoint_seconds", math.nan),
        ("schedule", ()),
    ],
)
def test_wrong_top_level_value_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match="must be") as refused:
        Config(**{name: value})
    assert str(refused.value).startswith(f"{name} is {value!r}; it must be ")


@pytest.mark.parametrize(
    ("section", "values"),
    [
        (Views, {"upsample": 8}),
        (Augmentation, {"rotation": 180, "zoom_out": (0, 0), "crop_prob": 0, "flip_prob": 1, "brightness": 0.99}),
        (Network, {"width": 1, "min_active_outputs": 1}),
        (
            Evolution,
            {"population": 2, "batch_size": 2, "learning_rate": 0, "weight_decay": 0, "ramp_start": 1, "chunk_size": 0},
        ),
        (Relaxed, {"heads": 256, "batch_size": 2, "diversity": 0, "diversity_until": 1}),
        (Merge, {"rotation": 0, "crop": 0}),
        (Merge, {"min_cluster_fraction": 0}),
        (Merge, {"min_cluster_fraction": 0.99}),
        (Consolidation, {"tau": 0, "batch_size": 2}),
        (Config, {"seed": 2**63 - 1, "threads": 1024, "checkpoint_seconds": 0}),
        (Config, {"max_clusters": 2, "n_clusters": 1, "n_init": 1000, "processes": 1024}),
        (Config, {"max_clusters": 4096, "n_clusters": None}),
    ],
)
def test_values_at_the_edge_are_accepted(section: type[Any], values: dict[str, Any]) -> None:
    built = section(**values)
    assert {name: getattr(built, name) for name in values} == values


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().evolution.population = 3  # type: ignore[misc]


KINDS: tuple[StageKind, ...] = ("evolution", "relaxed", "merge", "consolidate")
PLAIN = st.builds(
    Stage, st.text("abcxyz-_=:@ ", min_size=1, max_size=8), st.sampled_from(KINDS), st.integers(1, 10**6)
)  # fmt: skip
PERIODIC = st.builds(
    lambda epochs, passes, every: Stage("strong", "evolution", epochs, passes, every),
    *(st.integers(1, 10**6),) * 3,
)


PARTS = st.builds(
    lambda kind, epochs, optional: Stage("part", kind, epochs, optional=optional),
    st.sampled_from(("graph", "relaxed")),
    st.floats(1e-6, 1e6).map(lambda epochs: int(epochs) if epochs.is_integer() else epochs),
    st.booleans(),
)


@given(PLAIN | PERIODIC | PARTS)
def test_stage_survives_being_written(stage: Stage) -> None:
    assert Stage.parse(str(stage)) == stage


def test_stage_forms() -> None:
    assert Stage.parse("strong=evolution:1000:4@25") == Stage("strong", "evolution", 1000, passes=4, every=25)
    assert Stage.parse("explore=evolution:2000") == Stage("explore", "evolution", 2000)
    assert Stage.parse("merge:1") == Stage("merge", "merge", 1)  # without a name the kind is the name


@pytest.mark.parametrize(
    "text",
    ["", "x", "x=evolution", "x=evolution:", "x=evolution:ten", "x=evolution:5:4",
     "x=evolution:5:4@", "x=evolution:5:@25", "x=evolution:5:4@25:6", "x=evolution:5:4@25@6"],
)  # fmt: skip
def test_text_that_is_no_stage(text: str) -> None:
    with pytest.raises(ValueError, match="name=kind:epochs") as refused:
        Stage.parse(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("x=walk:5", "kind of stage x is 'walk'"),
        ("x=evolution:0", "epochs of stage x is 0"),
        ("x=evolution:1.5", "epochs of stage x is 1.5; it must be a whole number"),
        ("x=evolution:inf", "epochs of stage x is inf"),
        ("x=relaxed:nan", "epochs of stage x is nan"),
        ("x=relaxed:0.0", "epochs of stage x is 0"),
        ("x=refine:2?", "only graph and relaxed stages are optional"),
        ("x=evolution:-3", "epochs of stage x is -3"),
        ("x=evolution:5:4@0", "passes@every of stage x is '4@0'"),
        ("x=evolution:5:0@25", "passes@every of stage x is '0@25'"),
        ("x=evolution:5:-1@25", "passes@every of stage x is '-1@25'"),
        ("x=relaxed:5:4@25", "passes@every of stage x is '4@25'; it must be absent"),
    ],
)
def test_stage_with_a_wrong_value(text: str, named: str) -> None:
    with pytest.raises(ValueError, match="must be") as refused:
        Stage.parse(text)
    assert named in str(refused.value)
