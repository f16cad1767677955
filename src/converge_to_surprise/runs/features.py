"""Stored features of a run's pictures: from the cache, or computed by the run's backbone."""

from __future__ import annotations

from typing import NamedTuple

import safetensors.torch
from torch import Tensor, nn

from ..config.storage import write_atomically
from ..data.cache import Progress, cache_folder
from ..data.store import ImageStore, fingerprint
from ..model.encoder import Encoder, Projection
from ..model.feature_bank import BankJob, stored_features
from ..model.feature_recipe import FeatureRecipe
from ..model.validation import check_projection
from ..search.threads import available_threads
from .folder import Description, RunFolder


class Prepared(NamedTuple):
    """The input of a search on stored features, and the encoder that computed it."""

    items: Tensor
    """float16 (N, sides, copies, components)"""
    encoder: Encoder


def prepare(
    store: ImageStore,
    recipe: FeatureRecipe,
    threads: int = 0,
    backbone: nn.Module | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """The features of all images of a store. ``backbone``: that of the recipe, if it is open already."""
    folder = cache_folder() / f"features-{recipe.key(fingerprint(store.images))}"
    job = BankJob(store.images, recipe, folder, threads or available_threads(), backbone, progress)
    items, projection = stored_features(job)
    return Prepared(items, Encoder(recipe, projection, store.shape, backbone))


def save_projection(run: RunFolder, prepared: Prepared) -> None:
    """Keep the projection with the run, so that images can be labeled before it is finished."""
    write_atomically(run.projection, safetensors.torch.save(dict(prepared.encoder.projection._asdict())))


def load_encoder(run: RunFolder, description: Description) -> Encoder | None:
    """The encoder of a run on stored features; None for a run on pixels."""
    recipe = description.recipe
    if recipe is None:
        return None
    tensors = safetensors.torch.load_file(run.projection)
    projection = Projection(tensors["mean"], tensors["directions"])
    check_projection(projection, recipe.identity.features, description.config.network.inputs)
    return Encoder(recipe, projection, description.shape)
