"""Write the pages of the reference that are made from the code; ``make docs`` runs this before the build.

    python docs/gen_reference.py

``reference/cli.md`` holds the help texts of every command, ``reference/settings.md`` the fields of the settings
dataclasses with their types, defaults and docstrings. Git ignores both. This is a script and not a hook of MkDocs, so
that other programs that read mkdocs.yml can build the site too.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import inspect
import os
import subprocess
import sys
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
SOURCE = FOLDER.parent / "src"
COMMANDS = (
    "fit", "resume", "deepen", "split", "show", "evaluate", "predict", "similar", "sort", "export", "report", "relabel",
    "compare", "backbones", "reproduce",
)  # fmt: skip
WIDTH = 78
"""Columns of a help text: what fits beside the navigation."""

CLI_INTRODUCTION = """\
# Command line

`cts` is on the path after installation; `python -m converge_to_surprise` is the same program. The texts below are the
output of `--help`.

Exit codes: 0 done; 1 a run failed, or a process was lost; 2 wrong input, with one line on standard error; 128 + n
stopped by signal n (130 for Ctrl-C).

Environment variables: `CTS_DATA` is the folder with local copies of the named data sets, `CTS_CACHE` the folder for
decoded pictures and the features of backbones.
"""

SETTINGS_INTRODUCTION = """\
# Settings

Every setting below is

- a flag of `cts fit`: `--relaxed.temperature 0.03`, with hyphens in place of underscores;
- a key of a TOML or JSON file for `cts fit --config FILE`, with one table per section;
- a key of the dictionary `settings` of `SurpriseClustering`.

Flags override the file, and the file overrides the preset. The defaults below are those of the settings classes; a
[preset](presets.md) sets some of them to other values, depending on the images. The effective values are saved as
`config.json` in the run folder. An unknown name or a wrong value is an error that names it.

```toml title="settings.toml"
seed = 3
n_init = 4
schedule = ["search=relaxed:20", "merge=merge:1", "refine=refine:10"]

[relaxed]
temperature = 0.03

[augmentation]
rotation = 30.0
flip_prob = 0.5
```

A stage of `schedule` is `name=kind:epochs`; a stage of evolution can add consolidation,
`name=evolution:epochs:passes@every`. Kinds are `evolution`, `guided`, `relaxed`, `merge`, `refine` and `consolidate`.
"""


def help_text(*words: str) -> str:
    """The output of ``cts WORDS``, without colors and with a fixed width."""
    plain = {"COLUMNS": str(WIDTH), "LINES": "50", "NO_COLOR": "1", "TERM": "dumb", "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-m", "converge_to_surprise", *words]
    done = subprocess.run(command, env=os.environ | plain, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"`cts {' '.join(words)}` ended with {done.returncode}: {done.stderr.strip()}")
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


def cli_page() -> str:
    """The help of every command, and the full help of those that offer one."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        overview = pool.submit(help_text, "--help")
        short = dict(zip(COMMANDS, pool.map(lambda name: help_text(name, "--help"), COMMANDS), strict=True))
        offering = [name for name, text in short.items() if "--help-all" in text]
        full = dict(zip(offering, pool.map(lambda name: help_text(name, "--help-all"), offering), strict=True))
    parts = [CLI_INTRODUCTION, _block(overview.result())]
    for name, text in short.items():
        parts += [f"## cts {name}", _block(text)]
        if name in full:
            parts += [f"### cts {name} --help-all", _block(full[name])]
    return "\n\n".join(parts) + "\n"


def _block(text: str) -> str:
    return f"```text\n{text}\n```"


def settings_page() -> str:
    """One table per settings class."""
    sys.path.insert(0, str(SOURCE))
    from converge_to_surprise.config import Config

    sections = [(field.name, section_of(field)) for field in dataclasses.fields(Config)]
    parts = [SETTINGS_INTRODUCTION, "## Top level", inspect.getdoc(Config) or "", table(Config)]
    for name, section in sections:
        if section is not None:
            parts += [f"## {name}", inspect.getdoc(section) or "", table(section, f"{name}.")]
    return "\n\n".join(parts) + "\n"


def section_of(field: dataclasses.Field[Any]) -> type | None:
    """The dataclass of a nested section, or None for a plain setting."""
    factory = field.default_factory
    return factory if isinstance(factory, type) and dataclasses.is_dataclass(factory) else None


def table(settings: type, prefix: str = "") -> str:
    """The plain fields of a settings class as a Markdown table."""
    from converge_to_surprise.config.describe import field_docs

    documentation, hints = field_docs(settings), typing.get_type_hints(settings)
    rows = ["| setting | type | default | |", "|---|---|---|---|"]
    for field in dataclasses.fields(settings):
        if section_of(field) is None:
            text = documentation[field.name].replace("|", "\\|")
            rows.append(
                f"| `{prefix}{field.name}` | {type_text(hints[field.name])} | `{default_text(field)}` | {text} |"
            )
    return "\n".join(rows)


def type_text(hint: Any) -> str:
    """A type as a user writes its values."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join("none" if part is type(None) else type_text(part) for part in arguments)
    if origin is tuple:
        return f"list of {type_text(arguments[0])}" if Ellipsis in arguments else ", ".join(map(type_text, arguments))
    return str(getattr(hint, "__name__", hint)).lower()


def default_text(field: dataclasses.Field[Any]) -> str:
    """A default as it is written in a configuration file."""
    value = field.default
    if value is dataclasses.MISSING:
        assert field.default_factory is not dataclasses.MISSING
        value = field.default_factory()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


PAGES: dict[str, Callable[[], str]] = {"reference/cli.md": cli_page, "reference/settings.md": settings_page}


def main() -> None:
    for path, page in PAGES.items():
        (FOLDER / path).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
