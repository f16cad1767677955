"""Checks of settings; the message of a failed check names the setting and its value."""

from __future__ import annotations

MOST = 10**9  # upper limit of every integer setting but the seed


class SettingError(ValueError):
    """A setting has a wrong value; the message names both."""

    def __init__(self, message: str, setting: str = "") -> None:
        super().__init__(message)
        self.setting = setting
        """The name with which the message begins, if it begins with one."""


def is_number(value: object) -> bool:
    """Whether a value is a finite number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def check(condition: bool, name: str, value: object, expected: str, most: int = MOST) -> None:
    if not condition:
        raise SettingError(f"{name} is {value!r}; it must be {expected}", name)
    if isinstance(value, int) and value > most:
        raise SettingError(f"{name} is {value!r}; it must be at most {most:,}", name)
