"""Stored features of embeddings that the user gave: principal components of their views, or of halves of a single one.

Of several views of an item each is stored as it is. A single view has no second one to agree with. It is split into two
halves that share no value, as the two views of an image share no pixel: every other value each, on which the clusters
are judged, and copies with random halves for the search, so that it cannot rely on a few values.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from filelock import FileLock
from torch import Tensor

from ..core import rng
from .component_file import StoredFeatures, open_components, write_components
from .encoder import Projection, half_views
from .feature_recipe import EmbeddingRecipe

COPIES = 4
"""Random halves of a single view."""
SAMPLE = 20_000
"""Vectors from which the principal components are computed."""
IN_MEMORY = 2**28
"""Bytes of components that are made anew in memory for every run, in seconds; more of them are kept in the cache."""
BLOCK_VALUES = 2**20
"""Values that are projected at a time."""


def default_recipe(shape: tuple[int, int, int], components: int) -> EmbeddingRecipe:
    """The recipe for items of ``shape`` (V, 1, D)."""
    views, _, features = shape
    return EmbeddingRecipe(features, views, COPIES if views == 1 else 0, min(components, features))


def fits_memory(items: int, recipe: EmbeddingRecipe) -> bool:
    """Whether the components of so many items are computed in memory for every run."""
    return 2 * items * recipe.sides * (1 + recipe.copies) * recipe.components <= IN_MEMORY


def computed_embeddings(items: Tensor, recipe: EmbeddingRecipe) -> StoredFeatures:
    """The components of all items (N, V, 1, D), in memory."""
    projection = fit_projection(items, recipe)
    return StoredFeatures(torch.cat(list(_parts(items, recipe, projection))), projection)


def stored_embeddings(items: Tensor, recipe: EmbeddingRecipe, folder: Path) -> StoredFeatures:
    """The same, memory-mapped: from the folder if they are there, otherwise computed."""
    shape = len(items), recipe.sides, 1 + recipe.copies
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        found = open_components(folder, recipe.components, shape)
        if found is None:
            projection = fit_projection(items, recipe)
            write_components(folder, recipe.components, projection, shape, _parts(items, recipe, projection))
            found = open_components(folder, recipe.components, shape)
    if found is None:
        raise ValueError(f"the embeddings just stored cannot be read back from {folder}")
    return found


def fit_projection(items: Tensor, recipe: EmbeddingRecipe) -> Projection:
    """The principal components of a sample of views, or of random halves of single views."""
    generator = rng.torch_generator(0, "components")
    chosen = torch.randperm(len(items), generator=generator)[: max(1, SAMPLE // recipe.views)].sort().values
    values = items[chosen].flatten(0, 2).float()
    if not recipe.copies:
        return Projection.fit(values, recipe.components)
    mean = values.double().mean(0).float()
    together = min(recipe.copies, max(1, SAMPLE // len(values)))
    halves = _random_halves((values - mean).repeat(together, 1), generator)
    return Projection(mean, Projection.fit(halves[:, 0], recipe.components).directions)


def _parts(items: Tensor, recipe: EmbeddingRecipe, projection: Projection) -> Iterator[Tensor]:
    """The components of all items in order. float16 (n, sides, 1 + copies, components)"""
    rows = max(16, BLOCK_VALUES // (recipe.features * recipe.sides * (1 + recipe.copies)))
    for start in range(0, len(items), rows):
        part = items[start : start + rows]
        if not recipe.copies:
            yield projection(part)
            continue
        generator = rng.torch_generator(0, "embeddings", start)
        centered = part[:, 0, 0].float() - projection.mean
        copies = [projection.of_centered(_random_halves(centered, generator)) for _ in range(recipe.copies)]
        yield torch.stack([half_views(part[:, 0, 0], projection), *copies], 2)


def _random_halves(centered: Tensor, generator: torch.Generator) -> Tensor:
    """Two random halves of each of the vectors (n, D), the rest 0; see ``half_views``. (n, 2, D)"""
    mask = (torch.rand(centered.shape, generator=generator) < 0.5).to(centered.dtype)
    return 2 * centered[:, None] * torch.stack([mask, 1 - mask], 1)
