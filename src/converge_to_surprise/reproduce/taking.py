"""Of the starts of a seed, each a run of its own here so that all CPUs have work, the one that is taken.

`cts fit` with so many starts makes the same runs one after the other and takes the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..config import Config
from ..core.rng import start_seeds
from .plan import Recipe, fit_command, job_name
from .tables import Row, cells


def groups(seeds: Iterable[int], starts: int) -> dict[int, list[int]]:
    """Of the seeds of some runs those that runs with several starts would have, and the seeds of their starts.

    >>> groups([0, 1, 1000, 1001, 7], 2)
    {0: [0, 1000], 1: [1, 1001]}
    """
    present, found = set(seeds), {}
    for seed in sorted(present):
        own = start_seeds(seed, starts)
        if present.issuperset(own):
            found[seed] = own
            present -= set(own)
    return found


def most_even(starts: Iterable[Row]) -> Row:
    """The first of those with the best balanced clusters."""
    return max(starts, key=lambda row: float(row["balance"]))


def of_starts(seed: int, starts: list[Row]) -> Row:
    """The row of a seed: that of its best balanced start, with all of them in it."""
    best = most_even(starts)
    seconds = round(sum(row["seconds"] for row in starts), 1)
    return best | {"seed": seed, "seconds": seconds, "starts": starts, "taken": starts.index(best)}


def taken(rows: Sequence[Row], recipe: Recipe, asked: Sequence[int] | None = None) -> tuple[list[Row], dict[str, str]]:
    """One row for every seed, that of its best balanced start with all starts in it, and why rows were left out.

    The seeds are those ``asked`` for, or else those that the runs may belong to.
    """
    found: list[Row] = []
    left_out: dict[str, str] = {}
    for (dataset, variant), cell in cells(rows).items():
        by_seed = {row["seed"]: row for row in cell.rows}
        config = _whole(cell.rows[0], recipe)
        if config.starts == 1:
            found += cell.rows
            continue
        if asked is None:
            grouped = groups(by_seed, config.starts)
        else:
            wanted = {seed: start_seeds(seed, config.starts) for seed in asked}
            grouped = {seed: own for seed, own in wanted.items() if set(by_seed).issuperset(own)}
        for seed, seeds in grouped.items():
            row = of_starts(seed, [by_seed[own] for own in seeds])
            words = recipe.words(dataset, row["images"], _shape(row), replace(config, seed=seed))
            found.append(row | {"command": fit_command(words, row["threads"])})
        alone = set(by_seed).difference(*grouped.values())
        for seed in sorted(alone):
            why = f"which belongs to no seed all of whose {config.starts} starts are finished"
            left_out[job_name(dataset, variant, seed)] = why
    return found, left_out


def without_later_starts(rows: Sequence[Row], recipe: Recipe) -> list[Row]:
    """Only the first start of every seed that has several."""
    found: list[Row] = []
    for cell in cells(rows).values():
        starts = _whole(cell.rows[0], recipe).starts
        later = later_starts((row["seed"] for row in cell.rows), starts)
        found += [row for row in cell.rows if row["seed"] not in later]
    return found


def later_starts(seeds: Iterable[int], starts: int) -> set[int]:
    """Of the seeds of some runs those that are a later start of another one.

    >>> sorted(later_starts([0, 7, 1000, 1003, 2000], 3))
    [1000, 2000]
    """
    present = set(seeds)
    return present.intersection(own for seed in present for own in start_seeds(seed, starts)[1:])


def _whole(row: Row, recipe: Recipe) -> Config:
    """The configuration of a run with all starts."""
    config = recipe.config(row["dataset"], row["images"], _shape(row), row["variant"], row["seed"])
    assert config is not None  # there is such a run
    return config


def _shape(row: Row) -> tuple[int, int, int]:
    channels, height, width = row["shape"]
    return channels, height, width


def run_seed(row: Row) -> int:
    """The seed of the run that a row is about."""
    return int(row["starts"][row["taken"]]["seed"] if "starts" in row else row["seed"])
