"""Threads that compute side by side."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

import torch

from .population import keep_small_blocks


@contextmanager
def pool(count: int, device: torch.device) -> Iterator[Executor]:
    """A pool whose workers compute with one thread each, while this thread may use all of them.

    A GPU is kept busy by one worker; each more would only take memory for activations of its own.
    """
    keep_small_blocks()
    workers = count if device.type == "cpu" else 1
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as executor, threads(count):
        try:
            yield executor
        finally:
            executor.shutdown(cancel_futures=True)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with so many threads: sums are rounded differently with more or fewer."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
