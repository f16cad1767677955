"""``cts``: the command line. Every command is one call into the rooms below; a mistake is answered in one line."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from .. import __version__
from ..config import Config, SearchName, SettingError, Stage, presets
from ..config import files as configfile
from ..config.text import one_line
from ..data import datasets
from ..data.image_options import Color, ImageOptions, LabelSource
from ..data.memory import memory_ran_out
from ..data.source import load_shown
from ..data.store import check_clusterable
from ..distributed import launch as distributed
from ..distributed.group import ProcessGroup
from ..report.events import event_files
from ..report.live import serve
from ..reproduce.command import Reproduce, reproduce
from ..runs import session
from ..runs.folder import RunFolder
from ..runs.result import taken_text
from ..search.trainer import Trainer, available_threads
from .evaluate import Evaluate, Run, Show, evaluate, show
from .report import Compare, Relabel, Report, compare, relabel, report, write_report
from .screen import ProgressDisplay, cluster_table, shown_warnings, verdict, warn_of_damage
from .use import Export, Predict, Sort, SourceName, export, predict, sort


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


@dataclass(frozen=True)
class Fit:
    """Find the clusters in a set of images and keep the run in a folder."""

    source: SourceName
    """A folder of pictures, a .csv or .parquet file with their paths, an .npz, .npy or IDX file, or a data set (mnist,
    fashion-mnist, usps, digits)."""
    out: Path
    """Folder for the run; it must not hold one already."""
    preset: presets.PresetName = "fast"
    """fast: minutes on a laptop. paper: the paper's method and numbers to the letter."""
    search: SearchName | None = None
    """evolution or relaxed, in place of the preset's."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets (also: the CTS_DATA variable)."""
    image_size: int | None = None
    """Pictures: longer side in pixels to which they are brought; by default 48, or less if they are smaller."""
    color: Color = "auto"
    """Pictures: in color or gray; auto looks at them."""
    labels: LabelSource = "none"
    """Pictures: from-folders takes the folders directly below as classes, for evaluation only."""
    config: Path | None = None
    """TOML or JSON file of settings, laid over the preset; flags are laid over both."""
    force: bool = False
    """Give up the run that the folder holds."""
    report: bool = True
    """Write report.html into the run folder at the end."""
    serve: bool = False
    """Show the report while it grows, on this machine only."""
    port: int = 0
    """Port of the growing report; 0 takes any that is free."""
    tensorboard: bool = False
    """Write event files for TensorBoard into the run folder."""
    settings: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)
    """Every number of the run. The defaults shown are the general ones; the preset has its own."""


@dataclass(frozen=True)
class Resume:
    """Continue a run that was interrupted, exactly where it was."""

    run: Run
    data_dir: Path | None = None
    """Folder with local copies of the named data sets, if it has moved."""
    report: bool = True
    """Write report.html into the run folder at the end."""
    serve: bool = False
    """Show the report while it grows, on this machine only."""
    port: int = 0
    """Port of the growing report; 0 takes any that is free."""
    tensorboard: bool = False
    """Write event files for TensorBoard into the run folder."""


