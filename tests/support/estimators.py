"""An estimator whose fit takes a second."""

from __future__ import annotations

from typing import Any

from converge_to_surprise import SurpriseClustering

TINY: dict[str, Any] = {
    "views": {"upsample": 1},
    "schedule": ["search=relaxed:2", "merge=merge:1", "refine=refine:1"],
    "network": {"width": 4, "min_active_outputs": 2},
    "relaxed": {"heads": 2, "batch_size": 20},
    "merge": {"neighbor_pairs": 200, "augmented_pairs": 100},
    "n_init": 1,
}


def tiny(**params: Any) -> SurpriseClustering:
    defaults: dict[str, Any] = {"settings": TINY, "random_state": 0, "n_threads": 1, "max_clusters": 12}
    return SurpriseClustering(**defaults | params)
