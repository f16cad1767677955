"""``cts reproduce``: plan the runs, run what is missing, make the tables and figures of what is finished."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from filelock import FileLock, Timeout
from rich.console import Console

from ..config import files as configfile
from ..config import presets
from ..data import datasets
from ..data.datasets import Dataset
from ..search.trainer import available_threads
from . import output
from .cost import announcement
from .plan import Job, Recipe, Target, foreign, parse_seeds, parse_sets, plan, shape_of, variants_of
from .pool import Task, run_all
from .rows import evaluate, others
from .tables import Row
from .taking import taken, without_later_starts
from .watch import Display


@dataclass(frozen=True)
class Reproduce:
    """Run the paper's experiments and set the results beside the published ones."""

    target: Annotated[tyro.conf.Positional[Target], tyro.conf.arg(metavar="TARGET")]
    """table1: the main results, with panels of images and the purity list. table2: the number of clusters.
    ablation: what each part of the method is worth. curves: the number of clusters along the runs."""
    out: Path = Path("runs/reproduce")
    """Folder for runs, tables and figures. Runs that are there are used, or continued."""
    dataset: tuple[str, ...] = ()
    """mnist, fashion-mnist, usps, digits: all four, for the ablation usps and digits if not given."""
    seeds: str = "5"
    """A number of seeds (5: seeds 0 to 4), a range (5-9) or a list (0,3,7). Start n of seed s is the run of seed
    s + 1000 (n - 1), so no two may be a thousand apart; an ablation has one start each."""
    preset: presets.PresetName = "fast"
    """fast: minutes a run. paper: weeks a run without a GPU."""
    jobs: int = 0
    """Runs at the same time, with one thread each if there are several; 0: as many as there are CPU threads.
    A run that was interrupted goes on with the threads and the device it had."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets (also: the CTS_DATA variable)."""
    config: Path | None = None
    """TOML or JSON file of settings, laid over the preset in every run."""
    device: str | None = None
    """Where the runs compute: cuda, mps, cpu; by default the first of them that is there."""
    panel_seed: int | None = None
    """Seed, one of --seeds, whose run the panels and the purity list show; the first that is finished if not given."""
    run: bool = True
    """--no-run: only make tables and figures of the runs that are finished."""
    force: bool = False
    """Give up runs in the folder that have other settings than those asked for now."""


def reproduce(command: Reproduce, console: Console) -> int:
    """Returns the exit code: 0 if every run asked for is finished, 1 if one failed."""
    seeds, names = parse_seeds(command.seeds), parse_sets(command.dataset, command.target)
    if command.jobs < 0:
        raise ValueError(f"--jobs is {command.jobs}; it must be at least 1, or 0 for one per CPU thread")
    if command.panel_seed not in (None, *seeds):
        raise ValueError(
            f"--panel-seed is {command.panel_seed}; it must be one of --seeds, {', '.join(map(str, seeds))}"
        )
    recipe = Recipe(command.preset, {} if command.config is None else configfile.read(command.config))
    sets = {name: _load(name, command.data_dir) for name in names}
    jobs = plan(command.out, command.target, recipe, sets, seeds)
    _make(command.out)
    with _locked(command.out) if command.run else nullcontext():
        in_the_way = dict(foreign(jobs, sets))
        errors = _run(command, jobs, in_the_way, sets, console) if command.run else {}
        if command.run and in_the_way:
            in_the_way = dict(foreign(jobs, sets))  # what could not be run anew is still what it was
        for name, why in in_the_way.items():
            _say(console, f"left out: {name}, which was made with other settings ({why})")
        jobs = [job for job in jobs if job.name not in in_the_way]
        rows, unreadable = _evaluate(command, recipe, jobs, sets, console)
    errors |= unreadable
    elsewhere, left_out = others(command.out, recipe, names, variants_of(command.target))
    for name, why in left_out.items():
        _say(console, f"left out: {name}, {why}")
    if command.target == "ablation":
        rows = [*rows, *without_later_starts(elsewhere, recipe)]
    else:
        rows, waiting = taken(rows, recipe, seeds)
        others_rows, others_waiting = taken(elsewhere, recipe)
        rows = [*rows, *others_rows]
        for name, why in (waiting | others_waiting).items():
            _say(console, f"left out: {name}, {why}")
    if rows:
        for path in output.write(command.out, command.target, rows, command.panel_seed, sets, console):
            _say(console, f"written: {path}")
    else:
        _say(console, "no run is finished yet, with all of its starts: there is nothing to show")
    for name, error in errors.items():
        Console(stderr=True).print(f"cts: {name} failed: {error}", markup=False, highlight=False, soft_wrap=True)
    return 1 if errors else 0


