"""``cts``: the command line. Every command is one call into the rooms below; a mistake is answered in one line."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from . import __version__, configfile, presets
from .config import Config, SearchName, SettingError, Stage
from .data import datasets
from .data.store import check_clusterable
from .learn.trainer import Trainer, available_threads
from .report.command import Compare, Relabel, Report, compare, relabel, report
from .reproduce.command import Reproduce, reproduce
from .run import session
from .run.files import read_json
from .run.opening import open_newest
from .run.result import assess
from .run.rundir import RunFolder
from .screen import ProgressDisplay, cluster_table, verdict


class _BadStage(Exception):  # noqa: N818 - a message on its way to the user
    """A wrong stage. Of a ValueError in a list of words tyro would not tell the reason."""


def _stage(word: str) -> Stage:
    try:
        return Stage.parse(word)
    except SettingError as error:
        raise _BadStage(str(error)) from None


registry = tyro.constructors.ConstructorRegistry()


@registry.primitive_rule
def _stage_rule(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Stage] | None:
    """A stage is written as one word: strong=evolution:1000:4@25."""
    if info.type is not Stage:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="NAME=KIND:EPOCHS[:PASSES@EVERY]",
        instance_from_str=lambda words: _stage(words[0]),
        is_instance=lambda value: isinstance(value, Stage),
        str_from_instance=lambda stage: [str(stage)],
    )


Source = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")]
Run = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]


@dataclass(frozen=True)
class Fit:
    """Find the clusters in a set of images and keep the run in a folder."""

    source: Source
    """A data set (mnist, fashion-mnist, usps, digits) or an .npz or .npy file of images."""
    out: Path
    """Folder for the run; it must not hold one already."""
    preset: presets.PresetName = "fast"
    """fast: minutes on a laptop. paper: the paper's method and numbers to the letter."""
    search: SearchName | None = None
    """evolution or relaxed, in place of the preset's."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets (also: the CTS_DATA variable)."""
    config: Path | None = None
    """TOML or JSON file of settings, laid over the preset; flags are laid over both."""
    force: bool = False
    """Give up the run that the folder holds."""
    settings: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)
    """Every number of the run. The defaults shown are the general ones; the preset has its own."""


@dataclass(frozen=True)
class Resume:
    """Continue a run that was broken off, exactly where it was."""

    run: Run
    data_dir: Path | None = None
    """Folder with local copies of the named data sets, if it has moved."""


@dataclass(frozen=True)
class Evaluate:
    """Compare a run's clusters with known classes, on the test split where there is one."""

    run: Run
    source: Source
    json: bool = False
    """Print one JSON object instead of a table."""
    split: Literal["test", "train"] = "test"
    clusters: int | None = None
    """Read the merge tree at this many clusters instead of where it was cut."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets."""


@dataclass(frozen=True)
class Show:
    """Say what a run is, how far it got and what it found."""

    run: Run


Command = (
    Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[Resume, tyro.conf.subcommand("resume")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Show, tyro.conf.subcommand("show")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Relabel, tyro.conf.subcommand("relabel")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
)


def fit(command: Fit, arguments: Sequence[str], console: Console) -> None:
    run = RunFolder.claim(command.out, command.force)
    dataset = datasets.load(command.source, command.data_dir)
    check_clusterable(dataset.train, command.source)
    config = _effective(command, arguments, dataset)
    name = datasets.canonical(command.source)
    source = name or str(Path(command.source).resolve())
    trainer = session.begin(run, dataset, source, command.data_dir, command.preset, config)
    _carry_on(run, trainer, dataset, console)


def _effective(command: Fit, arguments: Sequence[str], dataset: datasets.Dataset) -> Config:
    """Preset, then configuration file, then flags. Flags are parsed again on top of the first two."""
    images = dataset.train.images
    channels, height, width = images.shape[1:]
    base = presets.resolve(command.preset, command.search, dataset.name, len(images), (channels, height, width))
    if command.config is not None:
        base = configfile.overlay(base, configfile.read(command.config))
    parsed: Fit = _parse(Fit, arguments, replace(command, settings=base))
    return replace(parsed.settings, threads=parsed.settings.threads or available_threads())


def resume(command: Resume, console: Console) -> None:
    run = RunFolder.open(command.run)
    description = run.description()
    saved = None if description.data_dir is None else Path(description.data_dir)
    dataset = datasets.load(description.source, command.data_dir or saved)
    trainer, problems = session.reopen(run, dataset)
    _warn(problems)
    _carry_on(run, trainer, dataset, console)


def _warn(problems: Sequence[str]) -> None:
    for problem in problems:
        text = f"warning: {problem}; using the checkpoint before it"
        Console(stderr=True).print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)


