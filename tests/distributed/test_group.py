"""Several processes compute what a single one computes."""

from __future__ import annotations

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import crew
from support.configs import timeless
from support.crew import together
from torch import Tensor, nn

from converge_to_surprise.config import (
    Augmentation,
    Config,
    Consolidation,
    Evolution,
    Network,
    Relaxed,
    Stage,
    StageKind,
    Views,
)
from converge_to_surprise.core.augment import augment, skip
from converge_to_surprise.core.views import Shard, make_views, to_float
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.distributed.group import SINGLE, ProcessGroup, active, current
from converge_to_surprise.distributed.sync_batchnorm import synced_batchnorm
from converge_to_surprise.model.network import ClusterNetwork, flatten
from converge_to_surprise.search.record import Record
from converge_to_surprise.search.relaxed import relaxed_surprise
from converge_to_surprise.search.trainer import Trainer

AUGMENTATION = Augmentation(rotation=10, crop=1, brightness=0.2, contrast=0.2, sampling="bilinear")
EVOLUTION = Config(
    threads=1,
    schedule=(Stage("explore", "evolution", 4),),
    max_clusters=8,
    network=Network(width=2, min_active_outputs=4),
    evolution=Evolution(population=12, batch_size=50, sigma=0.05, learning_rate=0.2, ramp_epochs=2),
    augmentation=AUGMENTATION,
)
RELAXED = Config(
    threads=1,
    schedule=(Stage("search", "relaxed", 10),),
    max_clusters=8,
    network=Network(width=8, space_to_depth=True),
    # Gentle settings: with the usual ones a rounding error grows a thousandfold in fifty steps.
    relaxed=Relaxed(
        heads=3, batch_size=21, temperature=0.1, refine_temperature=0.1, learning_rate=3e-4, diversity_floor=(2.0, 4.0)
    ),
    augmentation=AUGMENTATION,
)
WHOLE = replace(
    RELAXED,
    schedule=(
        Stage("search", "relaxed", 4),
        Stage("merge", "merge", 1),
        Stage("refine", "refine", 1),
    ),
)
GRAPH = replace(
    RELAXED,
    schedule=(
        Stage("graph 1", "graph", 1),
        Stage("search 1", "relaxed", 1),
        Stage("graph 2", "graph", 1),
        *WHOLE.schedule,
    ),
    relaxed=replace(RELAXED.relaxed, random_heads=2, grow=True),
)
CONSOLIDATED = replace(
    EVOLUTION,
    schedule=(*EVOLUTION.schedule, Stage("settle", "consolidate", 1)),
    consolidation=Consolidation(tau=0.0, batch_size=21, learning_rate=1e-4),
)


def trained(
    group: ProcessGroup, config: Config, count: int = 105, first: int = 0
) -> tuple[list[Any], list[Record], list[float]]:
    """Weights at the end and, for every step, its record and the relaxed surprise of all images after it.

    Each process does the steps before the ``first`` on its own.
    """
    images = striped_images(count)[0]
    trainer = Trainer(images, config)
    records, surprise = [], []
    steps = trainer.run()
    while True:
        with active(group if trainer.step >= first else SINGLE):
            record = next(steps, None)
        if record is None:
            break
        records.append(timeless(record))
        surprise.append(_relaxed_surprise(trainer.network, images, config))
    weights = [flatten(trainer.network), *trainer.network.buffers()]
    return [weight.numpy() for weight in weights], records, surprise


@torch.no_grad()
def _relaxed_surprise(network: ClusterNetwork, images: Tensor, config: Config) -> float:
    soft_i, soft_j = (
        torch.softmax(network(view).reshape(len(view), network.heads, -1) / config.relaxed.temperature, -1)
        for view in make_views(to_float(images), config.views)
    )
    return float(relaxed_surprise(soft_i, soft_j)[0].sum())


