"""Help, mistakes and ``cts show`` import none of the heavy libraries; the help shows the values a run would use."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from support.description import DESCRIPTION

from converge_to_surprise import cli
from converge_to_surprise.cli.fit import SHORT_HELP
from converge_to_surprise.cli.parser import COMMANDS
from converge_to_surprise.config import Config
from converge_to_surprise.config.describe import leaf, leaves
from converge_to_surprise.config.presets import KNOWN_SIZES, PresetName, resolve
from converge_to_surprise.model.pretrained.catalog import CATALOG
from converge_to_surprise.runs.folder import RunFolder

HEAVY = ("torch", "sklearn", "scipy")
PROGRAM = f"""
import json, sys
from converge_to_surprise import cli
try:
    code = cli.main(sys.argv[1:])
except SystemExit as stop:
    code = stop.code
print(json.dumps([code, [name for name in {HEAVY} if name in sys.modules]]), file=sys.stderr)
"""


class Outcome(NamedTuple):
    code: int
    heavy: list[str]
    """Which of the heavy libraries were imported."""
    out: str
    err: str


def start(*words: str | Path) -> Outcome:
    """Run the command line in a new process."""
    line = [sys.executable, "-c", PROGRAM, *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    *err, last = done.stderr.splitlines(keepends=True)
    code, heavy = json.loads(last)
    return Outcome(code, heavy, done.stdout, "".join(err))


@pytest.mark.subprocess
@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        ([], 2, ""),
        (["--help"], 0, "usage: cts COMMAND"),
        (["--version"], 0, "converge-to-surprise "),
        (["fit", "--help"], 0, "usage: cts fit SOURCE"),
        (["fit", "digits", "--help"], 0, "for the data set digits"),
        (["fit", "--help-all"], 0, "--consolidation.logit-scale"),
        *(([name, "--help"], 0, f"usage: cts {name}") for name in COMMANDS if name != "fit"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_help_imports_nothing_heavy(words: list[str], code: int, shown: str) -> None:
    outcome = start(*words)
    assert (outcome.code, outcome.heavy) == (code, [])
    assert shown in outcome.out
    assert bool(outcome.err) == (code != 0)


@pytest.mark.subprocess
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fti", "digits"], "there is no command 'fti'; the commands are fit, resume"),
        (["fit", "digits", "--out", "x", "--sede", "1"], "--sede"),
        (["fit", "digits", "--out", "x", "--seed", "-1"], "seed is -1"),
        (["fit", "digits", "--out", "x", "--schedule", "search=relaxd:1"], "relaxd"),
        (["show", "some/run", "--all"], "--all"),
        (["show", "no/such/run"], "no/such/run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_mistakes_import_nothing_heavy(words: list[str], message: str) -> None:
    outcome = start(*words)
    assert (outcome.code, outcome.heavy, outcome.out) == (2, [], "")
    assert message in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.subprocess
def test_show_imports_nothing_heavy(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.make()
    run.describe(DESCRIPTION)
    outcome = start("show", run.path)
    assert (outcome.code, outcome.heavy, outcome.err) == (0, [], "")
    assert "digits: 1,797 images of 1x8x8" in outcome.out
    assert "strong=evolution:3:4@25" in outcome.out


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    with contextlib.suppress(SystemExit):  # the parser's own help ends the program
        assert cli.main(["fit", *words]) == 0
    return capsys.readouterr().out


def options(text: str) -> dict[str, str]:
    """Flag and description of every option of the short help."""
    found = re.findall(r"^  (?:--)?([\w.-]+).*\n((?:      .*\n)+)", text, re.M)
    return {flag: " ".join(described.split()) for flag, described in found}


def text_of(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize("preset", ["fast", "paper"])
@pytest.mark.parametrize("name", KNOWN_SIZES)
def test_short_help_shows_the_values_of_a_data_set(
    name: str, preset: PresetName, capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of(capsys, name, "--preset", preset, "--help")
    shown = options(text)
    config = resolve(preset, None, name, *KNOWN_SIZES[name])
    settings = {path: value for path, value, _ in leaves(config)}
    assert len(shown) == len(SHORT_HELP)
    for path in SHORT_HELP:
        flag = "SOURCE" if path == "source" else path.replace("_", "-")
        assert flag in shown, f"{path} is not in the help"
        if settings.get(path) is not None:
            value, described = leaf(config, path)
            assert shown[flag] == f"{described} ({text_of(value)})"
        elif path in settings:
            assert "(None)" not in shown[flag]
    assert shown["preset"].endswith(f"({preset})")
    assert "--report, --no-report\n" in text, "a switch that is on shows how to turn it off"


def test_short_help_follows_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    config = resolve("fast", "evolution", "usps", *KNOWN_SIZES["usps"])
    shown = options(help_of(capsys, "usps", "--search", "evolution", "--help"))
    assert shown["schedule"].endswith(f"({text_of(config.schedule)})")
    assert shown["search"].endswith("(evolution)")


@pytest.mark.parametrize("width", [60, 80])
def test_short_help_fits_the_terminal(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        narrow = help_of(capsys, "usps", "--help")
        patch.setenv("COLUMNS", "1000")
        wide = help_of(capsys, "usps", "--help")
    assert max(map(len, narrow.splitlines())) <= width
    assert options(narrow) == options(wide)
    assert len(narrow.splitlines()) > len(wide.splitlines())


def test_full_help_shows_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    flags = set(re.findall(r"^[│ ]{1,3}(--[\w.-]+)", help_of(capsys, "--help-all"), re.M))
    wanted = {"--" + path.replace("_", "-") for path, _, _ in leaves(Config())}
    assert len(wanted) > 50
    assert not wanted - flags


@pytest.mark.subprocess
def test_backbones_are_listed_without_anything_heavy() -> None:
    outcome = start("backbones")
    assert (outcome.code, outcome.heavy, outcome.err) == (0, [], "")
    for name, entry in CATALOG.items():
        cells = (name, f"{entry.megabytes} MB", re.escape(entry.license), entry.speed)
        assert re.search(" .* ".join(cells) + " ", outcome.out)
