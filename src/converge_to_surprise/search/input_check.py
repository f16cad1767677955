"""Whether images and settings fit each other."""

from __future__ import annotations

import torch
from torch import Tensor

from ..config import Config
from . import schedule


def check_fit(images: Tensor, config: Config) -> None:
    """Refuse images and settings that do not fit each other."""
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise ValueError(f"images are {images.dtype} of shape {tuple(images.shape)}; uint8 (N, C, H, W) is wanted")
    kinds = {stage.kind for stage in config.schedule}
    for kind, batch in schedule.batch_sizes(config).items():
        if kind in kinds and batch > len(images):
            raise ValueError(
                f"{kind}.batch is {batch} but there are only {len(images)} images; "
                f"give --{kind}.batch {len(images)} or less"
            )
    side = min(images.shape[2:]) * config.views.upsample
    if config.augmentation.crop >= side:
        raise ValueError(
            f"augmentation.crop is {config.augmentation.crop} but the views are only {side} pixels wide or high"
        )
