"""Reduced precision in training.

- ``auto``: ``bfloat16`` on a CPU that computes with it, ``float32`` elsewhere.
- ``tf32``: float32 with products of 10 bits of mantissa on CUDA.
- ``bfloat16``, ``float16``: the backbone computes in 16 bits (autocast). Heads, softmax, counts, scores, statistics of
  batch normalization, weights and the optimizer stay in float32.

Inference is always in float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from ..config import Precision

DEVICES: dict[Precision, tuple[str, ...]] = {
    "auto": ("cpu", "cuda", "mps"),
    "float32": ("cpu", "cuda", "mps"),
    "tf32": ("cuda",),
    "bfloat16": ("cpu", "cuda"),
    "float16": ("cuda",),
}
"""Devices that support each precision."""
SIXTEEN_BITS = {"bfloat16": torch.bfloat16, "float16": torch.float16}
INSTRUCTIONS = ("avx512_bf16", "amx_bf16")
"""Instructions of a CPU that multiply in bfloat16. Without them it is emulated, which is slower than float32."""


def resolve(precision: Precision, device: torch.device) -> Precision:
    """The precision in place of ``auto``."""
    if precision != "auto":
        return precision
    return "bfloat16" if device.type == "cpu" and cpu_has_bfloat16() else "float32"


def cpu_has_bfloat16() -> bool:
    """Whether this CPU multiplies in bfloat16; False also where torch is too old to tell."""
    capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name, False) for name in INSTRUCTIONS)


def check(precision: Precision, device: torch.device) -> None:
    """Refuse a precision that the device does not support."""
    if precision != "float32" and device.type not in DEVICES[precision]:
        where = " or ".join(DEVICES[precision])
        raise ValueError(f"precision is {precision!r}, which needs device {where}; the device is {str(device)!r}")


def lowered(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Within the block the backbone computes in 16 bits, if configured."""
    dtype = SIXTEEN_BITS.get(precision)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)


def full(device: torch.device) -> AbstractContextManager[object]:
    """Within the block nothing is computed in 16 bits, also inside ``lowered``."""
    if device.type in ("cpu", "cuda") and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


@contextmanager
def multiplying(precision: Precision, device: torch.device) -> Iterator[None]:
    """Within the block CUDA multiplies float32 with the configured precision and deterministically.

    torch's default for convolutions is TF32, and its choice among algorithms may differ from run to run.
    """
    if device.type != "cuda":
        yield
        return
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = products.fp32_precision, convolutions.fp32_precision, torch.backends.cudnn.deterministic
    products.fp32_precision = convolutions.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        products.fp32_precision, convolutions.fp32_precision, torch.backends.cudnn.deterministic = before


@contextmanager
def exact(device: torch.device) -> Iterator[None]:
    """Within the block everything is computed in float32."""
    with full(device), multiplying("float32", device):
        yield
