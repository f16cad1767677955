"""``cts backbones``: the short names of pre-trained backbones."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from ..model.pretrained.catalog import CATALOG
from .output import say


@dataclass(frozen=True)
class Command:
    """List the pre-trained backbones that have a short name."""


def execute(command: Command, console: Console) -> None:
    table = Table()
    for column in ("name", "download", "license", "speed", "what it is", "model of the Hugging Face hub"):
        table.add_column(column, justify="right" if column == "download" else "left", overflow="fold")
    for name, entry in CATALOG.items():
        model = f"{entry.repository}@{entry.revision[:8]}"
        table.add_row(name, f"{entry.megabytes} MB", entry.license, entry.speed, entry.about, model)
    console.print(table, highlight=False)
    say(console, "A backbone can also be an ONNX file, a folder with the files of a model, or hf:ORG/NAME[@REVISION].")
    say(console, "They need `pip install 'converge-to-surprise[photos]'`.")
