from __future__ import annotations

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


def test_there_is_at_least_one_thread() -> None:
    assert available_threads() >= 1
