"""The package follows the picture of its layers in CONTRIBUTING.md, and a few rules that keep it readable."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import converge_to_surprise

PACKAGE = "converge_to_surprise"
ROOT = Path(converge_to_surprise.__file__).parent
CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
MODULES = sorted(ROOT.rglob("*.py"))
ENTRY = ("__init__", "__main__")
"""Modules outside of the rooms; nothing but the version is imported from them."""
MOST_PARAMETERS = 6
MANY_PARAMETERS = {("estimator/clustering.py", "SurpriseClustering.__init__")}
"""scikit-learn wants every parameter of an estimator in its constructor."""
EMPTY_NAMES = {"utils", "misc", "helpers", "common"}


def picture(text: str) -> list[list[str]]:
    """The rooms of each layer, highest first: from the only fenced block with arrows, which alternate with layers."""
    (block,) = [block for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S) if "↓" in block]
    lines = [line.strip() for line in block.strip().splitlines()]
    assert set(lines[1::2]) == {"↓"}
    return [line.split(", ") for line in lines[::2]]


LAYERS = picture(CONTRIBUTING.read_text(encoding="utf-8"))
LEVEL = {room: -depth for depth, rooms in enumerate(LAYERS) for room in rooms}
"""The higher the layer, the larger the number."""


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room(path: Path) -> str:
    """The room of a module, or its own name if it is outside of all rooms."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and room (or module outside of the rooms) of every import from this package, wherever it stands."""
    parents = [PACKAGE, *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) + 1 - node.level] if node.level else []
            names = [".".join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package == PACKAGE:
                yield node.lineno, rest.partition(".")[0]


def misdirected(path: Path) -> list[str]:
    """The imports of a module that do not point to its own room or to a lower layer."""
    own, wrong = room(path), []
    for line, other in imports(path):
        entry = own in ENTRY or other == "__version__"
        if not entry and other != own and not LEVEL.get(other, 1) < LEVEL[own]:
            wrong.append(f"{label(path)}:{line}: {own} imports {other}")
    return wrong


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    """Every function with its dotted name and whether it is defined directly in a class."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node, isinstance(tree, ast.ClassDef)
        inside = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        yield from functions(node, f"{prefix}{node.name}." if inside else prefix)  # type: ignore[attr-defined]


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, method: bool) -> list[str]:
    """The names of a function's parameters, without self and cls."""
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args)]
    if method and names and names[0] in ("self", "cls"):
        names = names[1:]
    return names + [one.arg for one in (given.vararg, *given.kwonlyargs, given.kwarg) if one is not None]


def test_the_picture_has_every_room() -> None:
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    drawn = [name for layer in LAYERS for name in layer]
    assert sorted(drawn) == sorted(rooms)
    assert {path.stem for path in ROOT.glob("*.py")} == set(ENTRY), "every other module belongs to a room"


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_imports_point_downward(path: Path) -> None:
    assert not misdirected(path)


@pytest.mark.parametrize(
    "source",
    [
        "from ..runs import folder",
        "from ..runs.folder import RunFolder",
        "from .. import runs",
        "from ..data.store import ImageStore",
        "import converge_to_surprise.cli.parser",
        "from converge_to_surprise.search import merge",
        "from ..nothing import here",
        "from .. import SurpriseClustering",
        "def later():\n    from ..runs import folder",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..runs import folder",
    ],
)
def test_an_import_that_points_elsewhere_is_found(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a module of the room ``model``."""
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    module = tmp_path / "model" / "some.py"
    module.parent.mkdir()
    module.write_text(
        "from .. import __version__\nfrom ..core import rng\nfrom .network import ResNet9\nimport torch\n"
    )
    assert not misdirected(module)
    module.write_text(source)
    assert len(misdirected(module)) == 1


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_functions_take_few_parameters(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    many = [
        f"{label(path)}:{function.lineno}: {name} takes {count}"
        for name, function, method in functions(tree)
        if (count := len(parameters(function, method))) > MOST_PARAMETERS and (label(path), name) not in MANY_PARAMETERS
    ]
    assert not many


def test_parameters_are_counted() -> None:
    tree = ast.parse("class A:\n  async def f(self, a, /, b=1, *c, d, **e):\n    def g(self): ...\n")
    found = {name: parameters(function, method) for name, function, method in functions(tree)}
    assert found == {"A.f": ["a", "b", "c", "d", "e"], "A.f.g": ["self"]}


def test_names_of_modules_tell_them_apart() -> None:
    """A command may have the name of the module that does its work; otherwise a name is given once."""
    places = defaultdict(set)
    for path in MODULES:
        places[path.stem].add(room(path))
    twice = {name: rooms for name, rooms in places.items() if name not in ENTRY and len(rooms - {"cli"}) > 1}
    assert not twice
    assert not EMPTY_NAMES & places.keys()


def test_names_of_classes_tell_them_apart() -> None:
    places = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(label(path))
    twice = {name: found for name, found in places.items() if len(found) > 1 and name != "Command"}
    assert not twice


def test_the_picture_is_read_from_top_to_bottom() -> None:
    drawn = "text\n```\na, b\n   ↓\nc\n  ↓\nd\n```\n```\nmake test\n```\n"
    assert picture(drawn) == [["a", "b"], ["c"], ["d"]]
    for wrong in (drawn.replace("c\n", ""), drawn + drawn, "no picture"):
        with pytest.raises((AssertionError, ValueError)):
            picture(wrong)
