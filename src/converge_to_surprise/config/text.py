"""Parse untrusted JSON and TOML text: returns plain data or raises ValueError. Make text safe for a terminal line."""

from __future__ import annotations

import json
import tomllib
from typing import Any, NoReturn


def parse_json(text: str | bytes) -> Any:
    """Parse JSON. NaN, infinities and too deep nesting are refused.

    >>> parse_json('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def one_line(text: object, longest: int = 1000) -> str:
    """Text for one line of a terminal: control characters and line breaks are escaped.

    >>> one_line("runs\\x1b[2J\\nmine"), one_line("é" * 9, longest=5)
    ('runs\\\\x1b[2J\\\\nmine', 'ééééé…')
    """
    words = str(text)
    cut = words if len(words) <= longest else words[:longest] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
