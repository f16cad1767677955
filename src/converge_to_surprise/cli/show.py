"""``cts show``: what a run is, how far it got and what it found."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from ..config.text import one_line
from .arguments import RunPath
from .output import say

SHOWN = (
    "n_clusters", "n_surprising", "surprise", "orderliness", "agreement", "acc", "nmi", "ari", "acc_both", "nmi_both",
    "ari_both", "seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Command:
    """Show what a run is, how far it got and what it found."""

    run: RunPath
    """A run, finished or not."""


def execute(command: Command, console: Console) -> None:
    from ..runs.folder import RunFolder
    from ..runs.result import hypotheses_text, levels_of, read_result, selection_text, verdict_of

    run = RunFolder.open(command.run)
    description = run.description()
    config = description.config
    records = run.records()
    rows = [
        ("source", f"{description.source}: {description.items}"),
        ("preset", f"{description.preset}, seed {config.seed}, n_init {config.n_init}, threads {config.threads}"),
        ("precision", config.precision),
        ("schedule", " ".join(map(str, config.schedule))),
        ("program", f"version {description.program}"),
        ("steps", f"{len(records):,} done, {'finished' if run.result.is_file() else 'not finished'}"),
    ]
    if records:
        rows.append(("last", " ".join(f"{key}={value}" for key, value in records[-1].items())))
    if run.result.is_file():
        result = read_result(run.result)
        if (initializations := result.get("initializations")) is not None:
            rows.append(("selected", selection_text(initializations)))
        if text := levels_of(result):
            rows.append(("levels", text))
        if text := hypotheses_text(result):
            rows.append(("rounds", text))
        rows.append(("verdict", verdict_of(result).text.removeprefix("verdict: ")))
        rows.append(("result", " ".join(f"{key}={result[key]}" for key in SHOWN if result.get(key) is not None)))
    for name, text in rows:
        say(console, one_line(f"{name:<9} {text}"))
