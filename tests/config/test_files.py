"""Configurations as plain data: what is written is read back, and a mistake is named by its path."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.cli import fit
from converge_to_surprise.config import Augmentation, Config, Consolidation, Evolution, Network, Stage, Views, presets
from converge_to_surprise.config.files import overlay, read, to_dict

SHARE = st.floats(0, 1, exclude_max=True)
CONFIGS = st.builds(
    Config,
    seed=st.integers(0, 2**63 - 1),
    threads=st.integers(0, 1024),
    checkpoint_seconds=st.floats(0, 1e6),
    schedule=st.lists(
        st.sampled_from(
            [Stage("explore", "evolution", 7), Stage("strong", "evolution", 3, 4, 25), Stage("m", "merge", 1)]
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    views=st.builds(Views, fill_masked=st.booleans(), upsample=st.integers(1, 8))
    | st.builds(Views, fill_masked=st.just(True), background=st.sampled_from(["keep", "remove"])),
    augmentation=st.builds(
        Augmentation,
        rotation=st.floats(0, 180),
        crop=st.integers(0, 9),
        zoom_out=st.integers(0, 9).map(lambda low: (low, low + 2)),
        brightness=SHARE,
        sampling=st.sampled_from(["nearest", "bilinear"]),
        fill=st.sampled_from(["black", "image", "background"]),
    ),
    max_clusters=st.integers(64, 4096),
    n_clusters=st.none() | st.integers(1, 64),
    n_init=st.integers(1, 1000),
    network=st.builds(Network, width=st.integers(1, 512), padding=st.sampled_from(["black", "background"])),
    evolution=st.builds(
        Evolution, population=st.integers(1, 99).map(lambda pairs: 2 * pairs), sigma=st.floats(1e-9, 9)
    ),
    consolidation=st.builds(Consolidation, tau=SHARE, logit_scale=st.floats(1e-3, 1e3)),
)


@given(CONFIGS)
def test_written_and_read_back_unchanged(config: Config) -> None:
    data = json.loads(json.dumps(to_dict(config), allow_nan=False))
    assert overlay(Config(), data) == config


def test_a_part_changes_only_what_it_names() -> None:
    base = Config(seed=3, evolution=Evolution(sigma=0.5))
    changed = overlay(base, {"evolution": {"population": 8}})
    assert changed == dataclasses.replace(base, evolution=Evolution(sigma=0.5, population=8))
    assert base.evolution.population == 32
    assert overlay(base, {}) == base


def test_integers_are_accepted_where_fractions_are_wanted() -> None:
    rotation = overlay(Config(), {"augmentation": {"rotation": 20}}).augmentation.rotation
    assert rotation == 20.0
    assert isinstance(rotation, float)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"speed": 3}, "unknown setting 'speed'; known here: .*seed"),
        ({"evolution": {"popluation": 4}}, "unknown setting 'evolution.popluation'; known here: .*population"),
        ({1: 2}, "unknown setting '1'"),
        ({"evolution": 5}, "evolution is 5; it must be a table"),
        ([], r"the configuration is \[\]; it must be a table"),
        ({"seed": "7"}, "seed is '7'; it must be of type int"),
        ({"seed": 7.0}, "seed is 7.0; it must be of type int"),
        ({"seed": True}, "seed is True; it must be of type int"),
        ({"seed": None}, "seed is None; it must be of type int"),
        ({"n_clusters": "7"}, "n_clusters is '7'; it must be of type int"),
        ({"n_clusters": 0}, "n_clusters is 0; it must be at least 1"),
        ({"device": 3}, "device is 3; it must be of type str"),
        ({"views": {"fill_masked": 1}}, "views.fill_masked is 1; it must be of type bool"),
        ({"evolution": {"sigma": "small"}}, "evolution.sigma is 'small'; it must be of type float"),
        ({"evolution": {"sigma": True}}, "evolution.sigma is True; it must be of type float"),
        ({"evolution": {"sigma": 10**400}}, "evolution.sigma is 10+; it must be a number that fits a float"),
        ({"augmentation": {"sampling": "cubic"}}, "augmentation.sampling is 'cubic'; it must be one of nearest, bilin"),
        ({"augmentation": {"zoom_out": 3}}, "augmentation.zoom_out is 3; it must be a list"),
        ({"augmentation": {"zoom_out": [1, 2, 3]}}, r"augmentation.zoom_out is \[1, 2, 3\]; it must be a list of 2"),
        ({"augmentation": {"zoom_out": [1, "b"]}}, "augmentation.zoom_out is 'b'; it must be of type int"),
        ({"schedule": "x=evolution:3"}, "schedule is 'x=evolution:3'; it must be a list"),
        ({"schedule": ["x=evolution"]}, "schedule stage 'x=evolution' is not of the form"),
        ({"schedule": [5]}, "schedule stage '5' is not of the form"),
        ({"schedule": []}, "schedule is .*; it must be at least one stage"),
        ({"evolution": {"population": 31}}, "evolution.population is 31; it must be an even number"),
    ],
)
def test_mistakes_are_named(data: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        overlay(Config(), data)


TOML = """
seed = 5
schedule = ["explore=evolution:3", "strong=evolution:2:4@1"]
[evolution]
sigma = 1
[augmentation]
zoom_out = [2, 6]
"""
SAME_AS_JSON = {
    "seed": 5,
    "schedule": ["explore=evolution:3", "strong=evolution:2:4@1"],
    "evolution": {"sigma": 1},
    "augmentation": {"zoom_out": [2, 6]},
}


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TOML)
    (tmp_path / "a.json").write_text(json.dumps(SAME_AS_JSON))
    from_toml, from_json = (overlay(Config(), read(tmp_path / name)) for name in ("a.toml", "a.json"))
    assert from_toml == from_json
    assert from_toml.schedule == (Stage("explore", "evolution", 3), Stage("strong", "evolution", 2, 4, 1))
    assert (from_toml.seed, from_toml.evolution.sigma, from_toml.augmentation.zoom_out) == (5, 1.0, (2, 6))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"{", "a.json is not valid json"),
        ("a.json", b"[1, 2]", "a.json must be a table"),
        ("a.toml", b"seed =", "a.toml is not valid toml"),
        ("a.toml", b"\xff\xfe", "cannot read the configuration .*a.toml"),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / name)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(ValueError, match="cannot read the configuration") as refused:
            read(path)
        assert str(path) in str(refused.value)


def effective(tmp_path: Path, *flags: str, **settings: Any) -> Config:
    """The configuration of ``cts fit`` with these flags and, if there are any, these settings in a file."""
    words = ["digits", "--out", str(tmp_path / "run"), "--preset", "paper", *flags]
    if settings:
        (tmp_path / "settings.json").write_text(json.dumps(settings))
        words += ["--config", str(tmp_path / "settings.json")]
    return fit.effective_config(fit.parse_words(words), 50, (1, 8, 8))


def test_preset_then_file_then_flag(tmp_path: Path) -> None:
    preset = presets.resolve("paper", None, "digits", 50, (1, 8, 8))
    file = {"evolution": {"sigma": 0.1, "population": 16}, "seed": 4}
    alone = effective(tmp_path, "--threads", "1")
    assert alone == dataclasses.replace(preset, threads=1)
    with_file = effective(tmp_path, "--threads", "1", **file)
    assert with_file == overlay(alone, file)
    both = effective(tmp_path, "--threads", "1", "--evolution.sigma", "0.3", "--schedule", "x=evolution:2", **file)
    assert (both.evolution.sigma, both.evolution.population, both.seed) == (0.3, 16, 4)
    assert both.schedule == (Stage("x", "evolution", 2),)
    assert (both.evolution.batch_size, both.augmentation) == (preset.evolution.batch_size, preset.augmentation)


def test_a_flag_with_the_general_default_still_beats_the_preset_and_the_file(tmp_path: Path) -> None:
    # The paper's augmentation of digits has a crop of 2; 0 is what a plain Config has.
    config = effective(tmp_path, "--augmentation.crop", "0", "--seed", "0", augmentation={"crop": 1}, seed=9)
    assert (config.augmentation.crop, config.seed) == (0, 0)


def test_threads_are_settled_before_the_run(tmp_path: Path) -> None:
    assert effective(tmp_path).threads >= 1
