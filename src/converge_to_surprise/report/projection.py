"""A map of the images: their embedding in two dimensions, neighbors beside neighbors where that is possible."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from ..search.sampler import LIMIT

LANDMARKS = 1_000
"""Images that t-SNE places; the others are put between those that they are most like."""
NEIGHBORS = 5
ITERATIONS = 400
PERPLEXITY = 30
COMPONENTS = 30
"""Principal components that distances are measured in."""
CHUNK = 4_096
"""Images placed together."""

Floats = npt.NDArray[np.floating[Any]]


class Map(NamedTuple):
    points: npt.NDArray[np.float32]
    """Positions in the unit square. (N, 2)"""
    method: str
    """How they were found, in words."""


def project(embedding: Floats, thorough: bool = True) -> Map:
    """Place images with this embedding (N, D) on a map. The same embedding always gives the same map.

    ``thorough``: t-SNE of landmarks, a few seconds; otherwise principal components, which take no time.
    """
    rows, columns = embedding.shape
    few = rows <= LIMIT
    known = _floats(embedding if few else embedding[np.linspace(0, rows - 1, LIMIT).round().astype(np.int64)])
    if rows < 3 or columns < 2 or float(np.ptp(known, axis=0).max()) == 0:
        return Map(np.full((rows, 2), 0.5, dtype=np.float32), "all in one place")
    size = min(COMPONENTS, columns, rows)
    components = PCA(size, svd_solver="full" if rows < 5_000 else "covariance_eigh", random_state=0)
    reduced = components.fit_transform(known)

    def parts() -> Iterator[Floats]:
        for start in range(0, rows, CHUNK):
            some = slice(start, start + CHUNK)
            yield reduced[some] if few else components.transform(_floats(embedding[some]))

    if not thorough or rows < 12:
        return Map(_in_unit_square(np.concatenate([part[:, :2] for part in parts()])), "principal components")
    chosen = np.sort(np.random.default_rng(0).permutation(rows)[:LANDMARKS])
    landmarks = reduced[chosen] if few else components.transform(_floats(embedding[chosen]))
    method = TSNE(init="pca", random_state=0, max_iter=ITERATIONS, perplexity=min(PERPLEXITY, (len(chosen) - 1) / 3))
    with threadpool_limits(1):  # threads wait for each other at every step: one is faster where others work as well
        placed = method.fit_transform(landmarks)
    points = np.concatenate([_between(part, landmarks, placed) for part in parts()])
    points[chosen] = placed
    much = f"t-SNE of {len(chosen):,} images" + (", the others between their nearest" if rows > len(chosen) else "")
    return Map(_in_unit_square(points), much)


def _between(rows: Floats, landmarks: Floats, placed: Floats) -> Floats:
    """Each row (N, D) at the mean place of its nearest landmarks, the nearer ones counting more. (N, 2)"""
    nearest_count = min(NEIGHBORS, len(landmarks))
    squares = np.maximum((landmarks**2).sum(1) - 2 * rows @ landmarks.T + (rows**2).sum(1, keepdims=True), 0)
    nearest = np.argpartition(squares, nearest_count - 1, axis=1)[:, :nearest_count]
    near = np.take_along_axis(squares, nearest, axis=1)
    weights = 1 / (near + 1e-6 + 1e-3 * near.mean(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    return np.asarray((placed[nearest] * weights[:, :, None]).sum(1), dtype=np.float32)


def _floats(embedding: Floats) -> Floats:
    return np.nan_to_num(np.asarray(embedding, dtype=np.float32))


def _in_unit_square(points: Floats) -> npt.NDArray[np.float32]:
    """Shifted and scaled, the same in both directions."""
    low, high = points.min(0), points.max(0)
    side = max(float((high - low).max()), 1e-12)
    return np.asarray((points - (low + high) / 2) / side + 0.5, dtype=np.float32)
