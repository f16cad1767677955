"""Pools of threads that compute at the same time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

import torch

from .population import keep_small_blocks


def available_threads() -> int:
    """One for each CPU that this process may use: never fewer because the machine is busy or short of memory.

    The clusters that a seed gives depend on the number of threads, so it must not change from one hour to the next.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def thread_pool(count: int, device: torch.device) -> Iterator[Executor]:
    """A pool whose workers compute with one thread each, while the calling thread uses ``count``.

    On a GPU the pool has one worker, which keeps it busy; more would only take memory for their activations.
    """
    keep_small_blocks()
    workers = count if device.type == "cpu" else 1
    with (
        ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as executor,
        torch_threads(count),
    ):
        try:
            yield executor
        finally:
            executor.shutdown(cancel_futures=True)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Compute with this many threads: the rounding of sums depends on their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
