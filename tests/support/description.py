"""The description of a run, for tests that need none of its files."""

from __future__ import annotations

from converge_to_surprise.config import Config, Evolution, Stage
from converge_to_surprise.runs.folder import Description

DESCRIPTION = Description(
    source="digits",
    data_dir=None,
    preset="paper",
    fingerprint="ab" * 32,
    images=1797,
    shape=(1, 8, 8),
    program="0.2.0",
    config=Config(seed=3, schedule=(Stage("strong", "evolution", 3, 4, 25),), evolution=Evolution(sigma=0.1 + 0.2)),
    labels="none",
)
