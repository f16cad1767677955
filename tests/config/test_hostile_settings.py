"""Configurations and schedules that someone made to do harm: refused soon, within bounded memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.place import refused, tolerated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from converge_to_surprise import cli
from converge_to_surprise.config import Config, SettingError, Stage, files, memory
from converge_to_surprise.config.storage import LARGEST_JSON, read_json
from converge_to_surprise.search import schedule

fuzz = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def deep(text: str) -> str:
    return text * 100_000


HOSTILE_JSON = {
    "nested lists": deep("["),
    "nested and closed": deep("[") + deep("]"),
    "nested objects": deep('{"a":'),
    "NaN": '{"seed": NaN}',
    "Infinity": '{"checkpoint_seconds": Infinity}',
    "minus Infinity": '{"checkpoint_seconds": -Infinity}',
    "a number of 5,000 digits": '{"seed": ' + "9" * 5000 + "}",
    "a number too large for a float": '{"checkpoint_seconds": 1e999}',
    "eternity": '{"schedule": ["x=evolution:1000000000000000000"]}',
    "a stage that is a number": '{"schedule": [5]}',
    "a stage of stages": '{"schedule": [["x=evolution:1"]]}',
    "a population of 1e30": '{"evolution": {"population": 1000000000000000000000000000000}}',
    "a ramp of 1e400": '{"evolution": {"ramp_epochs": 1' + "0" * 400 + "}}",
    "a zoom of 1e30": '{"augmentation": {"zoom_out": [0, 1000000000000000000000000000000]}}',
    "bytes that are no text": "\udcff\udcfe",
    "a lone surrogate": '{"device": 5, "\\ud800": 1}',
}


@pytest.mark.parametrize("name", HOSTILE_JSON)
def test_hostile_configurations(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(HOSTILE_JSON[name].encode("utf-8", "surrogateescape"))
    refused(lambda: files.overlay(Config(), files.read(path)))
    assert cli.main(["fit", "digits", "--out", str(tmp_path / "run"), "--config", str(path)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert message.startswith("cts: ")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", [deep("a = ["), deep("a."), "a = nan\nseed = inf", "seed = 0x" + "f" * 5000])
def test_hostile_toml(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"."):
        files.overlay(Config(), files.read(path))


def test_endless_files_are_not_read_to_the_end(tmp_path: Path) -> None:
    for name in ("c.toml", "c.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)  # a hole: it takes no memory on the disk
    refused(lambda: files.read(tmp_path / "c.toml"), "more than 1,048,576 bytes")
    with pytest.raises(ValueError, match=f"more than {LARGEST_JSON:,} bytes"):
        read_json(tmp_path / "c.json")


@fuzz
@given(st.text(alphabet="ab=:@019-. \0\n", max_size=30))
def test_any_word_as_a_stage(word: str) -> None:
    tolerated(lambda: Stage.parse(word))


def test_a_schedule_is_counted_without_walking_through_it() -> None:
    config = Config(schedule=(Stage("long", "evolution", 10**9, 10**9, 1), Stage("m", "merge", 10**9)))
    assert schedule.count_steps(config, 60_000) == 10**9 * 20 + 10**18 + 1
    with pytest.raises(SettingError, match="epochs of stage x is 1000000001; it must be at most 1,000,000,000"):
        Stage("x", "evolution", 10**9 + 1)


STAGES = st.builds(
    lambda kind, epochs, passes, every: Stage("s", kind, epochs, *((passes, every) if kind == "evolution" else ())),
    st.sampled_from(["evolution", "relaxed", "merge", "refine", "consolidate"]),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 4),
)


@fuzz
@given(st.lists(STAGES, min_size=1, max_size=4), st.integers(1, 7000))
def test_the_count_is_that_of_the_steps(stages: list[Stage], images: int) -> None:
    config = Config(schedule=tuple(stages))
    assert schedule.count_steps(config, images) == sum(1 for _ in schedule.steps(config, images))


def test_free_memory_is_plausible() -> None:
    assert 10_000_000 < memory.free_memory() <= 2**50