def _run(
    command: Reproduce, jobs: list[Job], in_the_way: dict[str, str], sets: dict[str, Dataset], console: Console
) -> dict[str, str]:
    """Run what is not finished; the errors of the runs that failed."""
    if in_the_way and not command.force:
        name, why = next(iter(in_the_way.items()))
        more = f" (and {len(in_the_way) - 1} more)" if len(in_the_way) > 1 else ""
        raise ValueError(
            f"{command.out / 'runs' / name}{more} was made with other settings than those asked for: {why}. "
            "Give another --out, or --force to run it again"
        )
    width = command.jobs or available_threads()
    sizes = {name: (len(dataset.train), shape_of(dataset)) for name, dataset in sets.items()}
    _say(console, announcement(jobs, sizes, width) + (f"; {len(in_the_way)} to be run anew" if in_the_way else ""))
    left = [job for job in jobs if job.state != "finished" or job.name in in_the_way]
    tasks = [_task(command, job, job.name in in_the_way, width > 1) for job in left]
    with Display(console, len(jobs), len(jobs) - len(left)) as display:
        return run_all(tasks, width, display)


def _task(command: Reproduce, job: Job, anew: bool, several: bool) -> Task:
    place = ["--no-report", *([] if command.data_dir is None else ["--data-dir", str(command.data_dir)])]
    if job.state == "interrupted" and not anew:
        words = ["resume", str(job.folder), *place]
    else:
        threads, device = 1 if several else job.config.threads, command.device or job.config.device
        words = ["fit", *job.fit, "--threads", str(threads), "--device", device, "--out", str(job.folder), *place]
        words += ["--force"] if anew else []
    return Task(job.name, words, command.out / "logs" / f"{job.name}.log")


def _evaluate(
    command: Reproduce, recipe: Recipe, jobs: Sequence[Job], sets: dict[str, Dataset], console: Console
) -> tuple[list[Row], dict[str, str]]:
    """Rows of the finished runs, and the errors of those that cannot be read."""
    rows, errors = [], {}
    with console.status("evaluating the finished runs"):
        for job in jobs:
            if job.state == "finished":
                try:
                    rows.append(evaluate(command.out, job.name, job.fit, recipe.overlay, sets[job.dataset]))
                except ValueError as error:
                    errors[job.name] = f"{error}. Remove {job.folder} to run it again"
    return rows, errors


def _load(name: str, data_dir: Path | None) -> Dataset:
    try:
        return datasets.load(name, data_dir)
    except ValueError as error:
        raise ValueError(f"{error} Or leave {name} out: choose data sets with --dataset.") from None


def _make(out: Path) -> None:
    try:
        (out / "runs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot write to --out {out}: {error.strerror}; give another folder") from None


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Two calls must not start the same run twice."""
    try:
        with FileLock(out / ".lock", timeout=0):
            yield
    except Timeout:
        raise ValueError(
            f"another `cts reproduce` is working in {out}; wait for it, or give --no-run to see what is finished"
        ) from None
    except PermissionError as error:
        raise ValueError(f"cannot write to --out {out}: {error.strerror}; give another folder") from None


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
