"""Find out by a trial whether a model takes images of another size than its own."""

from __future__ import annotations

import threading

import torch
from torch import Tensor


class SizeTrials:
    """A model takes every size at which one image gives finite features; each size is tried once."""

    def __init__(self) -> None:
        self._tried: dict[int, bool] = {}
        self._lock = threading.Lock()

    def __call__(self, images: Tensor) -> Tensor:
        raise NotImplementedError

    def takes(self, side: int) -> bool:
        with self._lock:
            if side not in self._tried:
                self._tried[side] = self._runs(side)
            return self._tried[side]

    @torch.no_grad()
    def _runs(self, side: int) -> bool:
        try:
            return bool(self(torch.full((1, 3, side, side), 0.5)).isfinite().all())
        except Exception:  # onnxruntime's own have no common class
            return False
