"""``cts reproduce``: plan the runs, run what is missing, make the tables and figures of what is finished."""

from __future__ import annotations

import contextlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console
from rich.progress import Progress

from ..config.presets import PresetName
from .output import say

if TYPE_CHECKING:  # imported when the command runs: the parser of all commands needs none of it
    from ..data.datasets import Dataset
    from ..experiments.plan import PlannedRun
    from ..experiments.pool import Task

Target = Literal["table1", "table2", "ablation", "curves"]


@dataclass(frozen=True)
class Command:
    """Run the paper's experiments and show the results beside the published ones."""

    target: Annotated[tyro.conf.Positional[Target], tyro.conf.arg(metavar="TARGET")]
    """table1: the main results, with panels of images and the purity list. table2: the number of clusters.
    ablation: the method without each of its parts. curves: the number of clusters along the runs."""
    out: Path = Path("runs/reproduce")
    """Folder for runs, tables and figures. Finished runs in it are used, interrupted ones continued."""
    dataset: tuple[str, ...] = ()
    """mnist, fashion-mnist, usps, digits: all four by default, for the ablation usps and digits."""
    seeds: str = "5"
    """A number of seeds (5: seeds 0 to 4), a range (5-9) or a list (0,3,7)."""
    preset: PresetName = "fast"
    """fast: minutes a run. paper: weeks a run without a GPU."""
    jobs: int = 0
    """Runs at the same time, with one thread each if there are several; 0: as many as there are CPU threads.
    An interrupted run continues with the threads and the device it had."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets (also: the CTS_DATA variable)."""
    config: Path | None = None
    """TOML or JSON file of settings, applied on top of the preset in every run."""
    device: str | None = None
    """Where the runs compute: cuda, mps, cpu; by default the first of them that is available."""
    panel_seed: int | None = None
    """Seed, one of --seeds, of the run in the panels and the purity list; the first finished one by default."""
    run: bool = True
    """--no-run: only make tables and figures of the runs that are finished."""
    force: bool = False
    """Overwrite runs in the folder that have other settings than those asked for now."""


def execute(command: Command, console: Console) -> int:
    """Returns the exit code: 1 if a run failed or cannot be read, otherwise 0."""
    if missing := [name for name in ("matplotlib", "pandas") if importlib.util.find_spec(name) is None]:
        raise ValueError(
            f"cts reproduce needs {' and '.join(missing)}: pip install 'converge-to-surprise[experiments]'"
        )
    from ..config.files import read
    from ..data.store import fingerprint
    from ..experiments.output import Output, write
    from ..experiments.plan import Recipe, parse_datasets, parse_seeds, plan
    from ..runs.folder import RunFolder

    seeds, ablation = parse_seeds(command.seeds), command.target == "ablation"
    names = parse_datasets(command.dataset, ablation)
    _check(command, seeds)
    recipe = Recipe(command.preset, {} if command.config is None else read(command.config))
    sets = {name: _load(name, command.data_dir) for name in names}
    runs = plan(command.out, recipe, sets, seeds, ablation)
    prints = {name: fingerprint(dataset.train.images) for name, dataset in sets.items()}
    folder = RunFolder(command.out)
    if command.run:
        folder.make()
    with folder.locked() if command.run else contextlib.nullcontext():
        errors = _run(command, runs, prints, console) if command.run else {}
        ours = []
        for run in runs:
            if why := run.mismatch(prints[run.dataset]):
                say(console, f"left out: {run.name}, which was made with other settings: {why}")
            elif run.state == "finished":
                ours.append(run)
        output = Output(command.out, command.target, recipe, sets, command.panel_seed)
        errors |= write(output, ours, lambda text: say(console, text))
    for name, error in errors.items():
        say(Console(stderr=True), f"cts: {name} failed: {error}")
    return 1 if errors else 0


def _check(command: Command, seeds: list[int]) -> None:
    if command.jobs < 0:
        raise ValueError(f"--jobs is {command.jobs}; it must be at least 1, or 0 for one per CPU thread")
    if command.panel_seed not in (None, *seeds):
        listed = ", ".join(map(str, seeds))
        raise ValueError(f"--panel-seed is {command.panel_seed}; it must be one of --seeds, {listed}")


def _load(name: str, data_dir: Path | None) -> Dataset:
    from ..data import datasets

    try:
        return datasets.load(name, data_dir)
    except ValueError as error:
        raise ValueError(f"{error} Or leave {name} out: choose data sets with --dataset.") from None


def _run(command: Command, runs: list[PlannedRun], prints: dict[str, str], console: Console) -> dict[str, str]:
    """Run what is not finished; the errors of the runs that failed, by name."""
    from ..experiments.pool import Pool
    from ..search.threads import available_threads

    foreign = {run.name: why for run in runs if (why := run.mismatch(prints[run.dataset]))}
    if foreign and not command.force:
        name, why = next(iter(foreign.items()))
        more = f" (and {len(foreign) - 1} more)" if len(foreign) > 1 else ""
        raise ValueError(
            f"{command.out / 'runs' / name}{more} was made with other settings than those asked for: {why}. "
            "Give another --out, or --force to run it again"
        )
    states = [run.state for run in runs]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("finished", "interrupted", "missing"))
    again = f"; {len(foreign)} to run again" if foreign else ""
    say(console, f"{len(runs)} run{'s' * (len(runs) != 1)}: {counts}{again}")
    width = command.jobs or available_threads()
    left = [run for run in runs if run.state != "finished" or run.name in foreign]
    tasks = [_task(command, run, run.name in foreign, width > 1) for run in left]
    if tasks:
        say(console, f"{width} at a time; their output is in {command.out / 'logs'}")
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("runs", total=len(runs), completed=len(runs) - len(left))

        def report(task: Task, seconds: float, error: str) -> None:
            outcome = f"failed: {error}" if error else f"{task.arguments[0]} done in {seconds:.0f} s"
            progress.advance(bar)
            say(console, f"{task.name}: {outcome}")

        return Pool(width).run(tasks, report)


def _task(command: Command, run: PlannedRun, again: bool, several: bool) -> Task:
    from ..experiments.pool import Task

    common = ["--no-report", *([] if command.data_dir is None else ["--data-dir", str(command.data_dir)])]
    if run.state == "interrupted" and not again:
        arguments = ["resume", str(run.folder), *common]
    else:
        threads, device = 1 if several else run.config.threads, command.device or run.config.device
        arguments = ["fit", *run.arguments, "--threads", str(threads), "--device", device]
        arguments += ["--out", str(run.folder), *common, *(["--force"] if again else [])]
    return Task(run.name, arguments, command.out / "logs" / f"{run.name}.log")
