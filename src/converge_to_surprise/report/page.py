"""Render content as one self-contained HTML file.

Names of files, classes and clusters are untrusted text. They reach the page in two ways, both inert: through Jinja2
with autoescape, and as JSON in which no character can end the script element. The policy of the page allows only the
one script and the one style sheet whose hashes it lists.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .. import __version__
from ..config.storage import write_atomically
from ..data.store import ImageStore
from ..runs.folder import RunFolder
from .content import Pictures, gather

PROGRAMS = {
    "report": (
        "dom", "palette", "groups", "edits", "thumbs", "similar", "cards", "gallery", "cut", "map", "tree", "inside",
        "charts", "classes", "live", "report",
    ),
    "compare": ("dom", "palette", "charts", "flow", "compare"),
    "similar": ("dom", "theme"),
}  # fmt: skip
"""The files of a page's program, in order."""
CHART_LIBRARY = "uPlot.iife.min.js"

_templates = Environment(
    loader=PackageLoader("converge_to_surprise.report", "static"), autoescape=True, undefined=StrictUndefined
)
_UNSAFE = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def write_report(run: RunFolder, images: ImageStore) -> None:
    """Write the page of a run that has just ended and whose images are in memory."""
    pictures = Pictures(images, run.description().source, own=True)
    write_atomically(run.report, render("report", gather(run, pictures)).encode())


def render(kind: str, content: dict[str, Any], live: bool = False) -> str:
    """The page that shows a content. A live page may also ask its own server for more."""
    program, style = _program(kind), _static("uPlot.min.css") + _static("page.css")
    return _templates.get_template(f"{kind}.html").render(
        content=content,
        title=content["title"],
        policy=policy(program, style, live),
        version=__version__,
        style=Markup(style),  # ours, checked by a test to hold no "</"
        program=Markup(program),
        data=Markup(to_json(content)),
    )


def to_json(content: Any) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_UNSAFE)


def policy(program: str, style: str, live: bool) -> str:
    """The page's Content-Security-Policy."""
    rules = {
        "default-src": "'none'",
        "script-src": _hashed(program),
        "style-src": _hashed(style),
        "img-src": "data: blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    if live:
        rules["connect-src"] = "'self'"
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _program(kind: str) -> str:
    parts = "\n".join(_static(f"{name}.js") for name in PROGRAMS[kind])
    library = _static(CHART_LIBRARY) if "charts" in PROGRAMS[kind] else ""
    return f"{library}\n(() => {{\n'use strict';\n{parts}\n}})();\n"


def _static(name: str) -> str:
    return files("converge_to_surprise.report").joinpath("static", name).read_text(encoding="utf-8")
