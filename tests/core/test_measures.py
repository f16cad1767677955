from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st

from converge_to_surprise.core.measures import measure

CLUSTERS = 4


@given(
    st.lists(st.tuples(st.integers(0, CLUSTERS - 1), st.integers(0, CLUSTERS - 1)), min_size=1, max_size=40),
    st.sampled_from([0.0, 0.005, 0.1]),
)
def test_measures_agree_with_the_oracle(pairs: list[tuple[int, int]], tau: float) -> None:
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    found = measure(torch.tensor(first), torch.tensor(second), CLUSTERS, tau)
    assert found.surprise == pytest.approx(reference.surprise(first, second, CLUSTERS), abs=1e-12)
    assert found.orderliness == pytest.approx(max(1.0, reference.orderliness(first, second, 1e-3)), rel=1e-6)
    assert found.agreement == pytest.approx(np.mean(np.equal(first, second)))
    assert found.active == len({*first, *second})
    surprises = reference.cluster_surprises(first, second, CLUSTERS)
    assert found.surprising == sum(value >= tau and value > 0 for value in surprises)
