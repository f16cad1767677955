"""What several processes do together is what one does alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.crew import together
from torch import Tensor, nn

from converge_to_surprise.config import Augmentation, Config, Consolidation, Evolution, Network, Relaxed, Stage
from converge_to_surprise.core.augment import augment, skip
from converge_to_surprise.core.views import Shard, make_views, to_float
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.distributed.group import ProcessGroup
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
        heads=3, batch_size=21, temperature=0.1, refine_temperature=0.1, learning_rate=5e-4, diversity_floor=(2.0, 4.0)
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
CONSOLIDATED = replace(
    EVOLUTION,
    schedule=(*EVOLUTION.schedule, Stage("settle", "consolidate", 1)),
    consolidation=Consolidation(tau=0.0, batch_size=21, learning_rate=1e-4),
)


def images() -> Tensor:
    return striped_images(105)[0]


def trained(
    world: ProcessGroup, config: Config, count: int = 105, first: int = 0
) -> tuple[list[Any], list[Record], list[float]]:
    """Weights at the end and, for every step, its record and the relaxed surprise of all images after it.

    The steps before the ``first`` are each process's own.
    """
    images = striped_images(count)[0]
    trainer = Trainer(images, config)
    trainer.join(ProcessGroup() if first else world)
    records, surprise = [], []
    for record in trainer.run():
        if trainer.step == first:
            trainer.join(world)
        records.append(replace(record, seconds=0.0))
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


def test_more_processes_than_pairs_are_no_harm() -> None:
    config = replace(EVOLUTION, evolution=replace(EVOLUTION.evolution, population=4))
    alone, history, _ = trained(ProcessGroup(), config)
    for weights, records, _ in together(3, trained, config):
        assert records == history
        np.testing.assert_array_equal(weights[0], alone[0])


@pytest.mark.parametrize("size", [2, 4])
def test_evolution_does_not_depend_on_the_number_of_processes(size: int) -> None:
    alone, history, _ = trained(ProcessGroup(), EVOLUTION)
    for weights, records, _ in together(size, trained, EVOLUTION):
        assert records == history
        for ours, theirs in zip(weights, alone, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("size", [2, 4])
def test_the_relaxed_search_is_that_of_the_whole_batch(size: int) -> None:
    _, history, alone = trained(ProcessGroup(), RELAXED)
    assert len(alone) == 50
    assert alone[-1] > 3 * alone[0]
    found = together(size, trained, RELAXED)
    for weights, records, surprise in found:
        np.testing.assert_allclose(surprise, alone, atol=1e-4)
        assert [record.views for record in records] == [record.views for record in history]
        for ours, first in zip(weights, found[0][0], strict=True):
            np.testing.assert_array_equal(ours, first)  # processes never drift apart


def test_fewer_bits_are_shared_out_too() -> None:
    """Rounding to 16 bits makes the parts of a batch differ from the whole, but not by much in a few steps."""
    config = replace(RELAXED, precision="bfloat16", schedule=(Stage("search", "relaxed", 1),))
    _, _, alone = trained(ProcessGroup(), config)
    for _, _, surprise in together(2, trained, config):
        np.testing.assert_allclose(surprise, alone, rtol=0.05)


def test_consolidation_is_that_of_the_whole_batch() -> None:
    before, _, _ = trained(ProcessGroup(), EVOLUTION)
    alone, history, _ = trained(ProcessGroup(), CONSOLIDATED)
    assert not np.array_equal(alone[0], before[0])
    for weights, records, _ in together(2, trained, CONSOLIDATED):
        assert records[:-1] == history[:-1]
        for ours, theirs in zip(weights, alone, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_merging_and_refining_are_shared_out() -> None:
    """600 images: labeling them is shared out in chunks. What is found is what one process finds.

    The search before, whose rounding would grow in it, is not shared out.
    """
    config = replace(WHOLE, relaxed=replace(RELAXED.relaxed, batch=100))
    alone, _, surprise = trained(ProcessGroup(), config, 600)
    for weights, _, other in together(2, trained, config, 600, 24):
        np.testing.assert_allclose(other, surprise, atol=1e-3)
        for ours, theirs in zip(weights, alone, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-2)


def _normalized(world: ProcessGroup, kind: str) -> tuple[Any, ...]:
    """A layer on this process's rows of a batch: output, gradients and running statistics."""
    torch.manual_seed(0)
    shape = {"flat": (7, 3), "images": (7, 3, 4, 5)}[kind]
    layer: nn.Module = nn.BatchNorm1d(3) if kind == "flat" else nn.BatchNorm2d(3)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    x, gradient = torch.randn(shape), torch.randn(shape)
    own = world.own(x).clone().requires_grad_()
    with synced_batchnorm(layer, world):
        for _ in range(2):
            out = layer(own)
    out.backward(world.own(gradient))
    world.sum_gradients(layer)
    assert own.grad is not None
    gradients = [p.grad for p in layer.parameters() if p.grad is not None]
    rows = [world.gather(out.detach(), 7), world.gather(own.grad, 7)]
    return tuple(value.detach().numpy() for value in (*rows, *gradients, *layer.buffers()))


