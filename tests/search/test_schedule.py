from __future__ import annotations

from collections import Counter
from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.config import Config, Evolution, Relaxed, Stage, StageKind
from converge_to_surprise.search import schedule


def config(*stages: Stage, batch: int = 10) -> Config:
    return Config(schedule=stages, evolution=Evolution(batch_size=batch), relaxed=Relaxed(batch_size=batch))


def test_a_small_schedule_by_hand() -> None:
    plan = list(schedule.steps(config(Stage("a", "evolution", 2), Stage("b", "evolution", 4, passes=2, every=2)), 15))
    # Two batches an epoch; consolidation after epochs 4 and 6 of the run (counted from 1), as in algorithm 1.
    e, c = "evolution", "consolidate"
    assert [step.kind for step in plan] == [e] * 4 + [e] * 4 + [c] * 2 + [e] * 4 + [c] * 2
    assert [step.number for step in plan] == list(range(16))
    assert [step.epoch for step in plan if step.kind == e] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert [step.first for step in plan if step.kind == c] == [True, False, True, False]
    assert [step.stage for step in plan] == ["a"] * 4 + ["b"] * 12


def test_search_merge_and_consolidation_stages() -> None:
    plan = list(
        schedule.steps(config(Stage("s", "relaxed", 2), Stage("m", "merge", 1), Stage("c", "consolidate", 3)), 10)
    )
    assert [step.kind for step in plan] == ["relaxed"] * 2 + ["merge"] + ["consolidate"] * 3
    assert [step.first for step in plan] == [True, False, True, True, False, False]
    assert [step.progress for step in plan[:2]] == [0.0, 0.5]


def test_the_first_period_begins_after_the_warm_up() -> None:
    """Algorithm 1: e > T0 and e mod T1b = 0; with T0 = 2000 and T1b = 25 the first pass follows epoch 2025."""
    stages = (Stage("explore", "evolution", 2000), Stage("strong", "evolution", 1000, passes=4, every=25))
    plan = schedule.steps(replace(config(*stages), evolution=Evolution(batch_size=3000)), 60_000)
    passes = Counter(step.epoch + 1 for step in plan if step.kind == "consolidate")
    assert sorted(passes) == list(range(2025, 3001, 25))
    assert set(passes.values()) == {4}


@given(st.integers(2, 500), st.integers(2, 200), st.integers(0, 5), st.integers(0, 99))
def test_an_epoch_visits_every_image_once_in_nearly_equal_batches(
    images: int, batch: int, epoch: int, seed: int
) -> None:
    batches = schedule.batches_per_epoch(images, batch)
    step = next(schedule.steps(config(Stage("a", "evolution", 1), batch=batch), images))
    pixels = torch.zeros(images, 1, 1, 1, dtype=torch.uint8)
    parts = [
        schedule.batch_positions(replace(step, epoch=epoch, batch=index), pixels, seed) for index in range(batches)
    ]
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= batch
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(images))


def test_epochs_are_shuffled_differently() -> None:
    step = next(schedule.steps(config(Stage("a", "evolution", 1)), 50))
    pixels = torch.zeros(50, 1, 1, 1, dtype=torch.uint8)
    orders = {tuple(schedule.batch_positions(replace(step, epoch=epoch), pixels, 0).tolist()) for epoch in range(3)}
    assert len(orders) == 3


@given(
    st.lists(
        st.tuples(st.sampled_from(("graph", "relaxed", "refine")), st.floats(0.001, 4) | st.integers(1, 4)),
        min_size=1,
        max_size=4,
    ),
    st.integers(10, 60),
)
def test_stages_may_end_within_an_epoch(parts: list[tuple[StageKind, float]], images: int) -> None:
    """Each stage has its share of steps, and begins with an epoch of its own."""
    stages = [Stage(str(number), kind, epochs) for number, (kind, epochs) in enumerate(parts)]
    plan = list(schedule.steps(config(*stages), images))
    batches = schedule.batches_per_epoch(images, 10)
    assert schedule.count_steps(config(*stages), images) == len(plan)
    for number, (_, epochs) in enumerate(parts):
        own = [step for step in plan if step.stage == str(number)]
        assert abs(len(own) - epochs * batches) <= 1
        assert [step.batch for step in own] == [index % batches for index in range(len(own))]
        assert [step.first for step in own] == [True] + [False] * (len(own) - 1)
        assert own[0].progress == 0
        assert own[-1].progress < 1
    assert len({(step.epoch, step.batch) for step in plan}) == len(plan)


def test_the_count_is_the_number_of_steps(small: Config) -> None:
    assert schedule.count_steps(small, 120) == len(list(schedule.steps(small, 120))) == 2 * 4 + 2 * 2