def _loaded_by(group: ProcessGroup) -> tuple[int, int]:
    return crew.LOADED_BY, os.getpid()


@pytest.mark.subprocess
def test_processes_are_forked_from_one_that_has_imported_everything() -> None:
    loaded_by, own = zip(*together(2, _loaded_by), strict=True)
    assert len({*loaded_by}) == 1
    assert not {*loaded_by} & {*own, os.getpid()}


@pytest.mark.subprocess
def test_there_may_be_more_processes_than_pairs() -> None:
    config = replace(EVOLUTION, evolution=replace(EVOLUTION.evolution, population=4))
    alone, history, _ = trained(SINGLE, config)
    for weights, records, _ in together(3, trained, config):
        assert records == history
        np.testing.assert_array_equal(weights[0], alone[0])


@pytest.mark.subprocess
@pytest.mark.parametrize(("size", "kind"), [(2, "evolution"), (4, "evolution"), (2, "guided")])
def test_evolution_does_not_depend_on_the_number_of_processes(size: int, kind: StageKind) -> None:
    config = replace(EVOLUTION, schedule=tuple(replace(stage, kind=kind) for stage in EVOLUTION.schedule))
    alone, history, _ = trained(SINGLE, config)
    for weights, records, _ in together(size, trained, config):
        assert records == history
        for ours, theirs in zip(weights, alone, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.subprocess
@pytest.mark.parametrize("size", [2, 4])
def test_the_relaxed_search_is_that_of_the_whole_batch(size: int) -> None:
    _, history, alone = trained(SINGLE, RELAXED)
    assert len(alone) == 50
    assert alone[-1] > 3 * alone[0]
    found = together(size, trained, RELAXED)
    for weights, records, surprise in found:
        np.testing.assert_allclose(surprise, alone, atol=1e-4)
        assert [record.views for record in records] == [record.views for record in history]
        for ours, first in zip(weights, found[0][0], strict=True):
            np.testing.assert_array_equal(ours, first)  # every process has the same bits


@pytest.mark.subprocess
def test_the_relaxed_search_in_16_bits_is_nearly_that_of_the_whole_batch() -> None:
    """Rounding to 16 bits makes the parts of a batch differ from the whole, but only a little in a few steps."""
    config = replace(RELAXED, precision="bfloat16", schedule=(Stage("search", "relaxed", 1),))
    _, _, alone = trained(SINGLE, config)
    for _, _, surprise in together(2, trained, config):
        np.testing.assert_allclose(surprise, alone, rtol=0.05)


@pytest.mark.subprocess
def test_consolidation_is_that_of_the_whole_batch() -> None:
    before, _, _ = trained(SINGLE, EVOLUTION)
    alone, history, _ = trained(SINGLE, CONSOLIDATED)
    assert not np.array_equal(alone[0], before[0])
    for weights, records, _ in together(2, trained, CONSOLIDATED):
        assert records[:-1] == history[:-1]
        for ours, theirs in zip(weights, alone, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.subprocess
def test_merging_and_refining_are_those_of_one_process() -> None:
    """600 images, so that the processes split their chunks.

    The search before is not split, because its rounding errors would grow.
    """
    config = replace(WHOLE, relaxed=replace(RELAXED.relaxed, batch_size=100))
    alone, _, surprise = trained(SINGLE, config, 600)
    for weights, _, other in together(2, trained, config, 600, 24):
        np.testing.assert_allclose(other, surprise, atol=1e-3)
        for ours, theirs in zip(weights, alone, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-2)


@pytest.mark.subprocess
def test_rounds_of_graph_and_search_have_the_same_bits_in_every_process() -> None:
    """The default search: each round begins with heads that are computed, not trained."""
    first, *others = together(2, trained, GRAPH)
    assert [record.kind for record in first[1]].count("graph") == 10
    for weights, records, _ in others:
        assert records == first[1]
        for ours, theirs in zip(weights, first[0], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def _normalized(group: ProcessGroup, kind: str) -> tuple[Any, ...]:
    """A layer on this process's rows of a batch: output, gradients and running statistics."""
    torch.manual_seed(0)
    shape = {"flat": (7, 3), "images": (7, 3, 4, 5)}[kind]
    layer: nn.Module = nn.BatchNorm1d(3) if kind == "flat" else nn.BatchNorm2d(3)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    x, gradient = torch.randn(shape), torch.randn(shape)
    own = group.own(x).clone().requires_grad_()
    with synced_batchnorm(layer, group):
        for _ in range(2):
            out = layer(own)
    out.backward(group.own(gradient))
    group.sum_gradients(layer)
    assert own.grad is not None
    gradients = [p.grad for p in layer.parameters() if p.grad is not None]
    rows = [group.gather(out.detach(), 7), group.gather(own.grad, 7)]
    return tuple(value.detach().numpy() for value in (*rows, *gradients, *layer.buffers()))


@pytest.mark.subprocess
@pytest.mark.parametrize("kind", ["flat", "images"])
def test_batch_normalization_uses_the_whole_batch(kind: str) -> None:
    alone = _normalized(SINGLE, kind)
    for found in together(3, _normalized, kind):
        for ours, theirs in zip(found, alone, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-6)


def _corrected(group: ProcessGroup) -> tuple[Any, list[str]]:
    """Tensors of which process 1 has a different one, after the check, and the warnings of two checks."""
    tensors = [torch.arange(6.0), torch.tensor(3)]
    if group.rank == 1:
        tensors[0][2] += 1e-6
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        group.check_sync(tensors)
        group.check_sync(tensors)
    return [tensor.numpy() for tensor in tensors], [str(warning.message) for warning in caught]


@pytest.mark.subprocess
def test_weights_that_differ_are_corrected_with_a_warning() -> None:
    found = together(3, _corrected)
    for (weights, number), _ in found:
        np.testing.assert_array_equal(weights, np.arange(6.0))
        assert number == 3
    warned = [messages for _, messages in found]
    assert warned == [["the weights of process 1 differed from the others and were corrected"], [], []]


def _broadcast(group: ProcessGroup) -> list[bytes]:
    return [group.broadcast(b"twice two" if group.rank == 0 else b""), group.broadcast(b"")]


@pytest.mark.subprocess
def test_every_process_receives_the_message_of_the_first() -> None:
    assert together(2, _broadcast) == [[b"twice two", b""]] * 2


def _gathered(group: ProcessGroup, count: int, unit: int) -> tuple[Any, ...]:
    """All rows from what ``share`` and ``part`` give to each process, the sum over the processes and its gradient."""
    assert current() is group
    rows = torch.arange(2.0 * count).reshape(count, 2)
    part = group.part(count, unit)
    term = torch.full((3,), float(group.rank + 1), requires_grad=True)
    total = group.sum(term)
    (total * torch.arange(3.0)).sum().backward()  # type: ignore[no-untyped-call]
    assert term.grad is not None
    group.barrier()
    shared = group.gather(group.own(rows, unit), count, unit)
    joined = group.join_parts(rows[part.start : part.stop], count, unit)
    return tuple(value.detach().numpy() for value in (shared, joined, total, term.grad))


@pytest.mark.subprocess
@pytest.mark.parametrize(("count", "unit"), [(10, 1), (10, 4), (2, 1), (9, 8)])
def test_shares_are_gathered_and_terms_summed(count: int, unit: int) -> None:
    rows = np.arange(2.0 * count).reshape(count, 2)
    for shared, joined, total, gradient in together(3, _gathered, count, unit):
        np.testing.assert_array_equal(shared, rows)
        np.testing.assert_array_equal(joined, rows)
        np.testing.assert_array_equal(total, [6.0] * 3)
        np.testing.assert_array_equal(gradient, [0.0, 1.0, 2.0])


@given(st.integers(1, 9), st.integers(1, 50), st.integers(1, 7))
def test_shares_are_whole_units_nearly_equal_and_cover_everything_once(size: int, count: int, unit: int) -> None:
    shares = [ProcessGroup(rank, size).share(count, unit) for rank in range(size)]
    parts = [ProcessGroup(rank, size).part(count, unit) for rank in range(size)]
    assert shares == (parts if -(-count // unit) >= size else [range(count)] * size)
    assert [row for part in parts for row in part] == list(range(count))
    assert all(part.start % unit == 0 for part in parts if part)
    sizes = [-(-len(part) // unit) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 4), st.integers(4, 20), st.integers(0, 99))
def test_an_image_gets_the_same_views_in_any_process(size: int, count: int, seed: int) -> None:
    pixels = to_float(striped_images(count)[0])

    def both(part: Tensor, shard: Shard | None) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        views = torch.cat(make_views(part, EVOLUTION.views, generator, shard=shard))
        return augment(views, AUGMENTATION, generator, shard, batches=2, signed=False)

    whole = both(pixels, None).reshape(2, count, *pixels.shape[1:])
    for rank in range(size):
        _, shard = ProcessGroup(rank, size).shard(count)
        rows = range(count) if shard is None else shard.rows
        part = both(pixels[rows.start : rows.stop], shard).reshape(2, len(rows), *pixels.shape[1:])
        torch.testing.assert_close(part, whole[:, rows.start : rows.stop], rtol=0, atol=0)


def test_skipping_advances_the_generator_as_making_the_views_does() -> None:
    pixels = to_float(striped_images(9)[0])
    first, second = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    for view in make_views(pixels, EVOLUTION.views, first):
        augment(view, AUGMENTATION, first, signed=False)
    assert not torch.equal(first.get_state(), second.get_state())
    skip(pixels, (EVOLUTION.views, AUGMENTATION), 9, second)
    assert torch.equal(first.get_state(), second.get_state())


def test_skipping_stored_views_advances_the_generator_as_drawing_them_does() -> None:
    items, stored = torch.zeros(9, 2, 5, 4), Views(stored=True)
    first, second = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    for view in make_views(items, stored, first):
        augment(view, Augmentation(), first, signed=False)
    assert not torch.equal(first.get_state(), second.get_state())
    skip(items, (stored, Augmentation()), 9, second)
    assert torch.equal(first.get_state(), second.get_state())


def test_the_group_is_current_within_its_block_only() -> None:
    outer, inner = ProcessGroup(1, 3), ProcessGroup(0, 2)
    assert current() == SINGLE
    with active(outer) as found:
        assert found is current() is outer
        with active(inner):
            assert current() is inner
        assert current() is outer
    assert current() == SINGLE


def test_the_group_is_reset_after_an_error() -> None:
    def fail() -> None:
        with active(ProcessGroup(1, 3)):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert current() == SINGLE


def test_a_thread_does_not_inherit_the_group() -> None:
    """A server thread that labels images must not take part in the collectives of the training."""
    with active(ProcessGroup(1, 3)), ThreadPoolExecutor(1) as pool:
        assert pool.submit(current).result() == SINGLE
        assert current() == ProcessGroup(1, 3)


def test_a_group_of_one_process_changes_nothing() -> None:
    rows = torch.arange(12.0).reshape(6, 2)
    network = nn.Linear(2, 1)
    network(rows).sum().backward()
    assert network.weight.grad is not None
    before = network.weight.grad.clone()
    SINGLE.sum_gradients(network)
    assert torch.equal(network.weight.grad, before)
    assert torch.equal(SINGLE.own(rows), rows)
    assert torch.equal(SINGLE.gather(rows, 6), rows)
    assert torch.equal(SINGLE.sum(rows), rows)
    assert SINGLE.shard(6) == (SINGLE, None)
    assert SINGLE.broadcast(b"message") == b"message"
