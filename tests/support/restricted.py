"""Commands in a process to which file permissions apply, also if root started it (Linux)."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2

PROGRAM = """
import contextlib, io, json, sys
from converge_to_surprise import cli
answers = []
for words in json.load(sys.stdin):
    shown = io.StringIO()
    with contextlib.redirect_stderr(shown), contextlib.redirect_stdout(io.StringIO()):
        answers.append([cli.main(words), shown.getvalue()])
print(json.dumps(answers))
"""


class Answer(NamedTuple):
    code: int
    message: str
    """What was written to the error stream."""


def call_restricted(commands: Sequence[Sequence[object]], **environment: object) -> list[Answer]:
    """Run commands one after another in one process that may not pass over permissions."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([[str(word) for word in words] for words in commands]),
        capture_output=True,
        text=True,
        env=os.environ | {name: str(value) for name, value in environment.items()},
        preexec_fn=_drop_capabilities if os.geteuid() == 0 else None,
    )
    assert done.returncode == 0, done.stderr
    return [Answer(*answer) for answer in json.loads(done.stdout)]


def _drop_capabilities() -> None:
    """What is not in the bounding set is gone after the next exec, also for root."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