Command = (
    Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[Resume, tyro.conf.subcommand("resume")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Show, tyro.conf.subcommand("show")]
    | Annotated[Predict, tyro.conf.subcommand("predict")]
    | Annotated[Sort, tyro.conf.subcommand("sort")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Relabel, tyro.conf.subcommand("relabel")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
)


def fit(command: Fit, arguments: Sequence[str], console: Console, world: ProcessGroup) -> None:
    # torchrun starts the same command again after a loss: the run that it finds is then its own.
    again = distributed.launched() and RunFolder(command.out).config.is_file()
    if command.force and distributed.launched():
        raise ValueError("--force is refused under torchrun, because a restart would give up the run again")
    run = RunFolder.open(command.out) if again else RunFolder.claim(command.out, command.force)
    reading = ImageOptions(command.image_size, command.color, command.labels)
    dataset = load_shown(command.source, command.data_dir, reading, console, world=world)
    check_clusterable(dataset.train, command.source)
    config = _effective(command, arguments, dataset)
    if again:
        trainer, problems = session.reattach(run, dataset, config)
        warn_of_damage(problems)
        session.update_data_dir(run, command.data_dir)
    else:
        name = datasets.canonical(command.source)
        source = name or str(Path(command.source).resolve())
        trainer = session.begin(run, dataset, source, command.data_dir, command.preset, config, command.labels)
    _carry_on(run, trainer, dataset, console, command, world)
    if dataset.classes_offered:
        text = f"the {dataset.classes_offered} folders of {command.source} look like classes: compare with them by"
        console.print(f"{text} `cts evaluate {run.path} {command.source}`", markup=False, soft_wrap=True)


def _effective(command: Fit, arguments: Sequence[str], dataset: datasets.Dataset) -> Config:
    """Preset, then configuration file, then flags. Flags are parsed again on top of the first two."""
    images = dataset.train.images
    channels, height, width = images.shape[1:]
    name = datasets.canonical(command.source) or "auto"  # a folder can be called like a data set
    base = presets.resolve(command.preset, command.search, name, len(images), (channels, height, width))
    if command.config is not None:
        base = configfile.overlay(base, configfile.read(command.config))
    parsed: Fit = _parse(Fit, arguments, replace(command, settings=base))
    return replace(parsed.settings, threads=parsed.settings.threads or available_threads())


def resume(command: Resume, console: Console, world: ProcessGroup) -> None:
    run = RunFolder.open(command.run)
    description = run.description()
    saved = None if description.data_dir is None else Path(description.data_dir)
    reading = ImageOptions(labels=description.labels)
    dataset = load_shown(description.source, command.data_dir or saved, reading, console, description.shape, world)
    with run.locked():  # from here on: what is read must still be so when it is written
        trainer, problems = session.reopen(run, dataset)
        warn_of_damage(problems)
        session.update_data_dir(run, command.data_dir)
        _carry_on(run, trainer, dataset, console, command, world)


def _carry_on(
    run: RunFolder,
    trainer: Trainer,
    dataset: datasets.Dataset,
    console: Console,
    command: Fit | Resume,
    world: ProcessGroup,
) -> None:
    with contextlib.ExitStack() as stack:
        readers: list[session.Reader] = []
        if command.tensorboard:
            readers.append(stack.enter_context(event_files(run.path)))
        if command.serve:
            stack.enter_context(serve(run.path, command.port, console, dataset.train))
        readers.append(stack.enter_context(ProgressDisplay(console, trainer.total, trainer.step)))
        assessment = session.train_with_workers(run, trainer, dataset, readers, world)
    console.print(cluster_table(assessment))
    console.print(verdict(assessment), markup=False)
    if (starts := trainer.starts.summary(trainer.config)) is not None:
        console.print(f"taken: {taken_text(starts)}", markup=False, soft_wrap=True)
    if dataset.quarantine:
        text = f"{len(dataset.quarantine):,} files could not be read: see {run.quarantine}"
        console.print(text, markup=False, soft_wrap=True)
    if command.report:
        write_report(run, dataset.train, console)
    console.print(f"{trainer.seconds:.0f} s, run in {run.path}", markup=False, soft_wrap=True)


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
                else f"converge-to-surprise {__version__}: clusters in unlabeled images.",
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


def _obey(command: Any, arguments: Sequence[str], console: Console, world: ProcessGroup) -> int:
    match command:
        case Fit():
            fit(command, arguments, console, world)
        case Resume():
            resume(command, console, world)
        case Evaluate():
            evaluate(command, console)
        case Show():
            show(command, console)
        case Predict():
            predict(command, console, world)
        case Sort():
            sort(command, console)
        case Export():
            export(command, console)
        case Report():
            report(command, console)
        case Compare():
            compare(command, console)
        case Relabel():
            relabel(command, console)
        case Reproduce():
            return reproduce(command, console)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 a run failed, 2 a wrong input, 128 + n by signal n."""
    arguments = sys.argv[1:] if arguments is None else arguments
    errors = Console(stderr=True)
    console = Console()
    try:
        command = _parse(Command, arguments)
        with shown_warnings(errors), distributed.joined() as world:
            return _obey(command, arguments, console, world)
    except (ValueError, _BadStage) as error:
        errors.print(one_line(f"cts: {error}"), markup=False, highlight=False, soft_wrap=True)
        return 2
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        hint = "; free some space: `cts resume` then continues the run" if error.errno == errno.ENOSPC else ""
        errors.print(one_line(f"cts: {error}{hint}"), markup=False, highlight=False, soft_wrap=True)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not memory_ran_out(error):
            raise
        what = one_line(f" ({error})") if isinstance(error, MemoryError) and error.args else ""
        hint = "if a run was begun, `cts resume` continues it where there is more"
        print(f"cts: there is not enough memory{what}; {hint}", file=sys.stderr)  # a console would load more of itself
        return 2
    except distributed.WorkerLost as lost:
        text = f"cts: {lost}; what was done is saved: `cts resume` continues it"
        errors.print(one_line(text), markup=False, highlight=False, soft_wrap=True)
        return 1
    except session.Interrupted as stop:
        errors.print(f"cts: stopped by {stop}; {stop.hint}", markup=False, soft_wrap=True)
        return 128 + stop.signal_number
    except KeyboardInterrupt:
        return 130
