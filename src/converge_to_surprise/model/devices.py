"""Which device to compute on, and what follows from it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..config import Config
from ..search import chunking
from . import precision

AUTO = "auto"


def chosen(name: str) -> str:
    """The device of this name; for ``auto`` the first of CUDA, MPS and the CPU that is there."""
    if name != AUTO:
        return name
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def check(name: str) -> None:
    """Refuse a device that is not one or that this machine does not have."""
    try:
        torch.zeros(1, device=chosen(name)).cpu()
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device is {name!r}, which cannot be used here: {str(error).splitlines()[0]}") from None


def here(name: str) -> str:
    """The device of this name, or the CPU if this machine does not have it: a model is used anywhere."""
    try:
        check(name)
    except ValueError:
        return "cpu"
    return chosen(name)


def effective(config: Config, images: Tensor) -> Config:
    """The configuration with nothing left to choose: which device, and how much of a batch it takes at a time.

    This is what is saved with a run, so that a run says where it ran and is continued in the same way.
    """
    check(config.device)
    device = torch.device(chosen(config.device))
    precision.check(config.precision, device)
    settings = config.evolution
    if not settings.chunk:
        settings = replace(settings, chunk=chunking.chosen(device, images.shape, config))
    return replace(config, device=str(device), evolution=settings)
