"""Types of command-line arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from ..config import SettingError, Stage

RunPath = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
SourceName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")]

registry = tyro.constructors.ConstructorRegistry()


class _BadStage(SettingError):
    """A wrong stage: tyro would not show the reason of a ValueError in a list of words."""


def _stage(word: str) -> Stage:
    try:
        return Stage.parse(word)
    except SettingError as error:
        raise _BadStage(str(error)) from None


@registry.primitive_rule
def _stage_rule(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Stage] | None:
    """A stage is written as one word: strong=evolution:1000:4@25."""
    if info.type is not Stage:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="NAME=KIND:EPOCHS[:PASSES@EVERY]",
        instance_from_str=lambda words: _stage(words[0]),
        is_instance=lambda value: isinstance(value, Stage),
        str_from_instance=lambda stage: [str(stage)],
    )
