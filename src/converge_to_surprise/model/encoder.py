"""From pictures to the features of their two views, by a frozen pre-trained backbone.

A frozen backbone gives the same features for the same view, so the views of the training images pass through it once
(see ``feature_bank.py``), and the search works on what comes out. The features are reduced to their principal
components, half whitened: the strongest components of a backbone that was trained for something else are not the most
important ones here, and the weakest ones are noise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core import augment
from ..core.views import chessboard, make_views, pick_views, to_float
from .feature_recipe import EmbeddingRecipe, FeatureRecipe, Recipe
from .pretrained import Identity, PreprocessFlags, open_backbone

WHITENING = 0.5
"""0 keeps the standard deviation of every component, 1 makes them equal."""

HALF_MAX = 65_504.0
"""Largest value of float16."""


class Projection(NamedTuple):
    """Half-whitened principal components of features."""

    mean: Tensor
    """(D,)"""
    directions: Tensor
    """(D, components)"""

    @classmethod
    def fit(cls, features: Tensor, components: int) -> Projection:
        """The projection of features (n, D); projected, they have the standard deviation 1 over all components."""
        values = features.double()
        mean = values.mean(0)
        centered = values - mean
        variances, vectors = torch.linalg.eigh(centered.t() @ centered / len(centered))
        kept = min(components, len(variances), max(2, len(features) - 1))
        variances, vectors = variances.flip(0)[:kept], vectors.flip(1)[:, :kept]
        # The sign of an eigenvector is arbitrary: its largest entry is made positive.
        largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
        vectors = vectors * torch.where(largest < 0, -1.0, 1.0)
        floor = 1e-9 * variances.max().clamp(min=1e-30)
        directions = vectors * variances.clamp(min=floor).pow(-WHITENING / 2)
        spread = (centered @ directions).std()
        return cls(mean.float(), (directions / spread.clamp(min=1e-30)).float().contiguous())

    def __call__(self, features: Tensor) -> Tensor:
        """Features (..., D) as float16 components (..., components)."""
        return self.of_centered(features.float() - self.mean)

    def of_centered(self, features: Tensor) -> Tensor:
        """The same of features from which the mean is subtracted; values that float16 cannot hold are cut off."""
        return (features @ self.directions).clamp(-HALF_MAX, HALF_MAX).half()


@dataclass(frozen=True)
class BackboneEncoder:
    """Turns pictures into the features that a network on stored features takes."""

    recipe: FeatureRecipe
    projection: Projection
    shape: tuple[int, int, int]
    """(C, H, W) of the pictures as they are read; they are brought to the size that the backbone takes."""
    opened: nn.Module | None = field(default=None, compare=False)
    """The backbone, if it is open already."""

    @cached_property
    def backbone(self) -> nn.Module:
        """The backbone, opened when it is needed first; another one than that of the recipe is refused."""
        return reopen_backbone(self.recipe.identity) if self.opened is None else self.opened

    def view_features(self, images: Tensor) -> Tensor:
        """Features of both un-augmented views of uint8 images (n, C, H, W). (n, 2, components)"""
        raw = clean_features(self.backbone, images, self.recipe)
        return self.projection(raw).float()


@dataclass(frozen=True)
class EmbeddingEncoder:
    """The same for embeddings that the user gives."""

    recipe: EmbeddingRecipe
    projection: Projection
    shape: tuple[int, int, int]
    """(V, 1, D) of the items that the model was made with; others may have another V."""

    def __post_init__(self) -> None:
        if self.shape != (self.recipe.views, 1, self.recipe.features):
            raise ValueError(f"items of {self.shape} are not those of {self.recipe}")

    @property
    def given(self) -> tuple[int, ...]:
        """(D,) or (V, D) of one item as the user gives it."""
        views, _, features = self.shape
        return (features,) if views == 1 else (views, features)

    def view_features(self, items: Tensor) -> Tensor:
        """Features of two views of items (n, V, 1, D). (n, 2, components)

        A model of single views sees two halves of a single view, as in training. Otherwise view i is the mean of every
        other view from the first on, and view j that of the rest.
        """
        if self.recipe.views == 1 == items.shape[1]:
            return half_views(items[:, 0, 0], self.projection).float()
        return torch.stack(pick_views(self.projection(items).float(), None, None, None), 1)


Encoder = BackboneEncoder | EmbeddingEncoder


def make_encoder(recipe: Recipe, projection: Projection, shape: tuple[int, int, int]) -> Encoder:
    """The encoder of a recipe; a backbone is opened when it is needed."""
    if isinstance(recipe, EmbeddingRecipe):
        return EmbeddingEncoder(recipe, projection, shape)
    return BackboneEncoder(recipe, projection, shape)


def half_views(embeddings: Tensor, projection: Projection) -> Tensor:
    """Both halves of vectors (n, D), every other value each, the rest at its mean. float16 (n, 2, components)

    The halves share no value, as the two views of an image share no pixel: they agree only on what both
    contain. Twice the values of a half have the size of a whole vector.
    """
    centered = embeddings.float() - projection.mean
    even = chessboard(1, embeddings.shape[1])[0].to(centered.dtype)
    return torch.stack([projection.of_centered(2 * centered * mask) for mask in (even, 1 - even)], 1)


def reopen_backbone(identity: Identity, place: str | None = None) -> nn.Module:
    """The backbone that a run was begun with; another or a missing one is a ValueError. ``place``: where it is now."""
    settings = identity.preprocess
    flags = PreprocessFlags(settings.size, settings.mean, settings.std)
    return open_backbone(place or identity.pinned or identity.source, flags, identity.sha256)


@torch.inference_mode()
def clean_features(backbone: nn.Module, images: Tensor, recipe: FeatureRecipe) -> Tensor:
    """The backbone's features of both un-augmented views, rounded as they are stored. float16 (n, 2, D)"""
    views = make_views(square_color(images, recipe.shape), recipe.views)
    return torch.stack([backbone(view).half() for view in views], 1)


@torch.inference_mode()
def all_features(backbone: nn.Module, images: Tensor, recipe: FeatureRecipe, generator: torch.Generator) -> Tensor:
    """The backbone's features of both views and of their augmented copies. float16 (n, 2, 1 + copies, D)"""
    views = make_views(square_color(images, recipe.shape), recipe.views)

    def augmented(view: Tensor) -> Tensor:
        return augment.augment(view, recipe.augmentation, generator, signed=recipe.views.signed)

    sides = [
        torch.stack([backbone(view).half(), *(backbone(augmented(view)).half() for _ in range(recipe.copies))], 1)
        for view in views
    ]
    return torch.stack(sides, 1)


def square_color(images: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """uint8 images (n, 1 or 3, H, W) as float32 (n, 3, S, S) in [0, 1]."""
    pixels = to_float(images).expand(-1, 3, -1, -1)
    if pixels.shape[1:] == shape:
        return pixels
    return F.interpolate(pixels, shape[1:], mode="bilinear", antialias=True).clamp(0, 1)
