"""Embeddings with three clear clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FEATURES = 20


def vectors(count: int = 120, views: int = 1) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Noisy vectors around three centers, (N, D) or (N, V, D), and the number of the center of each."""
    draw = np.random.default_rng(0)
    labels = np.arange(count) % 3
    centers = draw.normal(0, 3, (3, FEATURES))
    values = (centers[labels][:, None] + draw.normal(0, 1, (count, views, FEATURES))).astype(np.float32)
    return (values[:, 0] if views == 1 else values), labels


QUICK: dict[str, Any] = {
    "schedule": ["search=relaxed:120", "merge=merge:1", "refine=refine:20"],
    "relaxed": {"heads": 3},
}
WORDS = ["--threads", 1, "--max-clusters", 8, "--relaxed.heads", 3]
WORDS += ["--schedule", "search=relaxed:120", "merge=merge:1", "refine=refine:20"]
