"""Which device to compute on."""

from __future__ import annotations

import torch


def check(name: str) -> None:
    """Refuse a device that is not one or that this machine does not have."""
    try:
        torch.zeros(1, device=name).cpu()
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device is {name!r}, which cannot be used here: {str(error).splitlines()[0]}") from None


def here(name: str) -> str:
    """The device of this name, or the processor if this machine does not have it: a model is used anywhere."""
    try:
        check(name)
    except ValueError:
        return "cpu"
    return name
