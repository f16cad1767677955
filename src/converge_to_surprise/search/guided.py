"""Guided evolution: noise that lies partly in the span of recent gradients and past updates.

    ε ~ N(0, σ² C),   C = (1 − s) I + s n/k U Uᵀ        U (n, k) orthonormal, s the share of the variance in its span

(Maheswaranathan et al. 2019, arXiv 1806.10230, with α = 1 − s and n times their covariance, so that a member is as far
from θ as in plain evolution; past updates after Meier et al. 2019, arXiv 1910.05268.) The gradients are those of the
relaxed surprise, whatever the score is: they only suggest where to look, and the score of hard labels decides. To first
order the mean update is C times the gradient of the score: a direction of ascent even where the suggestions are wrong.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from ..config import Config, Guided
from ..distributed.group import current
from ..model.backbone import train_without_dropout
from ..model.network import ClusterNetwork, channels_last
from ..model.precision import lowered
from .population import ViewPair
from .relaxed import relaxed_surprise

PREFIX = "guided."
"""Prefix of the names of its tensors in a snapshot."""
DEPENDENT = 1e-4
"""A direction of which less than this fraction lies outside the span of those before it adds no dimension."""


class Memory(NamedTuple):
    """The directions that span the subspace, newest first."""

    gradients: Tensor
    """Recent gradients of the relaxed surprise. (at most ``guided.gradients``, D)"""
    updates: Tensor
    """Past updates of θ. (at most ``guided.updates``, D)"""

    @classmethod
    def empty(cls, theta: Tensor) -> Memory:
        return cls(*(theta.new_zeros(0, len(theta)) for _ in range(2)))

    def with_gradient(self, gradient: Tensor, settings: Guided) -> Memory:
        if not bool(gradient.isfinite().all()):
            return self
        return self._replace(gradients=torch.cat([gradient[None], self.gradients])[: settings.gradients])

    def with_update(self, update: Tensor, settings: Guided) -> Memory:
        return self._replace(updates=torch.cat([update[None], self.updates])[: settings.updates])

    def basis(self) -> Tensor:
        """Orthonormal rows that span all directions. (k, D)"""
        directions = torch.cat([self.gradients, self.updates])
        norms = directions.norm(dim=1)
        if not bool(norms.any()):
            return directions[:0]
        columns = (directions[norms > 0] / norms[norms > 0, None]).t()
        basis, triangle = torch.linalg.qr(columns)
        rows: Tensor = basis.t()[triangle.diagonal().abs() > DEPENDENT]
        return rows.contiguous()

    def tensors(self) -> dict[str, Tensor]:
        """Copies of its tensors by name."""
        return {f"{PREFIX}{name}": value.clone() for name, value in self._asdict().items()}

    @classmethod
    def load(cls, tensors: dict[str, Tensor], device: torch.device) -> Memory | None:
        """The inverse of ``tensors``; None if they are absent."""
        if f"{PREFIX}gradients" not in tensors:
            return None
        return cls(*(tensors[f"{PREFIX}{name}"].to(device) for name in cls._fields))


def surrogate_gradient(network: ClusterNetwork, views: ViewPair, config: Config) -> Tensor:
    """The gradient of the relaxed surprise of a few of the ``views`` with respect to θ, (D,); the network is unchanged.

    Every process computes all of it, so that it does not depend on their number, and takes that of the first.
    """
    settings = config.guided
    twin = copy.deepcopy(network)
    train_without_dropout(twin)
    # Without loss scaling small gradients would vanish in float16.
    precision = "float32" if config.precision == "float16" else config.precision
    soft = []
    for view in views:
        few = channels_last(view[: settings.batch_size])
        with lowered(precision, few.device):
            outputs = twin(few).reshape(len(few), twin.heads, twin.n_outputs)
        soft.append(torch.softmax(outputs / settings.temperature, -1))
    score, _ = relaxed_surprise(soft[0], soft[1])
    score.sum().backward()  # type: ignore[no-untyped-call]
    trained = [p for p in twin.parameters() if p.requires_grad]
    gradient = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in trained]).detach()
    current().broadcast_tensors([gradient])
    return gradient
