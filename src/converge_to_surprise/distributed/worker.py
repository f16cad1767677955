"""A worker process: it executes the commands of the first process until that ends the group."""

from __future__ import annotations

import json
import signal
import sys
from importlib import import_module

from . import launch
from .errors import WorkerLost
from .group import active

COMMANDS = {
    "train": "converge_to_surprise.runs.session:train_as_worker",
    "predict": "converge_to_surprise.runs.predict:predict_as_worker",
    "decode": "converge_to_surprise.data.shared_decoding:decode_as_worker",
}
"""The function of each command, by name: it belongs to a higher layer and is imported when it is needed."""


def serve() -> int:
    """Execute the commands of the first process; returns 0 if it ended the group."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process handles Ctrl-C
    try:
        with launch.joined() as group, active(group):
            while (message := json.loads(group.broadcast()))["command"] != "end":
                module, _, function = COMMANDS[message.pop("command")].partition(":")
                getattr(import_module(module), function)(**message)
    except WorkerLost as lost:
        print(f"cts: process {launch.rank()} stops: {lost}", file=sys.stderr)
        return 1
    except (OSError, ValueError, MemoryError) as error:
        print(f"cts: process {launch.rank()}: {error}", file=sys.stderr)
        return 2
    return 0
