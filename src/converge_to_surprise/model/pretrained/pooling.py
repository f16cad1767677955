"""Turn what image models return into one vector per image."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Pooling = Literal["none", "tokens", "channels_first", "channels_last"]
MOST_EXTRA_TOKENS = 8
"""Class and register tokens before the tokens of a square grid."""


def pooling_of(shape: tuple[int, ...]) -> Pooling | None:
    """How an output of this shape is pooled; None if it cannot be.

    >>> pooling_of((2, 384)), pooling_of((2, 197, 384)), pooling_of((2, 512, 7, 7)), pooling_of((2, 7, 7, 512))
    ('none', 'tokens', 'channels_first', 'channels_last')
    """
    if 0 in shape:
        return None
    if len(shape) == 2:
        return "none"
    if len(shape) == 3:
        return "tokens"
    if len(shape) == 4:
        return "channels_last" if shape[1] == shape[2] != shape[3] else "channels_first"
    return None


def extra_tokens(tokens: int) -> int:
    """How many leading tokens are not of the square grid of patches: class token and registers.

    >>> [extra_tokens(n) for n in (196, 197, 257, 261, 60)]
    [0, 1, 1, 5, 0]
    """
    extra = tokens - math.isqrt(tokens) ** 2
    return extra if extra <= MOST_EXTRA_TOKENS and tokens > extra else 0


def pool(found: NDArray[np.float32], pooling: Pooling) -> NDArray[np.float32]:
    """(B, D), (B, T, D), (B, D, h, w) or (B, h, w, D) -> (B, D): mean over places, without class and registers."""
    if pooling == "tokens":
        found = found[:, extra_tokens(found.shape[1]) :].mean(axis=1, dtype=np.float32)
    elif pooling == "channels_first":
        found = found.mean(axis=(2, 3), dtype=np.float32)
    elif pooling == "channels_last":
        found = found.mean(axis=(1, 2), dtype=np.float32)
    return np.ascontiguousarray(found, dtype=np.float32)
