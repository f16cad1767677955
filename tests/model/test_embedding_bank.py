"""Stored features of embeddings: halves that share nothing, copies that lack values, the same bytes every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from support.vectors import FEATURES, vectors

from converge_to_surprise.data.embeddings import to_items
from converge_to_surprise.model.embedding_bank import (
    COPIES,
    computed_embeddings,
    default_recipe,
    fit_projection,
    fits_memory,
    stored_embeddings,
)
from converge_to_surprise.model.encoder import EmbeddingEncoder, Projection, half_views
from converge_to_surprise.model.feature_recipe import recipe_from_dict


def test_the_halves_share_no_value() -> None:
    projection = Projection(torch.zeros(6), torch.eye(6))
    value = torch.arange(1.0, 7.0)[None]
    view_i, view_j = half_views(value, projection)[0].float()
    assert view_i.tolist() == [2, 0, 6, 0, 10, 0]
    assert view_j.tolist() == [0, 4, 0, 8, 0, 12]


def test_single_views_have_halves_and_copies(tmp_path: Path) -> None:
    items = to_items(vectors(50)[0], "X")
    recipe = default_recipe((1, 1, FEATURES), 128)
    stored, projection = stored_embeddings(items, recipe, tmp_path)
    assert stored.shape == (50, 2, 1 + COPIES, FEATURES)
    encoder = EmbeddingEncoder(recipe, projection, (1, 1, FEATURES))
    torch.testing.assert_close(encoder.view_features(items), stored[:, :, 0].float(), atol=2e-3, rtol=2e-3)
    assert not torch.equal(stored[:, 0, 1], stored[:, 0, 2])
    whole = projection(items[:, 0, 0]).float()
    torch.testing.assert_close(stored[:, :, 0].float().mean(1), whole, atol=1e-2, rtol=1e-2)


def test_several_views_are_stored_as_they_are(tmp_path: Path) -> None:
    items = to_items(vectors(40, views=3)[0], "X")
    recipe = default_recipe((3, 1, FEATURES), 8)
    stored, projection = stored_embeddings(items, recipe, tmp_path)
    assert stored.shape == (40, 3, 1, 8)
    torch.testing.assert_close(stored, projection(items), atol=2e-3, rtol=2e-3)
    encoder = EmbeddingEncoder(recipe, projection, (3, 1, FEATURES))
    both = encoder.view_features(items)
    torch.testing.assert_close(both[:, 0], (stored[:, 0, 0].float() + stored[:, 2, 0].float()) / 2)
    torch.testing.assert_close(both[:, 1], stored[:, 1, 0].float())
    alone = encoder.view_features(items[:, :1])
    assert torch.equal(alone[:, 0], alone[:, 1]), "a single view of an item is all that is known of it"


def test_the_same_items_give_the_same_bytes_and_are_stored_once(tmp_path: Path) -> None:
    items = to_items(vectors(50)[0], "X")
    recipe = default_recipe((1, 1, FEATURES), 8)
    first = stored_embeddings(items, recipe, tmp_path / "a").items.clone()
    again = stored_embeddings(items, recipe, tmp_path / "b").items
    assert torch.equal(first, again)
    assert torch.equal(first, computed_embeddings(items, recipe).items)
    file = tmp_path / "a" / "components-8.npy"
    written = file.stat().st_mtime_ns
    stored_embeddings(items, recipe, tmp_path / "a")
    assert file.stat().st_mtime_ns == written
    file.write_bytes(file.read_bytes()[:-2])
    assert torch.equal(stored_embeddings(items, recipe, tmp_path / "a").items, first), "a damaged file is made again"


def test_an_outlier_stays_finite(tmp_path: Path) -> None:
    values = vectors(50)[0].astype(np.float64)
    values[7, 3] = 1e14
    items = to_items(values, "X")
    recipe = default_recipe((1, 1, FEATURES), 8)
    assert bool(stored_embeddings(items, recipe, tmp_path).items.isfinite().all())


def test_the_recipe_is_plain_data() -> None:
    recipe = default_recipe((1, 1, 5), 128)
    assert recipe_from_dict(recipe.to_dict()) == recipe
    assert recipe.components == 5
    assert recipe.key("a") != recipe.key("b")
    assert fit_projection(to_items(np.eye(5), "X"), recipe).directions.shape[0] == 5


def test_many_items_are_kept_on_disk() -> None:
    recipe = default_recipe((1, 1, 768), 128)
    assert fits_memory(60_000, recipe)
    assert not fits_memory(1_000_000, recipe)
