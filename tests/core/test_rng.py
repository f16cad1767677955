"""Random streams named by seed, purpose and position."""

from __future__ import annotations

import json
import random
from collections import Counter

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.config import Config
from converge_to_surprise.core import rng


@given(st.integers(0, 2**63 - 1), st.integers(0, 999))
def test_initializations_have_different_valid_seeds(seed: int, index: int) -> None:
    seeds = {rng.init_seed(seed, other) for other in range(index + 1)}
    assert len(seeds) == index + 1
    assert rng.init_seed(seed, 0) == seed
    assert all(Config(seed=found).seed == found for found in seeds)


def test_runs_with_consecutive_seeds_share_no_initialization() -> None:
    seeds = Counter(rng.init_seed(seed, index) for seed in range(1000) for index in range(5))
    assert max(seeds.values()) == 1


def test_streams_differ_in_seed_purpose_and_position() -> None:
    names = [(0, "views", [3]), (1, "views", [3]), (0, "order", [3]), (0, "views", [4]), (0, "views", [3, 1])]
    for generator in (rng.torch_generator, rng.numpy_generator):
        drawn = [_first(generator(seed, purpose, *position)) for seed, purpose, position in names]
        assert drawn == [_first(generator(seed, purpose, *position)) for seed, purpose, position in names]
        assert len(set(drawn)) == len(names)


def _first(generator: torch.Generator | np.random.Generator) -> float:
    if isinstance(generator, torch.Generator):
        return float(torch.rand(1, generator=generator, dtype=torch.double))
    return float(generator.random())


def test_the_global_generators_are_restored_from_plain_data() -> None:
    def draw() -> list[float]:
        return [float(torch.rand(1)), float(np.random.standard_normal()), random.gauss(0, 1)]  # noqa: NPY002

    draw()  # an odd number of normal numbers: the second of a pair is kept by the generators
    state = json.loads(json.dumps(rng.global_state()))
    expected = [draw() for _ in range(3)]
    assert len({tuple(values) for values in expected}) == 3
    rng.restore_global_state(state)
    assert [draw() for _ in range(3)] == expected
