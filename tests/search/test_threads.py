from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from converge_to_surprise.search.threads import available_threads, thread_pool, torch_threads


@pytest.mark.parametrize(("device", "workers"), [("cpu", 3), ("cuda", 1), ("mps", 1)])
def test_a_pool_has_a_worker_per_thread_of_the_cpu_and_one_for_a_gpu(device: str, workers: int) -> None:
    with thread_pool(3, torch.device(device)) as pool:
        assert isinstance(pool, ThreadPoolExecutor)
        assert pool._max_workers == workers


def test_workers_compute_with_one_thread_and_the_caller_with_all() -> None:
    before = torch.get_num_threads()
    with thread_pool(2, torch.device("cpu")) as pool:
        assert pool.submit(torch.get_num_threads).result() == 1
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == before


def test_the_number_of_threads_is_restored_after_an_error() -> None:
    before = torch.get_num_threads()

    def fail() -> None:
        with torch_threads(before + 1):
            assert torch.get_num_threads() == before + 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == before


@pytest.mark.subprocess
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the CPUs of a process cannot be chosen here")
def test_there_is_a_thread_for_each_cpu_that_the_process_may_use() -> None:
    """In a process of its own, whatever the machine is busy with."""
    program = "import os; os.sched_setaffinity(0, {cpus}); from {module} import {name}; print({name}())"
    allowed = sorted(os.sched_getaffinity(0))
    for cpus in ({allowed[0]}, set(allowed)):
        code = program.format(cpus=cpus, module=available_threads.__module__, name=available_threads.__name__)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert int(done.stdout) == len(cpus)


def test_the_default_does_not_follow_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    before = available_threads()
    monkeypatch.setattr(os, "getloadavg", lambda: (900.0, 900.0, 900.0))
    monkeypatch.setattr("converge_to_surprise.config.memory.free_memory", lambda: 0)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert available_threads() == before >= 1


@pytest.mark.subprocess
def test_openmp_takes_no_fewer_threads_when_the_machine_is_busy() -> None:
    code = "import converge_to_surprise, os; converge_to_surprise.SurpriseClustering; print(os.environ['OMP_DYNAMIC'])"
    busy = os.environ | {"OMP_DYNAMIC": "TRUE"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=busy)
    assert done.stdout.strip() == "FALSE"
