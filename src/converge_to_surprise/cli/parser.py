"""Parse the command line, execute one command, turn errors into one line."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from rich.console import Console

from .. import __version__
from ..config import SettingError
from ..config.memory import memory_ran_out
from ..config.text import one_line
from ..distributed.errors import WorkerLost
from ..runs.interruption import Interrupted

COMMANDS = {
    "fit": "Find the clusters in a set of images and keep the run in a folder.",
    "resume": "Continue an interrupted run exactly where it stopped.",
    "deepen": "Search for sub-clusters within the clusters of a run.",
    "split": "Split one cluster of a run by hand, or undo that.",
    "show": "Show what a run is, how far it got and what it found.",
    "evaluate": "Compare a run's clusters with known classes.",
    "predict": "Find the clusters of images and write them as a table.",
    "similar": "Find the training images of a run most similar to pictures.",
    "sort": "Sort pictures into one folder per cluster, or undo that.",
    "export": "Write a run's model as an ONNX file.",
    "report": "Write a run's report page again, or for other images.",
    "compare": "Compare runs on the same images on one page.",
    "relabel": "Apply names, merges and noise marks from the report page.",
    "backbones": "List the pre-trained backbones that have a short name.",
    "reproduce": "Run the paper's experiments beside the published results.",
}
"""Every command and its summary. The module of a command has its name, a dataclass ``Command`` and ``execute``."""
RESUMED = ("fit", "resume")
"""Commands after whose failure a run can be continued."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a full disk."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 success, 1 a run failed, 2 wrong input, 128 + n on signal n."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    errors = Console(stderr=True)

    def fail(text: str, code: int) -> int:
        errors.print(one_line(f"cts: {text}"), markup=False, highlight=False, soft_wrap=True)
        return code

    try:
        return _run(arguments, Console(), errors)
    except SettingError as error:
        return fail(as_written(error, arguments), 2)
    except ValueError as error:
        return fail(str(error), 2)
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        hint = f"; free some space: {_after_space(arguments[0])}" if error.errno in FULL else ""
        where = f"cannot use {error.filename}: " if error.filename else ""
        return fail(f"{where}{error.strerror or error}{hint}", 2)
    except (MemoryError, RuntimeError) as error:
        if not memory_ran_out(error):
            raise
        what = one_line(f" ({error})") if isinstance(error, MemoryError) and error.args else ""
        hint = "close other programs, or run the command where there is more memory"
        if arguments[0] in RESUMED:
            hint = "if a run was begun, `cts resume` continues it where there is more memory"
        print(f"cts: there is not enough memory{what}; {hint}", file=sys.stderr)  # rich would need more memory
        return 2
    except WorkerLost as lost:
        return fail(f"{lost}; the run is saved: `cts resume` continues it", 1)
    except Interrupted as stop:
        return fail(f"stopped by {stop}; {stop.hint}", 128 + stop.signal_number)


def _after_space(command: str) -> str:
    """What to do when a full disk has space again."""
    return "`cts resume` then continues the run" if command in RESUMED else "then run the same command again"


def as_written(error: SettingError, arguments: Sequence[str]) -> str:
    """The message with the flag that the user wrote in place of the setting's name.

    >>> as_written(SettingError("n_clusters is 0; it must be at least 1", "n_clusters"), ["fit", "--n-clusters", "0"])
    '--n-clusters is 0; it must be at least 1'
    """
    flags = [word.split("=")[0] for word in arguments if word.startswith("--")]
    written = [flag for flag in flags if error.setting and flag[2:].replace("-", "_") == error.setting]
    return str(error).replace(error.setting, written[-1], 1) if written else str(error)


def _check_not_empty(words: Sequence[str]) -> None:
    """Refuse empty words: an empty path would be the current folder, and the user did not mean that."""
    for before, word in itertools.pairwise(["", *words]):
        flag = before if before.startswith("--") and "=" not in before else "an argument"
        if word == "" or (word.startswith("--") and word.endswith("=")):
            raise ValueError(f"{word.rstrip('=') or flag} is empty; give a value")


def _run(arguments: Sequence[str], console: Console, errors: Console) -> int:
    if not arguments:
        errors.print(overview(), highlight=False)
        return 2
    name, *words = arguments
    if name in ("--help", "-h", "--version"):
        console.print(f"converge-to-surprise {__version__}" if name == "--version" else overview(), highlight=False)
        return 0
    _check_not_empty(words)
    if name not in COMMANDS:
        raise ValueError(f"there is no command {name!r}; the commands are {', '.join(COMMANDS)}")
    module = import_module(f".{name}", __package__)
    if hasattr(module, "show_help") and {"--help", "-h"} & set(words):
        module.show_help(words, console)
        return 0
    command = module.parse_words(words) if hasattr(module, "parse_words") else parse(name, module.Command, words)
    from .output import shown_warnings

    with shown_warnings(errors), _joined():
        result = module.execute(command, console)
    return 0 if result is None else int(result)


@contextlib.contextmanager
def _joined() -> Iterator[None]:
    """Connect to the other processes if torchrun started this one."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield
        return
    from ..distributed.launch import joined

    with joined():
        yield


def overview() -> str:
    """The text of ``cts --help``."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            f"converge-to-surprise {__version__}: clusters in unlabeled images, without being told how many.",
            "",
            "usage: cts COMMAND ...",
            "",
            *lines,
            "",
            "`cts COMMAND --help` shows the options of a command, `cts --version` the version.",
        ]
    )


def parse(name: str, kind: Any, words: Sequence[str], default: Any = None) -> Any:
    """The command's dataclass from its words. A wrong word ends the program with the parser's message."""
    import tyro

    from .arguments import BadStage, registry

    message = io.StringIO()
    words = ["--help" if word == "--help-all" else word for word in words]
    try:
        with contextlib.redirect_stderr(message):
            return tyro.cli(
                kind,
                args=words,
                default=tyro.MISSING_NONPROP if default is None else default,
                prog=f"cts {name}",
                description=COMMANDS[name],
                registry=registry,
            )
    except BadStage as error:
        raise ValueError(str(error)) from None
    except SystemExit as stop:
        # A setting with a wrong value has a better message than the parser's.
        cause: BaseException | None = stop
        while cause is not None and not isinstance(cause, SettingError):
            cause = cause.__context__
        if cause is not None:
            raise cause from None
        sys.stderr.write(message.getvalue())
        raise
