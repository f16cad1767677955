"""Stored features of a run: of pictures by its backbone, or of embeddings; from the cache, or computed."""

from __future__ import annotations

from typing import NamedTuple

import safetensors.torch
from rich.console import Console
from torch import Tensor, nn

from ..config import Config
from ..config.presets import COMPONENTS
from ..config.storage import write_atomically
from ..data.cache import Progress, cache_folder
from ..data.store import ImageStore, fingerprint
from ..model.embedding_bank import computed_embeddings, default_recipe, fits_memory, stored_embeddings
from ..model.encoder import BackboneEncoder, EmbeddingEncoder, Encoder, Projection, make_encoder
from ..model.feature_bank import BankJob, default_copies, stored_features
from ..model.feature_recipe import EmbeddingRecipe, FeatureRecipe
from ..model.novelty import image_statistics
from ..model.pretrained.frozen import PretrainedBackbone
from ..model.validation import check_projection
from ..search.threads import available_threads
from .folder import Description, RunFolder
from .progress import CountDisplay


class Prepared(NamedTuple):
    """The input of a search on stored features, and the encoder that computed it."""

    items: Tensor
    """float16 (N, sides, copies, components)"""
    encoder: Encoder
    statistics: Tensor | None = None
    """Of the pictures' pixels, if they are pictures. (N, statistics)"""


def prepared_features(
    store: ImageStore, backbone: PretrainedBackbone | None, config: Config, copies: int | None, console: Console
) -> Prepared | None:
    """The stored features of a new run: of embeddings, or of pictures with a progress bar; None for one on pixels.

    ``config``: see ``presets.with_backbone``.
    """
    if config.views.stored:
        return prepare_embeddings(store)
    if backbone is None:
        return None
    wanted = copies or default_copies(len(store))
    recipe = FeatureRecipe(backbone.identity, config.views, config.augmentation, wanted, COMPONENTS)
    with CountDisplay(console, "features of pictures", 0) as progress:
        return prepare(store, recipe, config.threads, backbone, progress)


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
    encoder = BackboneEncoder(recipe, projection, store.shape, backbone)
    return Prepared(items, encoder, image_statistics(store.images))


def prepare_embeddings(store: ImageStore, recipe: EmbeddingRecipe | None = None) -> Prepared:
    """The stored features of embeddings, of a new run or by the recipe of an earlier one."""
    recipe = recipe or default_recipe(store.shape, COMPONENTS)
    if fits_memory(len(store), recipe):
        items, projection = computed_embeddings(store.images, recipe)
    else:
        folder = cache_folder() / f"embeddings-{recipe.key(fingerprint(store.images))}"
        items, projection = stored_embeddings(store.images, recipe, folder)
    return Prepared(items, EmbeddingEncoder(recipe, projection, store.shape))


def prepare_again(store: ImageStore, description: Description) -> Prepared | None:
    """The stored features of a run that was begun before; None for a run on pixels."""
    recipe = description.recipe
    if isinstance(recipe, EmbeddingRecipe):
        return prepare_embeddings(store, recipe)
    return None if recipe is None else prepare(store, recipe, description.config.threads)


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
    check_projection(projection, recipe.features, description.config.network.inputs)
    return make_encoder(recipe, projection, description.shape)
