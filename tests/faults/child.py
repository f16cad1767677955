"""The process that is hurt: the command line under conditions that are wrong in some way."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401 - torch loads it, slowly, when the first optimizer is made
import tyro  # noqa: F401 - loaded when words are parsed

from converge_to_surprise import __main__ as program

# What the commands load when they need it: the server loads it once.
from converge_to_surprise.cli import fit, resume, show, sort  # noqa: F401
from converge_to_surprise.report import events, live, page  # noqa: F401
from converge_to_surprise.runs import predict, progress, session, sort_undo  # noqa: F401

from .forkserver import preloaded

OPERATIONS = {
    "open", "os.rename", "os.remove", "os.mkdir", "os.chmod", "tempfile.mkstemp", "os.link", "os.rmdir",
}  # fmt: skip
"""What the interpreter announces before it does something to a file."""


@dataclass(frozen=True)
class Conditions:
    """What is wrong around a process; nothing unless given."""

    deadly: int = 0
    """Kill −9 falls just before this file operation in the deadly place, counted from 1."""
    deadly_place: Path | None = None
    """The run folder, unless another one is named."""
    clock: bool = False
    """The time of day jumps back and forth by years."""
    memory: int | None = None
    """Bytes of address space that may be taken beyond what the process has at its start."""
    file_size: int | None = None
    """Bytes that a file may have."""


FINE = Conditions()


def start(words: list[str], said: Path, folder: Path, cache: Path, conditions: Conditions = FINE) -> BaseProcess:
    """Begin a command; what it says goes to the file ``said``, decoded pictures into ``cache``."""
    process = preloaded(__name__).Process(
        target=_live, args=(words, str(said), str(conditions.deadly_place or folder), str(cache), conditions)
    )
    process.start()
    return process


def _live(words: list[str], said: str, folder: str, cache: str, conditions: Conditions) -> None:
    os.environ["CTS_CACHE"] = cache
    descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    # The server ignores SIGINT so that Ctrl-C reaches only the process that started it; a program does not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if conditions.deadly:
        _die_at(conditions.deadly, folder)
    if conditions.clock:
        _mad_clock()
    if conditions.memory is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + conditions.memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    if conditions.file_size is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (conditions.file_size, conditions.file_size))
    sys.argv = ["cts", *words]
    sys.exit(program.main())


def _die_at(number: int, folder: str) -> None:
    done = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if event in OPERATIONS:
            names = [os.fspath(name) for name in arguments[:2] if isinstance(name, (str, os.PathLike))]
            done += any(str(name).startswith(folder) for name in names)
            if done == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _mad_clock() -> None:
    """No library reads the real time of day from here on."""
    real, rng = time.time, random.Random(0)
    time.time = lambda: real() + rng.uniform(-30, 30) * 365 * 86_400
    time.time_ns = lambda: int(time.time() * 1e9)
