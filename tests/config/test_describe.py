"""Every setting has a path, a value and a description, read from where it is declared."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import Any

import pytest

from converge_to_surprise.cli.fit import SHORT_HELP, Command
from converge_to_surprise.cli.parser import COMMANDS
from converge_to_surprise.config import Config, Evolution, Network, Relaxed
from converge_to_surprise.config.describe import field_docs, leaf, leaves
from converge_to_surprise.config.files import to_dict


@dataclasses.dataclass(frozen=True)
class Inner:
    """The docstring of a class describes no field."""

    silent: int = 1
    spoken: tuple[int, int] = (2, 3)
    """Two numbers,
    on two lines."""

    def method(self) -> int:
        """Nor does that of a method."""
        return self.silent


@dataclasses.dataclass(frozen=True)
class Outer:
    first: str = "a"
    """The first."""
    inner: Inner = dataclasses.field(default_factory=Inner)


def test_the_text_below_a_field_is_its_description_in_one_line() -> None:
    assert field_docs(Inner) == {"spoken": "Two numbers, on two lines."}
    assert field_docs(Outer) == {"first": "The first."}


def test_leaves_are_paths_values_and_descriptions_in_order() -> None:
    assert list(leaves(Outer(inner=Inner(silent=7)))) == [
        ("first", "a", "The first."),
        ("inner.silent", 7, ""),
        ("inner.spoken", (2, 3), "Two numbers, on two lines."),
    ]


def test_leaves_of_a_configuration_are_all_its_settings() -> None:
    def paths(data: dict[str, Any], prefix: str = "") -> list[str]:
        nested = [paths(v, f"{prefix}{k}.") if isinstance(v, dict) else [prefix + k] for k, v in data.items()]
        return [path for some in nested for path in some]

    assert [path for path, _, _ in leaves(Config())] == paths(to_dict(Config()))


def test_a_leaf_is_found_by_its_path() -> None:
    config = Config(seed=5, evolution=Evolution(chunk_size=9))
    assert leaf(config, "seed")[0] == 5
    assert leaf(config, "evolution.chunk_size")[0] == 9
    for path, value, text in leaves(config):
        assert leaf(config, path) == (value, text)
    with pytest.raises(AttributeError, match="chunk"):
        leaf(config, "evolution.chunk")


def test_every_setting_is_described() -> None:
    assert not [path for path, _, text in leaves(Config()) if not text]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_of_a_command_is_described(command: str) -> None:
    kind = import_module(f"converge_to_surprise.cli.{command}").Command
    assert [field.name for field in dataclasses.fields(kind)] == list(field_docs(kind))


def test_every_option_of_the_short_help_is_described() -> None:
    own = field_docs(Command)
    for path in SHORT_HELP:
        text = own[path] if path in own else leaf(Config(), path)[1]
        assert text, f"{path} has no description"
        assert "\n" not in text


@pytest.mark.parametrize("section", [Network, Relaxed, Config])
def test_descriptions_belong_to_fields(section: type[Any]) -> None:
    names = {field.name for field in dataclasses.fields(section)}
    assert field_docs(section).keys() <= names
    assert field_docs(section)
