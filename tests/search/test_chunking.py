from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from converge_to_surprise.config import Config, Evolution, Network, Stage, Views
from converge_to_surprise.model import precision
from converge_to_surprise.model.network import ResNet9
from converge_to_surprise.search import chunking, population
from converge_to_surprise.search.trainer import Trainer

GIGABYTE = 2**30
PAPER = (3000, 1, 28, 28)


def outline(channels: int = 1, width: int = 8, space_to_depth: bool = False) -> ResNet9:
    with torch.device("meta"):
        return ResNet9(channels, 64, width, space_to_depth=space_to_depth)


class Peak(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The largest number of bytes of tensors created within the block that existed at the same time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.living: dict[StorageWeakRef, int] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(found):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                self.living[StorageWeakRef(storage)] = storage.nbytes()  # type: ignore[no-untyped-call]
        self.living = {
            storage: size
            for storage, size in self.living.items()
            if not storage.expired()  # type: ignore[no-untyped-call]
        }
        self.most = max(self.most, sum(self.living.values()))
        return found


@pytest.mark.parametrize("chunk", [50, 600, 3000])
@pytest.mark.parametrize(
    ("views", "width", "space_to_depth"),
    [(PAPER, 8, False), (PAPER, 8, True), ((900, 3, 47, 33), 16, False), ((3000, 1, 16, 16), 4, False)],
)
def test_the_estimated_memory_is_enough_and_at_most_two_and_a_half_times_the_real_one(
    views: tuple[int, int, int, int], width: int, space_to_depth: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted on ``meta``, where a batch of the paper's size costs nothing."""
    monkeypatch.setattr(population, "_workspace", population._Workspace())
    network = outline(views[1], width, space_to_depth)
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    with Peak() as peak:
        both = [torch.empty(views, device="meta") for _ in range(2)]
        for view in both:
            population.batch_logits(network, parameters, view, chunk)
    needed = chunking.bytes_needed(chunk, views, network)
    assert peak.most <= needed <= 2.5 * peak.most


def test_the_batch_of_the_paper_needs_no_large_gpu() -> None:
    assert chunking.bytes_needed(3000, PAPER, outline()) < GIGABYTE
    assert chunking.largest_chunk(2 * GIGABYTE, PAPER, outline()) == 3000


@given(st.integers(0, 40), st.integers(2, 5000), st.sampled_from([1, 3]), st.integers(1, 64), st.booleans())
@settings(max_examples=60)
def test_more_memory_never_means_a_smaller_chunk(
    exponent: int, count: int, channels: int, side: int, space_to_depth: bool
) -> None:
    network, views = outline(channels, space_to_depth=space_to_depth), (count, channels, side, side)
    chunk, larger = (chunking.largest_chunk(free, views, network) for free in (2**exponent, 2 ** (exponent + 1)))
    assert 1 <= chunk <= larger <= count
    assert chunk == count or chunk.bit_count() == 1
    needed = chunking.bytes_needed(chunk, views, network)
    assert chunk == 1 or needed <= chunking.USABLE * 2**exponent


def test_the_chunk_of_a_cpu_fits_its_cache() -> None:
    cpu = torch.device("cpu")
    assert chunking.best_chunk_size(cpu, (60_000, 1, 28, 28), Config()) == 50
    assert chunking.best_chunk_size(cpu, (60_000, 1, 28, 28), Config(precision="bfloat16")) == 100
    assert chunking.best_chunk_size(cpu, (60_000, 1, 14, 14), Config(views=Views(upsample=2))) == 50
    assert chunking.best_chunk_size(cpu, (60_000, 1, 7, 7), Config()) == 800
    assert chunking.best_chunk_size(cpu, (60_000, 3, 512, 512), Config()) == chunking.LEAST


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Free and total bytes of a GPU, to be changed by a test."""
    found = {"free": 40 * GIGABYTE, "total": 80 * GIGABYTE}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (found["free"], found["total"]))
    return found


GPU, USPS = torch.device("cuda:1"), (7291, 1, 16, 16)
ON_GPU = Config(device="cuda:1", evolution=Evolution(batch_size=3000), views=Views(upsample=2))


def test_the_chunk_of_a_gpu_fits_its_memory(memory: dict[str, int]) -> None:
    assert chunking.best_chunk_size(GPU, USPS, ON_GPU) == 3000
    assert chunking.best_chunk_size(GPU, (700, 1, 16, 16), ON_GPU) == 700
    memory["total"] = GIGABYTE
    small = chunking.best_chunk_size(GPU, USPS, ON_GPU)
    assert 50 < small < 3000
    assert chunking.best_chunk_size(GPU, USPS, replace(ON_GPU, views=Views(upsample=4))) < small


@given(st.integers(0, 2**34), st.integers(0, 2**34))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_chunk_of_a_gpu_does_not_depend_on_what_other_programs_leave(
    memory: dict[str, int], free: int, later: int
) -> None:
    """Rounding depends on the chunk, and the clusters on the rounding."""
    memory |= {"free": free, "total": 4 * GIGABYTE}
    first = chunking.best_chunk_size(GPU, USPS, ON_GPU)
    memory["free"] = later
    assert chunking.best_chunk_size(GPU, USPS, ON_GPU) == first


def test_a_gpu_that_is_too_full_is_told_before_the_run(memory: dict[str, int]) -> None:
    config = replace(ON_GPU, evolution=replace(ON_GPU.evolution, chunk_size=3000))
    chunking.check_device_memory(config, USPS)
    memory["free"] = GIGABYTE // 4
    with pytest.raises(ValueError, match=r"cuda:1 has 268,435,456 of .* or give evolution\.chunk_size") as refused:
        chunking.check_device_memory(config, USPS)
    offered = int(str(refused.value).split()[-1])
    chunking.check_device_memory(replace(config, evolution=replace(config.evolution, chunk_size=offered)), USPS)
    chunking.check_device_memory(replace(config, schedule=(Stage("search", "relaxed", 1),)), USPS)
    chunking.check_device_memory(replace(config, device="cpu"), USPS)


def test_the_free_memory_of_a_mac_is_the_recommended_memory_minus_the_allocated_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 10 * GIGABYTE)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 4 * GIGABYTE)
    assert chunking.device_bytes(torch.device("mps")) == (6 * GIGABYTE, 10 * GIGABYTE)


def test_device_and_chunk_size_are_resolved_once(bars: Tensor, small: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    config = chunking.resolve_hardware(small, bars)
    assert (config.device, config.evolution.chunk_size) == ("cpu", 612)
    assert chunking.resolve_hardware(config, bars) == config
    assert replace(config, device="auto", evolution=small.evolution) == small
    assert Trainer(bars, small).config == config
    own = replace(small, evolution=replace(small.evolution, chunk_size=7))
    assert chunking.resolve_hardware(own, bars).evolution.chunk_size == 7


def test_the_precision_is_resolved_with_the_hardware(
    bars: Tensor, small: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replace(small, device="cpu", precision="auto")
    for has, found in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(precision, "cpu_has_bfloat16", lambda has=has: has)
        resolved = chunking.resolve_hardware(asked, bars)
        assert (resolved.precision, Trainer(bars, asked).config) == (found, resolved)
        stored = replace(asked, views=Views(stored=True), network=Network(inputs=4))
        assert chunking.resolve_hardware(stored, torch.zeros(9, 2, 1, 4, dtype=torch.uint8)).precision == "float32"
