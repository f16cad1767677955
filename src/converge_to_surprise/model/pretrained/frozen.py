"""A frozen pre-trained backbone as a torch module: resize, normalize, run, pool."""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...config.memory import memory_ran_out
from ...config.text import one_line
from .identity import Identity, Preprocess

MODES = {"bilinear": "bilinear", "bicubic": "bicubic", "lanczos": "bicubic", "nearest": "nearest-exact"}
"""torch's names; it has no Lanczos filter."""


class Features:
    """Normalized images (B, 3, S, S) -> features (B, D), on the device of its choice."""

    def __init__(self) -> None:
        self._tried: dict[int, bool] = {}
        self._lock = threading.Lock()

    def __call__(self, images: Tensor) -> Tensor:
        raise NotImplementedError

    def takes(self, side: int) -> bool:
        """Whether images of this many pixels are taken as they are: one gives finite features. Others are resized."""
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


class PretrainedBackbone(nn.Module):
    """Images (B, 3, S, S) with values in [0, 1] -> features (B, D).

    It has no parameters or state of its own for torch: a model file names it by its checksum and does not hold it.
    Copies share its weights. Several threads may call it at once.
    """

    def __init__(self, identity: Identity, features: Features) -> None:
        super().__init__()
        self.identity = identity
        self._features = features

    def __deepcopy__(self, memo: dict[int, Any]) -> PretrainedBackbone:
        return self  # frozen, and onnxruntime's sessions cannot be copied

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        source = self.identity.source
        if x.ndim != 4 or x.shape[1] != 3 or x.shape[2] != x.shape[3]:
            raise ValueError(f"the backbone {source} takes square color images (B, 3, S, S), not {tuple(x.shape)}")
        if len(x) == 0:
            return torch.empty(0, self.identity.features, device=x.device)
        settings = self.identity.preprocess
        x = x.float()
        if x.shape[-1] != settings.size and not self._features.takes(x.shape[-1]):
            x = resized(x, settings)
        mean, std = (x.new_tensor(values).view(1, 3, 1, 1) for values in (settings.mean, settings.std))
        try:
            found = self._features((x - mean) / std)
        except Exception as error:  # onnxruntime's own have no common class
            if memory_ran_out(error):
                raise MemoryError(f"the backbone {source} needs more memory for {len(x)} images") from error
            text = one_line(error, longest=300)
            raise ValueError(f"the backbone {source} cannot take images of {x.shape[-1]} pixels: {text}") from error
        return found.to(device=x.device, dtype=torch.float32)


def resized(x: Tensor, settings: Preprocess) -> Tensor:
    """(B, 3, S, S) -> (B, 3, size, size) in [0, 1], by the model's own filter, without aliasing."""
    mode = MODES[settings.resample]
    smooth = mode in ("bilinear", "bicubic")
    size = (settings.size, settings.size)
    found: Tensor = F.interpolate(x, size, mode=mode, antialias=smooth) if smooth else F.interpolate(x, size, mode=mode)
    return found.clamp(0, 1)
