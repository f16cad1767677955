"""Real processes without the seconds of starting one: a server imports what they need once, and forks."""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import sys
from multiprocessing.context import ForkServerContext
from typing import Any

import pytest

_preloaded: list[str] = []


def preloaded(module: str) -> ForkServerContext:
    """A context for processes of a server that has imported a module.

    A server that others have started without the module is replaced. Python 3.11 does not give the server ``sys.path``,
    and the server ignores modules that it does not find; so it gets the path by PYTHONPATH.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if module not in _preloaded:
        _preloaded.append(module)
        server: Any = multiprocessing.forkserver._forkserver
        server._stop()
        server.set_forkserver_preload(_preloaded)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
            server.ensure_running()
    return multiprocessing.get_context("forkserver")
