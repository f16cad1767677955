"""Plain data from text that anyone may have written: either data comes back or a ValueError."""

from __future__ import annotations

import json
import tomllib
from typing import Any, NoReturn


def parse_json(text: str | bytes) -> Any:
    """What a JSON text says. Numbers that JSON does not have and endless nesting are refused.

    >>> parse_json('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_toml(text: str) -> dict[str, Any]:
    """What a TOML text says."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def one_line(text: object, longest: int = 1000) -> str:
    """Text fit for one line of a terminal: what moves the cursor, colors the screen or breaks the line is spelled out.

    >>> one_line("runs\\x1b[2J\\nmine"), one_line("é" * 9, longest=5)
    ('runs\\\\x1b[2J\\\\nmine', 'ééééé…')
    """
    words = str(text)
    cut = words if len(words) <= longest else words[:longest] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
