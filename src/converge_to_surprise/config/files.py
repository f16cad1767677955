"""Configurations as plain data: read from TOML or JSON, applied on top of a preset, saved with a run."""

from __future__ import annotations

import dataclasses
import types
import typing
from pathlib import Path
from typing import Any, Literal, TypeVar

from .checks import check
from .settings import Config
from .stage import Stage
from .storage import read_bounded
from .text import parse_json, parse_toml

LARGEST = 1 << 20
"""Bytes of a configuration file."""

_T = TypeVar("_T")


def to_dict(config: Config) -> dict[str, Any]:
    """The configuration as plain data, the inverse of ``overlay(Config(), data)``."""
    data = dataclasses.asdict(config)
    data["schedule"] = [str(stage) for stage in config.schedule]
    return data


def overlay(base: _T, data: object, where: str = "") -> _T:
    """``base`` with the values in ``data`` (nested dictionaries, as read from TOML or JSON) in their place."""
    if not isinstance(data, dict):
        raise ValueError(f"{where or 'the configuration'} is {data!r}; it must be a table of settings")
    hints = typing.get_type_hints(type(base))
    changes: dict[str, Any] = {}
    for key, value in data.items():
        path = f"{where}.{key}" if where else str(key)
        if key not in hints:
            raise ValueError(f"unknown setting {path!r}; known here: {', '.join(sorted(hints))}")
        current = getattr(base, key)
        nested = dataclasses.is_dataclass(current)
        changes[key] = overlay(current, value, path) if nested else typed(value, hints[key], path)
    return dataclasses.replace(base, **changes)  # type: ignore[type-var]


def typed(value: object, hint: Any, path: str) -> Any:
    """``value`` as the annotated type, or a ValueError that names ``path``."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        check(value in args, path, value, "one of " + ", ".join(map(str, args)))
        return value
    if origin in (typing.Union, types.UnionType):
        named = [choice for other in args if typing.get_origin(other) is Literal for choice in typing.get_args(other)]
        return value if value is None or value in named else typed(value, args[0], path)
    if origin is tuple:
        check(isinstance(value, (list, tuple)), path, value, "a list")
        items = typing.cast("list[object]", value)
        if args[-1] is Ellipsis:
            args = args[:1] * len(items)
        check(len(items) == len(args), path, value, f"a list of {len(args)}")
        return tuple(typed(item, kind, path) for item, kind in zip(items, args, strict=True))
    if hint is Stage:
        return Stage.parse(str(value))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        check(abs(value) < 2**1000, path, value, "a number that fits a float", most=2**1000)
        return float(value)
    matches = isinstance(value, hint) and not (hint is int and isinstance(value, bool))
    check(matches, path, value, f"of type {hint.__name__}", most=2**63)
    return value


def read(path: Path) -> dict[str, Any]:
    """The settings in a ``.toml`` or ``.json`` file."""
    try:
        text = read_bounded(path, LARGEST).decode("utf-8")
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read the configuration {path}: {error}") from None
    try:
        data = parse_json(text) if path.suffix == ".json" else parse_toml(text)
    except ValueError as error:
        raise ValueError(f"the configuration {path} is not valid {path.suffix[1:] or 'toml'}: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"the configuration {path} must be a table of settings")
    return data
