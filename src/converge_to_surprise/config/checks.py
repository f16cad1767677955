"""How a setting is refused: the message names it and its value."""

from __future__ import annotations

MOST = 10**9  # no whole number but the seed has a reason to be larger


class SettingError(ValueError):
    """A setting has a wrong value; the message names both."""


def check(condition: bool, name: str, value: object, expected: str, most: int = MOST) -> None:
    if not condition:
        raise SettingError(f"{name} is {value!r}; it must be {expected}")
    if isinstance(value, int) and value > most:
        raise SettingError(f"{name} is {value!r}; it must be at most {most:,}")
