"""Numbers of less than 32 bits in training.

- ``tf32``: float32 that CUDA multiplies with 10 bits of mantissa. Without it, torch would do so in convolutions anyway.
- ``bfloat16``, ``float16``: the network's backbone computes with 16 bits (autocast). The heads, softmax, counts, scores,
  statistics of batch normalization, weights and the optimizer stay float32.

Whatever labels images computes in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from ..config import Precision

DEVICES: dict[Precision, tuple[str, ...]] = {
    "float32": ("cpu", "cuda", "mps"),
    "tf32": ("cuda",),
    "bfloat16": ("cpu", "cuda"),
    "float16": ("cuda",),
}
"""Where each of them can be used."""
SIXTEEN_BITS = {"bfloat16": torch.bfloat16, "float16": torch.float16}
SCALE, STEADY = "loss_scale", "steady_steps"
"""What an optimizer remembers of float16: saved and continued with it."""


def check(precision: Precision, device: torch.device) -> None:
    """Refuse a precision that the device does not have."""
    if precision != "float32" and device.type not in DEVICES[precision]:
        where = " or ".join(DEVICES[precision])
        raise ValueError(f"precision is {precision!r}, which needs device {where}; the device is {str(device)!r}")


def lowered(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Within it the network's backbone computes with 16 bits, if wanted."""
    dtype = SIXTEEN_BITS.get(precision)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)


def full(device: torch.device) -> AbstractContextManager[object]:
    """Within it nothing is lowered, also inside ``lowered``."""
    if device.type in ("cpu", "cuda") and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


@contextmanager
def multiplying(precision: Precision, device: torch.device) -> Iterator[None]:
    """Within it CUDA multiplies float32 as wanted, and with the same result every time.

    torch's own setting for convolutions is TF32, and its choice among algorithms may differ from run to run.
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
    """Within it everything is computed in float32, whatever is set outside."""
    with full(device), multiplying("float32", device):
        yield


def descend(
    loss: Tensor, descent: torch.optim.Optimizer, precision: Precision, complete: Callable[[], None] = lambda: None
) -> None:
    """One step of the optimizer down the gradient of the loss, which ``complete`` may complete: other processes may
    have their share of it.

    Gradients in float16 would vanish, so the loss is scaled up. Where that makes them overflow, the step is left out
    and the scale is halved; after many steady steps it is doubled.
    """
    descent.zero_grad(set_to_none=True)
    if precision != "float16":
        loss.backward()  # type: ignore[no-untyped-call]
        complete()
        descent.step()
        return
    memory = descent.param_groups[0]
    scaler = torch.amp.GradScaler(loss.device.type)
    fresh = scaler.state_dict()
    known = {"scale": memory.get(SCALE, fresh["scale"]), "_growth_tracker": memory.get(STEADY, 0)}
    scaler.load_state_dict(fresh | known)
    scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    complete()
    scaler.step(descent)
    scaler.update()
    state = scaler.state_dict()
    memory[SCALE], memory[STEADY] = state["scale"], state["_growth_tracker"]
