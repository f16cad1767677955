"""A GPU simulated on the CPU: it refuses what a real one refuses.

Tensors on it report the device MPS and hold a tensor of the CPU. As on the real device there are no doubles, tensors
of the two devices cannot be mixed (except single numbers and indices), a generator of the CPU cannot draw on it, and
numpy cannot read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from converge_to_surprise.model import inference
from converge_to_surprise.search import threads

KIND = "mps"
DEVICE = "mps:0"
"""With an index: without one torch would query a real device for it."""
FREE = 2**33
INDEXING = ("index", "index_put", "index_put_")
"""Operators whose indices may be on the CPU."""


class Elsewhere(Tensor):
    """A tensor on the simulated device. For torch's own code it is on ``meta``, where nothing can be read."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Elsewhere:
        if held.dtype == torch.float64:
            raise TypeError("there are no doubles on this device")
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.size(), held.stride(), held.storage_offset(), dtype=held.dtype, device=torch.device("meta")
        )
        made.held = held
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device(DEVICE)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Elsewhere({tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _compute(func, args, kwargs or {})


class Simulated(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within the block tensors can be created on the device, by this thread."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        named = any(isinstance(leaf, torch.device) and leaf.type == KIND for leaf in leaves)
        named |= func is torch.ops.aten.scalar_tensor.default  # torch takes the tensors of this device to be on meta
        if named or any(isinstance(leaf, Elsewhere) for leaf in leaves):
            return _compute(func, args, kwargs)
        return func(*args, **kwargs)


def _compute(func: Any, args: Any, kwargs: Any) -> Any:
    leaves = tree_leaves((args, kwargs))
    devices = [leaf for leaf in leaves if isinstance(leaf, torch.device)]
    there = not devices or devices[0].type in (KIND, "meta")
    name = func.overloadpacket.__name__
    if any(isinstance(leaf, torch.Generator) for leaf in leaves) and there:
        raise RuntimeError("a generator of the CPU cannot draw on this device")
    plain = [leaf for leaf in leaves if isinstance(leaf, Tensor) and not isinstance(leaf, Elsewhere)]
    if not devices and name not in ("copy_", *INDEXING) and any(leaf.ndim for leaf in plain):
        raise RuntimeError(f"{name}: one tensor is on this device and one on the CPU")
    if name == "copy_" and isinstance(args[0], Elsewhere) and args[1].dtype == torch.float64:
        raise TypeError("there are no doubles on this device")

    def inside(leaf: Any) -> Any:
        if isinstance(leaf, Elsewhere):
            return leaf.held
        if isinstance(leaf, torch.device):
            return torch.device("cpu")
        if isinstance(leaf, Tensor) and leaf.is_meta:
            assert name == "empty_like", f"{name}: a value was lost"  # only the size of an empty tensor matters
            return torch.empty_like(leaf, device="cpu")
        return leaf

    found = func(*tree_map(inside, args), **tree_map(inside, kwargs))
    if not there or (name == "copy_" and not isinstance(args[0], Elsewhere)):
        return args[0] if name == "copy_" else tree_map(_copy, found)
    known = {id(leaf.held): leaf for leaf in leaves if isinstance(leaf, Elsewhere)}
    # An in-place operation returns the tensor that it changed.
    return tree_map(lambda leaf: known[id(leaf)] if id(leaf) in known else _outside(leaf), found)


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


def _outside(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    with torch.inference_mode(leaf.is_inference()):
        return Elsewhere(leaf)


class Immediate(Executor):
    """Executes every call in the calling thread, because the simulation works in one thread only."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@contextmanager
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within the block the machine has such a device."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: FREE)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 0)
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: torch.zeros(4, dtype=torch.uint8))
    monkeypatch.setattr(torch.mps, "set_rng_state", lambda state: None)
    for module in (threads, inference):
        monkeypatch.setattr(module, "ThreadPoolExecutor", Immediate)
    # torch.tensor(..., device=...) then creates its tensor on the CPU and dispatches a copy, which the simulation handles.
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with Simulated():  # type: ignore[no-untyped-call]
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(False)
