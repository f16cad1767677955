"""Real processes that form a gloo group, for tests of collective work."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
from faults.forkserver import preloaded

from converge_to_surprise.distributed.group import ProcessGroup, active
from converge_to_surprise.search import trainer  # noqa: F401 - imported once, before the processes are forked

TIMEOUT = 120.0
"""Seconds after which a process counts as hung."""
LOADED_BY = os.getpid()
"""The process that imported this module, which forked processes inherit."""


def together(size: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The results of ``work(group, *arguments)`` in each of ``size`` processes, by rank; the group is the current one.

    ``work`` must be a function of a module, so that it can be pickled.
    """
    context = preloaded(__name__)
    with tempfile.TemporaryDirectory() as folder:
        ends, processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_run, args=(theirs, rank, size, folder, work, arguments))
            process.start()
            theirs.close()
            ends.append(ours)
            processes.append(process)
        try:
            return [_result(rank, end) for rank, end in enumerate(ends)]
        finally:
            for process in processes:
                process.join(TIMEOUT)
                process.kill()


def _result(rank: int, end: Connection) -> Any:
    assert end.poll(TIMEOUT), f"process {rank} hangs"
    succeeded, value = end.recv()
    assert succeeded, f"process {rank} failed:\n{value}"
    return value


def _run(end: Connection, rank: int, size: int, folder: str, work: Callable[..., Any], arguments: Any) -> None:
    torch.set_num_threads(1)
    try:
        store = dist.FileStore(str(Path(folder) / "store"), size)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=TIMEOUT))
        with active(ProcessGroup(rank, size)) as group:
            end.send((True, work(group, *arguments)))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        end.send((False, traceback.format_exc()))
