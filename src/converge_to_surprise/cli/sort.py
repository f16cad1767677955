"""``cts sort``: one folder per cluster, or undo that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console

from ..config.text import one_line
from .output import say

if TYPE_CHECKING:
    from ..data.skipped import SkippedFile
    from ..runs.sort import Plan, SortOptions

SHOWN = 10
"""Files that are named in the terminal; the tables hold all of them."""


@dataclass(frozen=True)
class Command:
    """Make a folder for every cluster with copies of its pictures, or undo such a sort."""

    run: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="RUN")] = None
    """A finished run, or a model file."""
    source: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="SOURCE")] = None
    """Folder of pictures, table of paths, array file or data set."""
    into: Path | None = None
    """New folder for the clusters' folders."""
    how: Literal["copy", "link", "hardlink", "move"] = "copy"
    """copy, link (symbolic), hardlink, or move: only move takes pictures away from where they are. It moves files
    within SOURCE itself (of a table: within its folder), never links or what links lead to."""
    dry_run: bool = False
    """Show what would be done and change nothing."""
    undo: Path | None = None
    """Folder of a sort, finished or interrupted: put everything back. Takes no RUN and no SOURCE."""
    min_confidence: float = 0.0
    """Images with a lower confidence go into the folder "noise"."""
    max_novelty: float = 1.0
    """Images with a higher novelty go into the folder "noise": 0.95 refuses images that are more unlike the training
    images than 95 percent of their kind."""
    n_clusters: int | None = None
    """Cut the merge tree at this many clusters instead of where the run cut it."""
    split: Literal["train", "test"] = "train"
    """Which part of a data set that has two."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets."""
    threads: int = 0
    """Pictures decoded at the same time; 0: as many as there are CPU threads."""


def execute(command: Command, console: Console) -> int:
    """Returns the exit code: 1 if an undo had to leave files."""
    from ..config.storage import check_folder_target
    from ..data.decode import hide_pillow_warnings
    from ..data.source import Source
    from ..model.limits import Limits
    from ..runs import sort as sorting
    from ..runs.interruption import stoppable
    from ..runs.load import load_model
    from ..runs.progress import CountDisplay
    from ..runs.sort_journal import check_free
    from ..runs.source_bounds import check_apart
    from .predict import check_limits

    if command.undo is not None:
        return _undo(command, command.undo, console)
    if command.run is None or command.source is None or command.into is None:
        raise ValueError("a sort needs RUN, SOURCE and --into: cts sort RUN SOURCE --into OUT, or cts sort --undo OUT")
    hide_pillow_warnings()
    into = command.into
    check_free(into)
    check_folder_target(into, "--into")
    model = load_model(command.run, command.n_clusters)
    check_limits(command.min_confidence, command.max_novelty)
    if model.input == "embeddings":
        table = f"cts predict {command.run} {command.source} --out labels.csv"
        raise ValueError(f"{command.run} clusters embeddings, which are no files to sort; write a table: {table}")
    source = Source.open(command.source, model.shape, command.split, command.data_dir)
    check_apart(source, into)
    limits = Limits(command.min_confidence, command.max_novelty)
    options = sorting.SortOptions(into, command.how, limits, command.threads)
    with nullcontext() if command.dry_run else sorting.claimed(into):
        with stoppable("nothing was changed"), CountDisplay(console, "images", len(source)) as progress:
            plan = sorting.make_plan(model, source, options, progress)
        if command.dry_run:
            _show_plan(plan, options, console)
            return 0
        hint = f"`cts sort --undo {into}` puts everything back"
        with stoppable(hint), CountDisplay(console, "files", len(plan.placed)) as progress:
            done = sorting.carry_out(plan, source, options, progress)
    folders = f"{len(done.sizes())} folders of {into}"
    counts = f"{done.seen:,} seen, {len(done.placed):,} sorted into {folders}, {len(done.skipped):,} skipped"
    say(console, one_line(counts))
    _show_skipped(done.skipped, console, f"see {into / sorting.SKIPPED}")
    return 0


def _undo(command: Command, into: Path, console: Console) -> int:
    from ..runs.interruption import stoppable
    from ..runs.progress import CountDisplay
    from ..runs.sort import KEPT
    from ..runs.sort_undo import undo

    if command.run is not None or command.source is not None or command.into is not None or command.dry_run:
        raise ValueError("--undo takes no RUN, SOURCE, --into or --dry-run: cts sort --undo OUT")
    with stoppable("run the same command again to continue"), CountDisplay(console, "files", 0) as progress:
        done = undo(into, progress)
    what = "are where they were" if done.how == "move" else "that were made are removed"
    say(console, one_line(f"{done.files:,} files {what}"))
    if done.kept:
        text = f"{len(done.kept):,} files are still in {into}; when the reasons are gone, run the same command again:"
        say(console, one_line(text))
        _show_skipped(done.kept, console, f"see {into / KEPT}")
    return 1 if done.kept else 0


def _show_plan(plan: Plan, options: SortOptions, console: Console) -> None:
    """What a sort would do: files per folder, the first few of them, and what would be skipped."""
    sizes = plan.sizes()
    counts = f"{plan.seen:,} seen; would {options.how} {len(plan.placed):,} into {len(sizes)} folders of {options.into}"
    lines = [f"{counts} and skip {len(plan.skipped):,}; nothing was changed"]
    lines += [f"  {folder}: {size:,}" for folder, size in sizes.items()]
    lines += [f"  {item.name} -> {options.into / item.entry.to}" for item in plan.placed[:SHOWN]]
    if len(plan.placed) > SHOWN:
        lines.append(f"  and {len(plan.placed) - SHOWN:,} more")
    for line in lines:
        say(console, one_line(line))
    _show_skipped(plan.skipped, console)


def _show_skipped(skipped: Sequence[SkippedFile], console: Console, where: str = "") -> None:
    """The first few files and reasons, the number of the others, and where all of them are listed."""
    for file, reason, _ in skipped[:SHOWN]:
        say(console, one_line(f"  skipped: {file}: {reason}"))
    for reason, count in Counter(one.reason for one in skipped[SHOWN:]).most_common(SHOWN):
        say(console, one_line(f"  skipped: {count:,} more: {reason}"))
    if skipped and where:
        say(console, one_line(where))
