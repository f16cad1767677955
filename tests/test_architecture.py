"""Imports point downward only: app → report, experiments → use → screen → run → learn and data → core → config."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import converge_to_surprise

ROOT = Path(converge_to_surprise.__file__).parent
LEVEL = {
    "config": 0, "core": 1, "learn": 2, "data": 2, "configfile": 2, "presets": 2, "run": 3, "screen": 4,
    "use": 5, "report": 6, "experiments": 6,
}  # fmt: skip
TOP = 7
"""Everything else: command line, estimator."""
MODULES = sorted(ROOT.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """Rooms of this package that a module imports."""
    depth = len(path.relative_to(ROOT).parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            found |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
        assert not (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("converge_to_surprise"))
    return found - {"__version__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downward(path: Path) -> None:
    own = room(path)
    for other in imported_rooms(path):
        level, other_level = LEVEL.get(own, TOP), LEVEL.get(other, TOP)
        assert other == own or other_level < level or (level == other_level == TOP), f"{own} imports {other}"


def test_learn_knows_nothing_of_data_and_data_nothing_of_learn() -> None:
    for path in MODULES:
        if room(path) in ("learn", "data"):
            assert not imported_rooms(path) & ({"learn", "data"} - {room(path)})


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_does_one_thing(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300
    assert path.stem not in ("utils", "misc", "helpers", "common")
