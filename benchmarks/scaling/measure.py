"""What the formulas need and no other benchmark gives: what every host repeats and small shares of a batch.

In seconds of the CPU and with one thread: those do not depend on how busy the machine is, and only their ratios
are used.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch

from converge_to_surprise.config import Stage, presets
from converge_to_surprise.model.network import flatten
from converge_to_surprise.search import evolution, population
from converge_to_surprise.search.trainer import Trainer

SIDE = 28
SHARES = (32, 63, 125, 250, 500)


def seconds(work: Callable[[], object], rounds: int) -> float:
    """Processor time, the median of some rounds after one that does not count."""
    work()
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return statistics.median(times)


def some_images(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 1, SIDE, SIDE), dtype=torch.uint8, generator=generator)


def parts_of_an_update(rounds: int) -> dict[str, float]:
    """Seconds of one mirrored pair of members, and of those parts that do not get shorter with more hosts."""
    config = presets.resolve("paper", None, "mnist", 60_000, (1, SIDE, SIDE))
    config = replace(config, threads=1, network=replace(config.network, alive=1))
    batch = config.evolution.batch
    trainer = Trainer(some_images(batch), config)
    positions = torch.arange(batch)
    views = trainer._training_views(positions, 0)
    theta = flatten(trainer.network)
    generation = evolution.Generation(0, 0, 1.0, config.evolution)
    scores = torch.rand(config.evolution.population, dtype=torch.double)
    pair = evolution.Generation(0, 0, 1.0, replace(config.evolution, population=2))
    with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as workers:
        chunk = config.evolution.chunk
        return {
            "pair": seconds(
                lambda: population.scores(trainer.network, theta, pair, views, trainer.score, workers), rounds
            ),
            "views": seconds(lambda: trainer._training_views(positions, 0), rounds),
            "refresh": seconds(lambda: population.refresh(trainer.network, views, chunk, workers), rounds),
            "update": seconds(lambda: evolution.tell(theta, scores, generation), rounds),
        }


def small_shares(rounds: int) -> dict[str, float]:
    """Views per second of whole steps of the relaxed search by images per step."""
    found = {}
    for batch in SHARES:
        config = presets.resolve("fast", None, "mnist", 5000, (1, SIDE, SIDE))
        stages = (Stage("search", "relaxed", 10_000),)
        config = replace(config, threads=1, schedule=stages, relaxed=replace(config.relaxed, batch=batch))
        records = Trainer(some_images(5000), config).run()
        steps = max(2, 500 // batch)
        block = seconds(lambda: list(itertools.islice(records, steps)), rounds)  # noqa: B023 (called at once)
        found[str(batch)] = 2 * batch * steps / block
    return found


def measure(rounds: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    population.keep_small_blocks()
    return {
        "threads": 1,
        "torch": torch.__version__,
        "update_seconds": parts_of_an_update(rounds),
        "relaxed_views_per_processor_second": small_shares(rounds),
    }
