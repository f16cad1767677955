"""Random streams named by (seed, purpose, position).

No draw depends on earlier draws, so a run can be resumed from its position alone, and the members of a population can
be evaluated in any order and in any process.
"""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import torch


def _sequence(seed: int, purpose: str, position: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *position])


SEED_STRIDE = 1000
"""Difference between the seeds of a run's initializations, so that runs with consecutive seeds share none."""


def init_seed(seed: int, index: int) -> int:
    """The seed of initialization ``index`` of a run.

    >>> [init_seed(3, index) for index in range(3)]
    [3, 1003, 2003]
    """
    return (seed + SEED_STRIDE * index) % 2**63


def torch_seed(seed: int, purpose: str, *position: int) -> int:
    """A seed for torch, practically independent for every (seed, purpose, position)."""
    return int(_sequence(seed, purpose, position).generate_state(1, np.uint64)[0] >> np.uint64(1))


def torch_generator(seed: int, purpose: str, *position: int) -> torch.Generator:
    """A torch generator on the CPU, so that the draws do not depend on the device."""
    return torch.Generator().manual_seed(torch_seed(seed, purpose, *position))


def numpy_generator(seed: int, purpose: str, *position: int) -> np.random.Generator:
    """A counter-based numpy generator."""
    return np.random.Generator(np.random.Philox(_sequence(seed, purpose, position)))


def _cuda_in_use() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _hex(state: torch.Tensor) -> str:
    return state.numpy().tobytes().hex()


def global_state() -> dict[str, object]:
    """The state of the process-wide generators as plain data.

    This program does not draw from them, but the user's score or backbone may.
    """
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    version, words, gauss = random.getstate()
    return {
        "torch": _hex(torch.get_rng_state()),
        # Querying an unused GPU would allocate memory on it.
        "cuda": [_hex(state) for state in torch.cuda.get_rng_state_all()] if _cuda_in_use() else [],
        "mps": [_hex(torch.mps.get_rng_state())] if torch.backends.mps.is_available() else [],
        "numpy": [kind, np.asarray(keys).tolist(), position, has_gauss, cached],
        "python": [version, list(words), gauss],
    }


def restore_global_state(state: dict[str, Any]) -> None:
    """The inverse of ``global_state``."""

    def unhex(text: str) -> torch.Tensor:
        return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)

    torch.set_rng_state(unhex(state["torch"]))
    if len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([unhex(text) for text in state["cuda"]])
    if torch.backends.mps.is_available():
        for text in state["mps"]:
            torch.mps.set_rng_state(unhex(text))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))  # noqa: NPY002
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
