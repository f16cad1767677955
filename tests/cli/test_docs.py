"""What the README and the documentation promise: links that resolve, commands that parse, code that compiles."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
from support.doc_commands import FENCE, command_lines, fences

from converge_to_surprise import cli
from converge_to_surprise.config import Config, describe

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def load_generator() -> ModuleType:
    """The script that writes the generated pages."""
    spec = importlib.util.spec_from_file_location("gen_reference", DOCS / "gen_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()
GENERATED = {DOCS / name for name in GENERATOR.PAGES}
PAGES = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md")} - GENERATED)
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")


def parse(words: Sequence[str]) -> None:
    """Parse one command line of ``cts``, without its first word; SystemExit or ValueError if it is wrong."""
    name, *rest = words
    if name in ("--help", "--version"):
        return
    kind = importlib.import_module(f"converge_to_surprise.cli.{name}").Command
    cli.parser.parse(name, kind, rest)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them of plain words."""
    plain = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", plain, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


COMMANDS = sorted({line for page in PAGES for line in command_lines(page.read_text(encoding="utf-8"))})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists() or file in GENERATED, f"{target} leads nowhere"
        if anchor and file not in GENERATED:
            assert anchor in anchors(file), f"{target}: {file.name} has no such heading"


def test_command_lines_are_found() -> None:
    text = "```\ncts fit a --out b \\\n    --seed 1  # why\nls\n```\n\n```python\ncts = 1\n```\n\n"
    text += "```sh\ntorchrun --nnodes 2 -m converge_to_surprise show 'my run'\n```\n"
    assert command_lines(text) == ["fit a --out b --seed 1", "show 'my run'"]


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_parse(line: str) -> None:
    parse(shlex.split(line))


def test_there_are_commands_of_every_kind() -> None:
    shown = {line.split()[0] for line in COMMANDS}
    assert shown == set(GENERATOR.COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_compile(page: Path) -> None:
    for language, block in fences(page.read_text(encoding="utf-8")):
        if language == "python":
            compile(block, str(page), "exec")


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_no_page_asks_the_network() -> None:
    """Fonts, scripts and styles of the site are local."""
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in settings
    assert "http" not in settings
    assert not any(re.search(r"<(script|link|img|iframe)\b", page.read_text(encoding="utf-8")) for page in PAGES)


def setting_names() -> set[str]:
    """Every setting with its section, as in a configuration file."""
    sections = {field.name: GENERATOR.section_of(field) for field in dataclasses.fields(Config)}
    nested = {name: section for name, section in sections.items() if section is not None}
    return {f"{name}.{field.name}" for name, section in nested.items() for field in dataclasses.fields(section)}


def test_settings_in_the_text_exist() -> None:
    known = setting_names()
    sections = "|".join(sorted({name.partition(".")[0] for name in known}))
    setting = re.compile(rf"`(?:--)?((?:{sections})\.[a-z][a-z_-]*)")
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]  # it names those of earlier versions too
    found = {name.replace("-", "_") for page in pages for name in setting.findall(page.read_text(encoding="utf-8"))}
    assert len(found) > 20
    assert found <= known


def test_reference_names_every_setting() -> None:
    page = GENERATOR.settings_page()
    plain = {field.name for field in dataclasses.fields(Config) if GENERATOR.section_of(field) is None}
    for name in plain | setting_names():
        assert page.count(f"| `{name}` |") == 1


def test_every_setting_and_every_option_has_a_description() -> None:
    assert [path for path, _, text in describe.leaves(Config()) if not text] == []
    for name in GENERATOR.COMMANDS:
        command = importlib.import_module(f"converge_to_surprise.cli.{name}").Command
        described = describe.field_docs(command)
        assert [field.name for field in dataclasses.fields(command) if not described.get(field.name)] == [], name


def test_reference_takes_types_defaults_and_docstrings_from_the_code() -> None:
    page = GENERATOR.settings_page()
    assert "| `evolution.population` | int | `32` |" in page
    assert "| `augmentation.sampling` | `nearest`, `bilinear` | `nearest` |" in page
    assert "Fraction of the parameters perturbed in the first epoch." in page
