"""The descriptions of settings, read from the source of their dataclasses."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any


def field_docs(kind: type) -> dict[str, str]:
    """The text below each field of a dataclass, in one line.

    >>> from .settings import Relaxed
    >>> field_docs(Relaxed)["neighbor_prob"]
    'Probability that view j comes from a neighbor.'
    """
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    name: str | None = None
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and name is not None:
            found[name] = " ".join(str(node.value.value).split())
            name = None
        else:
            name = None
    return found


def leaf(settings: Any, path: str) -> tuple[Any, str]:
    """The value and the description of the setting at a dotted path."""
    *sections, name = path.split(".")
    for section in sections:
        settings = getattr(settings, section)
    return getattr(settings, name), field_docs(type(settings)).get(name, "")


def leaves(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Path, value and description of every setting in nested dataclasses."""
    docs = field_docs(type(settings))
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from leaves(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value, docs.get(field.name, "")
