from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from converge_to_surprise.config import Config, Relaxed, Stage
from converge_to_surprise.core import rng
from converge_to_surprise.search import sampler, schedule

LARGE = sampler.LIMIT + 1
SEARCH = Stage("search", "relaxed", 1)


def clear_caches() -> None:
    """As in a new process."""
    for cached in (sampler._permutation, sampler._windows, sampler._window):
        cached.cache_clear()


def placeholders(count: int) -> Tensor:
    """Images whose number matters only."""
    return torch.zeros(1, dtype=torch.uint8).expand(count, 1, 1, 1)


def epoch_of(images: int, batch: int, seed: int, epoch: int) -> list[Tensor]:
    """The batches of an epoch."""
    config = Config(schedule=(SEARCH,), relaxed=Relaxed(batch_size=batch))
    step = next(schedule.steps(config, images))
    return [
        schedule.batch_positions(replace(step, epoch=epoch, batch=index), placeholders(images), seed)
        for index in range(step.batches)
    ]


@given(st.integers(2, 3000), st.integers(2, 700), st.integers(0, 2**63 - 1), st.integers(0, 9))
def test_the_order_of_few_images_is_one_permutation(images: int, batch: int, seed: int, epoch: int) -> None:
    whole = torch.randperm(images, generator=rng.torch_generator(seed, "order", epoch))
    batches = schedule.batches_per_epoch(images, batch)
    for found, expected in zip(epoch_of(images, batch, seed, epoch), whole.tensor_split(batches), strict=True):
        assert torch.equal(found, expected)


def test_more_images_than_the_limit_are_ordered_in_blocks() -> None:
    whole = torch.randperm(sampler.LIMIT, generator=rng.torch_generator(5, "order", 2))
    assert torch.equal(sampler.epoch_indices(sampler.LIMIT, 0, sampler.LIMIT, 5, 2), whole)
    assert torch.equal(sampler.epoch_indices(LARGE, 0, 500, 5, 2), sampler.blocked_epoch_indices(LARGE, 0, 500, 5, 2))


@settings(max_examples=25)
@given(st.integers(1, 300_000), st.integers(1, 50), st.integers(0, 2**63 - 1), st.integers(0, 9))
def test_an_epoch_in_blocks_visits_every_image_once(images: int, pieces: int, seed: int, epoch: int) -> None:
    ends = torch.linspace(0, images, min(pieces, images) + 1).long().tolist()
    found = [sampler.blocked_epoch_indices(images, a, b, seed, epoch) for a, b in pairwise(ends) if a < b]
    assert torch.equal(torch.cat(found).sort().values, torch.arange(images))


@settings(max_examples=5)
@given(st.integers(LARGE, 2 * LARGE), st.integers(200, 5000), st.integers(0, 99))
def test_an_epoch_of_many_images_visits_each_once_in_nearly_equal_batches(images: int, batch: int, seed: int) -> None:
    parts = epoch_of(images, batch, seed, 1)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= batch
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(images))


@settings(max_examples=10)
@given(st.integers(LARGE, 10**8), st.data(), st.integers(0, 2**63 - 1), st.integers(0, 9))
def test_indices_do_not_depend_on_earlier_calls(
    images: int, data: st.DataObject, seed: int, epoch: int
) -> None:
    start = data.draw(st.integers(0, images - 2))
    stop = min(images, start + 250)
    clear_caches()
    first = sampler.epoch_indices(images, start, stop, seed, epoch)
    sampler.epoch_indices(images, 0, 10, seed, epoch + 1)
    sampler.epoch_indices(images, images - 1, images, seed, epoch)
    halves = [sampler.epoch_indices(images, a, b, seed, epoch) for a, b in ((start + 1, stop), (start, start + 1))]
    assert torch.equal(torch.cat(halves[::-1]), first)
    assert len(first) == stop - start
    assert 0 <= int(first.min()) <= int(first.max()) < images


def test_changing_the_returned_indices_does_not_change_later_ones() -> None:
    for images in (100, LARGE):
        first = sampler.epoch_indices(images, 0, 50, 0, 0)
        kept = first.clone()
        first.zero_()
        assert torch.equal(sampler.epoch_indices(images, 0, 50, 0, 0), kept)


@given(st.integers(LARGE, 10**7), st.integers(0, 999))
@settings(max_examples=10)
def test_a_batch_holds_images_from_all_over_the_file(images: int, seed: int) -> None:
    batch = sampler.epoch_indices(images, 1000, 1250, seed, 0)
    assert len(torch.unique(batch // sampler.BLOCK)) > 150
    tenths = torch.bincount(batch * 10 // images, minlength=10)
    assert int(tenths.min()) > 0
    assert int(tenths.max()) < 80


def test_successive_batches_are_read_from_few_stretches() -> None:
    """One permutation of a million images would visit almost every block within 50,000 images."""
    found = sampler.epoch_indices(10**6, 100_000, 150_000, 0, 0)
    assert len(torch.unique(found // sampler.BLOCK)) <= 2 * sampler.WINDOW
    whole = torch.randperm(10**6, generator=torch.Generator().manual_seed(0))[:50_000]
    assert len(torch.unique(whole // sampler.BLOCK)) > 7000


@settings(max_examples=5)
@given(st.integers(LARGE, 2 * LARGE), st.integers(2000, 70_000), st.integers(0, 99))
def test_every_block_is_announced_once_and_before_it_is_read(images: int, batch: int, seed: int) -> None:
    announced = torch.zeros(images, dtype=torch.long)
    for start in range(0, images, batch):
        for first, last in sampler.upcoming_blocks(images, start, min(images, start + batch), seed, 0):
            announced[first:last] += 1
        assert bool(announced[sampler.epoch_indices(images, start, min(images, start + batch), seed, 0)].all())
    assert bool((announced == 1).all())
    assert sampler.upcoming_blocks(sampler.LIMIT, 0, 250, seed, 0) == []


def test_batches_announce_the_coming_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[list[tuple[int, int]]] = []
    monkeypatch.setattr(schedule, "announce", lambda _, stretches: announced.append(stretches))
    step = next(schedule.steps(Config(schedule=(SEARCH,)), LARGE))
    found = [schedule.batch_positions(replace(step, batch=index), placeholders(LARGE), 0) for index in range(3)]
    assert torch.equal(torch.cat(found), torch.cat(epoch_of(LARGE, 250, 0, 0)[:3]))
    assert announced == [sampler.upcoming_blocks(LARGE, 0, 250, 0, 0)]
    assert announced[0]


@pytest.mark.parametrize("change", [{"seed": 1}, {"epoch": 1}, {"purpose": "balance"}])
def test_other_seeds_epochs_and_purposes_have_other_orders(change: dict[str, Any]) -> None:
    same: dict[str, Any] = {"seed": 0, "epoch": 0}
    first, second = (sampler.blocked_epoch_indices(10_000, 0, 200, **given) for given in (same, same | change))
    assert not torch.equal(first, second)
