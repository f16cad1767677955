"""Which predictions a user accepts: the others get the cluster -1."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .cluster_model import Model, Prediction


@dataclass(frozen=True)
class Limits:
    """The least confidence and the largest novelty with which an image keeps its cluster."""

    min_confidence: float = 0.0
    max_novelty: float = 1.0

    def check(self, model: Model) -> None:
        """Refuse a limit on what the model does not know."""
        if self.max_novelty < 1 and model.active.calibration.novelty is None:
            raise ValueError(
                f"max_novelty is {self.max_novelty}, but this model does not hold what novelty is computed from; "
                "fit it again with this version"
            )

    def clusters(self, found: Prediction) -> Tensor:
        """The cluster of each image, -1 beyond the limits. (n,)"""
        refused = (found.confidence < self.min_confidence) | (found.novelty > self.max_novelty)
        return torch.where(refused, -1, found.cluster)
