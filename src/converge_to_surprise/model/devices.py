"""The device to compute on."""

from __future__ import annotations

import torch

AUTO = "auto"


def resolve(name: str) -> str:
    """The device of this name; for ``auto`` the first of CUDA, MPS and CPU that is available."""
    if name != AUTO:
        return name
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def check(name: str) -> None:
    """Refuse a name that is not a device, or a device that this machine does not have."""
    try:
        torch.zeros(1, device=resolve(name)).cpu()
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device is {name!r}, which cannot be used here: {str(error).splitlines()[0]}") from None


def resolve_or_cpu(name: str) -> str:
    """The device of this name, or the CPU where it is not available: a saved model can be used on any machine."""
    try:
        check(name)
    except ValueError:
        return "cpu"
    return resolve(name)
