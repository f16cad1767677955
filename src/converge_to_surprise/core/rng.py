"""Random streams named by (seed, purpose, position).

Nothing that is drawn depends on what was drawn before it, so a run can be interrupted anywhere and continued from its
position alone, and members of a population can be evaluated in any order or place.
"""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import torch


def _sequence(seed: int, purpose: str, position: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *position])


APART = 1000
"""So much do the seeds of a run's starts differ: the runs of a table, whose seeds follow each other, share none."""


def start_seed(seed: int, start: int) -> int:
    """The seed of a run's start, the first being number 0.

    >>> [start_seed(3, start) for start in range(3)]
    [3, 1003, 2003]
    """
    return (seed + APART * start) % 2**63


def start_seeds(seed: int, starts: int) -> list[int]:
    """The seeds of all starts of a run."""
    return [start_seed(seed, start) for start in range(starts)]


def torch_seed(seed: int, purpose: str, *position: int) -> int:
    """A seed for torch that is as good as independent for every (seed, purpose, position)."""
    return int(_sequence(seed, purpose, position).generate_state(1, np.uint64)[0] >> np.uint64(1))


def torch_generator(seed: int, purpose: str, *position: int) -> torch.Generator:
    """A torch generator on the CPU, so that every device sees the same draws."""
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

    Nothing here draws from them, but a score or a module of the user's may.
    """
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    version, words, gauss = random.getstate()
    return {
        "torch": _hex(torch.get_rng_state()),
        # Of a GPU that nobody has touched nothing is asked: that alone would take memory there.
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
        for text in state.get("mps", []):  # earlier versions did not save it
            torch.mps.set_rng_state(unhex(text))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))  # noqa: NPY002
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