@pytest.mark.parametrize("kind", ["flat", "images"])
def test_batch_normalization_sees_the_whole_batch(kind: str) -> None:
    alone = _normalized(ProcessGroup(), kind)
    for found in together(3, _normalized, kind):
        for ours, theirs in zip(found, alone, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-6)


def _drifted(world: ProcessGroup) -> tuple[Any, list[str]]:
    import warnings

    tensors = [torch.arange(6.0), torch.tensor(3)]
    if world.rank == 1:
        tensors[0][2] += 1e-6
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        world.agree(tensors)
        world.agree(tensors)
    return [tensor.numpy() for tensor in tensors], [str(warning.message) for warning in caught]


def test_a_process_that_drifted_is_set_right() -> None:
    found = together(3, _drifted)
    for (weights, number), _ in found:
        np.testing.assert_array_equal(weights, np.arange(6.0))
        assert number == 3
    assert [len(said) for _, said in found] == [1, 0, 0]
    assert "process 1 had other weights" in found[0][1][0]


def _told(world: ProcessGroup) -> list[bytes]:
    return [world.tell(b"twice two" if world.rank == 0 else b""), world.tell(b"")]


def test_the_first_process_is_heard_by_all() -> None:
    assert together(2, _told) == [[b"twice two", b""]] * 2


@given(st.integers(1, 9), st.integers(1, 50), st.integers(1, 7))
def test_shares_are_whole_units_near_equal_and_everything_once(size: int, count: int, unit: int) -> None:
    shares = [ProcessGroup(rank, size).share(count, unit) for rank in range(size)]
    parts = [ProcessGroup(rank, size).part(count, unit) for rank in range(size)]
    assert shares == (parts if -(-count // unit) >= size else [range(count)] * size)
    assert [row for part in parts for row in part] == list(range(count))
    assert all(part.start % unit == 0 for part in parts if part)
    sizes = [-(-len(part) // unit) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 4), st.integers(4, 20), st.integers(0, 99))
def test_an_image_gets_the_same_views_whoever_makes_them(size: int, count: int, seed: int) -> None:
    pixels = to_float(striped_images(count)[0])

    def both(part: Tensor, share: Shard | None) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        views = torch.cat(make_views(part, EVOLUTION.views, generator, share=share))
        return augment(views, AUGMENTATION, generator, share, batches=2, signed=False)

    whole = both(pixels, None).reshape(2, count, *pixels.shape[1:])
    for rank in range(size):
        _, share = ProcessGroup(rank, size).batch(count)
        rows = range(count) if share is None else share.rows
        part = both(pixels[rows.start : rows.stop], share).reshape(2, len(rows), *pixels.shape[1:])
        torch.testing.assert_close(part, whole[:, rows.start : rows.stop], rtol=0, atol=0)


def test_passing_over_takes_what_making_views_takes() -> None:
    pixels = to_float(striped_images(9)[0])
    first, second = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    for view in make_views(pixels, EVOLUTION.views, first):
        augment(view, AUGMENTATION, first, signed=False)
    skip(AUGMENTATION, 9, second)
    assert torch.equal(first.get_state(), second.get_state())
