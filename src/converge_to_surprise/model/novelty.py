"""Novelty: how unlike the training images an image is, from 0 to 1.

Confidence compares clusters with each other, so an image that is far from all of them can be very confident. Novelty
compares an image with training images: their features, how much the two views differ, and statistics of the pixels,
because a network maps images that it was never trained for, such as noise or one bright pixel, to features that are
not unusual. These numbers are reduced to whitened principal components, and the distance to the nearest training
images is expressed as the share of held-out training images that lie nearer: a novelty of 0.95 means more unlike the
training images than 95 % of their kind.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..core.pixels import statistics
from ..core.views import to_float

CHUNK = 64
"""Images whose statistics are computed at a time."""
POINTS = 1_000
"""Training images that are kept, as points."""
NEIGHBORS = 5
"""The distance is that to the fifth nearest point: it changes little if the image itself is one of the points."""
COMPONENTS = (48, 1, 40)
"""Principal components of the features, of the views' difference and of the pixels' statistics, at most."""
IMAGES_PER_COMPONENT = 4
"""Fewer images give fewer components."""
FOLDS = 5
"""Every image is measured by points and components that were computed without its fold."""
TINY = 1e-6
"""A distance that is as good as none."""
LEVELS = 100
"""Steps of the table from distances to novelty."""
HIGHEST = 0.99
"""Above this share of held-out images the novelty follows an exponential tail, so that it never stops growing."""


class Novelty(NamedTuple):
    """Training images as points, and the distances of held-out ones."""

    center: Tensor
    """Mean of the descriptors of training images. (d,)"""
    directions: Tensor
    """Their whitened principal components. (d, m)"""
    points: Tensor
    """Some training images. float16 (n, m)"""
    distances: Tensor
    """Distances of held-out training images: quantiles from 0 to ``top``. (LEVELS + 1,)"""
    top: Tensor
    """The novelty of an image at the last of these distances. ()"""

    def __call__(self, features_i: Tensor, features_j: Tensor, statistics: Tensor | None) -> Tensor:
        """The novelty of images, from both views' features (n, D) and the statistics of their pixels. (n,)"""
        device = features_i.device
        # Several processes split the images differently; in doubles their sums round to the same digits. Not every
        # device has doubles, and an exported file need not.
        fine = device.type == "cpu" and not torch.compiler.is_exporting()
        number = torch.float64 if fine else torch.float32
        values = descriptors(features_i, features_j, statistics).to(number)
        center, directions, points, table, top = (value.to(device, number) for value in self)
        distance = _distances((values - center) @ directions, points)[:, None]
        # Of equal images all distances are 0: nothing is divided by it.
        steps, tail = (table[1:] - table[:-1]).clamp(min=TINY), (table[-1] - table[LEVELS // 2]).clamp(min=TINY)
        reached = ((distance - table[:-1]) / steps).clamp(0, 1).mean(1)
        beyond = (distance[:, 0] - table[-1]).clamp(min=0) / tail
        return (top * reached + (1 - top) * -torch.expm1(-beyond)).float()


def image_statistics(images: Tensor) -> Tensor:
    """The statistics of the pixels of uint8 images (n, C, H, W). (n, statistics)"""
    if not len(images):
        return statistics(torch.zeros(1, *images.shape[1:]))[:0]
    return torch.cat([statistics(to_float(part)) for part in torch.split(images, CHUNK)])


def descriptors(features_i: Tensor, features_j: Tensor, statistics: Tensor | None) -> Tensor:
    """What novelty is computed from: mean features, difference of the views, statistics of the pixels. (n, d)"""
    mean = (features_i + features_j) / 2
    apart = (features_i - features_j).square().sum(1) / (4 * mean.square().sum(1) + 1e-12)
    parts = [mean, (apart + 1e-4).log()[:, None]]
    if statistics is not None:
        parts.append(statistics.to(features_i.device))
    return torch.cat(parts, 1)


def fit_novelty(values: Tensor, width: int) -> Novelty:
    """The novelty of images like those with these descriptors (n, d), of which ``width`` columns are features."""
    values = values.double()
    held_out = torch.cat([_measure(values, fold, width) for fold in _folds(len(values))] or [values[:, 0] * 0])
    center, directions = _components(values, width)
    points = ((values - center) @ directions)[:POINTS]
    top = min(HIGHEST, len(values) / (len(values) + 1))
    levels = torch.linspace(0, top, LEVELS + 1, dtype=torch.float64)
    table = torch.quantile(held_out, levels)
    return Novelty(center.float(), directions.float(), points.half(), table.float(), torch.tensor(top))


def _folds(count: int) -> list[Tensor]:
    return [part for part in torch.arange(count).chunk(FOLDS) if len(part) < count]


def _measure(values: Tensor, fold: Tensor, width: int) -> Tensor:
    """The distances of a fold from the other images."""
    others = torch.ones(len(values), dtype=torch.bool)
    others[fold] = False
    center, directions = _components(values[others], width)
    points = ((values[others] - center) @ directions)[:POINTS].half().double()
    return _distances((values[fold] - center) @ directions, points)


def _components(values: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Mean and whitened principal components of descriptors, each of their parts for itself. (d,), (d, m)"""
    most = max(1, len(values) // IMAGES_PER_COMPONENT)
    blocks = []
    sizes = [width, 1, values.shape[1] - width - 1]
    for part, wanted in zip(torch.split(values, sizes, 1), COMPONENTS, strict=True):
        if part.shape[1]:
            blocks.append(_whitened(part, min(wanted, most, part.shape[1])))
    return values.mean(0), torch.block_diag(*blocks)  # type: ignore[no-untyped-call]


def _whitened(values: Tensor, components: int) -> Tensor:
    """The principal components of standardized columns (n, d), with unit variance. (d, components)"""
    centered = values - values.mean(0)
    spread = centered.square().mean(0).sqrt()
    scale = 1 / spread.clamp(min=max(0.01 * float(spread.mean()), 1e-6))
    standard = centered * scale
    # Singular vectors of n x d numbers by the smaller of the two matrices of products.
    if standard.shape[0] < standard.shape[1]:
        variances, rows = torch.linalg.eigh(standard @ standard.t() / len(standard))
        lengths = (variances.clamp(min=1e-12) * len(standard)).sqrt()
        vectors = standard.t() @ rows / lengths
    else:
        variances, vectors = torch.linalg.eigh(standard.t() @ standard / len(standard))
    kept, vectors = variances.flip(0)[:components], vectors.flip(1)[:, :components]
    # Directions that hardly vary would amplify rounding.
    found: Tensor = scale[:, None] * vectors / kept.clamp(min=0.01).sqrt()
    return found


def _distances(values: Tensor, points: Tensor) -> Tensor:
    """Euclidean distance of values (n, m) to the fifth nearest of the points, or to the last of fewer. (n,)"""
    squares = values.square().sum(1, keepdim=True) + points.square().sum(1) - 2 * values @ points.t()
    nearest = squares.topk(min(NEIGHBORS, len(points)), dim=1, largest=False).values[:, -1]
    return nearest.clamp(min=0).sqrt()