def _carry_on(run: RunFolder, trainer: Trainer, dataset: datasets.Dataset, console: Console) -> None:
    with ProgressDisplay(console, trainer.total, trainer.step) as display:
        assessment = session.carry_on(run, trainer, dataset, [display])
    console.print(cluster_table(assessment))
    console.print(verdict(assessment), markup=False)
    console.print(f"{trainer.seconds:.0f} s, run in {run.path}", markup=False, soft_wrap=True)


def evaluate(command: Evaluate, console: Console) -> None:
    run = RunFolder.open(command.run)
    model, problems = open_newest(run)
    _warn(problems)
    if command.clusters is not None:
        model = model.cut(command.clusters)
    dataset = datasets.load(command.source, command.data_dir)
    store = dataset.train if command.split == "train" else dataset.evaluation
    if store.images.shape[1] != model.shape[0]:
        raise ValueError(
            f"the images of {command.source} have {store.images.shape[1]} channels; "
            f"the run was made with {model.shape[0]}"
        )
    assessment = assess(model, store)
    if command.json:
        print(json.dumps(assessment.scores()))
        return
    console.print(cluster_table(assessment))
    console.print(verdict(assessment), markup=False)


def show(command: Show, console: Console) -> None:
    run = RunFolder.open(command.run)
    description = run.description()
    records = run.records()
    rows = [
        ("source", f"{description.source}: {description.images:,} images of {'x'.join(map(str, description.shape))}"),
        ("preset", f"{description.preset}, seed {description.config.seed}, threads {description.config.threads}"),
        ("schedule", " ".join(map(str, description.config.schedule))),
        ("program", f"version {description.program}"),
        ("steps", f"{len(records):,} done, {'finished' if run.result.is_file() else 'not finished'}"),
    ]
    if records:
        last = records[-1]
        rows.append(("last", " ".join(f"{key}={value}" for key, value in last.items())))
    if run.result.is_file():
        result = read_json(run.result)
        keys = (
            "n_clusters",
            "n_surprising",
            "surprise",
            "orderliness",
            "agreement",
            "acc",
            "nmi",
            "ari",
            "acc_both",
            "nmi_both",
            "ari_both",
            "seconds",
        )
        rows.append(("result", " ".join(f"{key}={result[key]}" for key in keys if result.get(key) is not None)))
    for name, text in rows:
        console.print(f"{name:<9} {text}", markup=False, soft_wrap=True)


def _parse(kind: Any, arguments: Sequence[str], default: Any = tyro.MISSING) -> Any:
    words = arguments[1:] if kind is Fit else arguments
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                kind,
                args=words,
                default=default,
                prog="cts fit" if kind is Fit else "cts",
                description=None
                if kind is Fit
                else f"converge-to-surprise {__version__}: clusters in unlabelled images.",
                registry=registry,
            )
    except SystemExit as stop:
        # A setting with a wrong value has a better message than the parser's.
        cause: BaseException | None = stop
        while cause is not None and not isinstance(cause, SettingError):
            cause = cause.__context__
        if cause is not None:
            raise cause from None
        sys.stderr.write(said.getvalue())
        raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 a run failed, 2 a wrong input, 128 + n by signal n."""
    arguments = sys.argv[1:] if arguments is None else arguments
    errors = Console(stderr=True)
    console = Console()
    try:
        command = _parse(Command, arguments)
        match command:
            case Fit():
                fit(command, arguments, console)
            case Resume():
                resume(command, console)
            case Evaluate():
                evaluate(command, console)
            case Show():
                show(command, console)
            case Report():
                report(command, console)
            case Compare():
                compare(command, console)
            case Relabel():
                relabel(command, console)
            case Reproduce():
                return reproduce(command, console)
    except (ValueError, _BadStage) as error:
        errors.print(f"cts: {error}", markup=False, highlight=False, soft_wrap=True)
        return 2
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        hint = "; free some space: `cts resume` then continues the run" if error.errno == errno.ENOSPC else ""
        errors.print(f"cts: {error}{hint}", markup=False, highlight=False, soft_wrap=True)
        return 2
    except session.Interrupted as stop:
        errors.print(f"cts: stopped by {stop}; {stop.hint}", markup=False, soft_wrap=True)
        return 128 + stop.signal_number
    except KeyboardInterrupt:
        return 130
    return 0
