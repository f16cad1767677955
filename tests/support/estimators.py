"""An estimator whose fit takes a second, and a small backbone for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from converge_to_surprise import SurpriseClustering

TINY: dict[str, Any] = {
    "views": {"upsample": 1},
    "schedule": ["search=relaxed:2", "merge=merge:1", "refine=refine:1"],
    "network": {"width": 4, "min_active_outputs": 2},
    "relaxed": {"heads": 2, "batch_size": 20},
    "n_init": 1,
}


def tiny(**params: Any) -> SurpriseClustering:
    defaults: dict[str, Any] = {"settings": TINY, "random_state": 0, "n_threads": 1, "max_clusters": 12}
    return SurpriseClustering(**defaults | params)


class Pooled(nn.Module):
    """A small backbone with everything that can go wrong: batch statistics and dropout."""

    def __init__(self, features: int = 16) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, features, 3, padding=1)
        self.norm = nn.BatchNorm2d(features)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.drop(torch.relu(self.norm(self.conv(x))).mean((2, 3)))
        return found
