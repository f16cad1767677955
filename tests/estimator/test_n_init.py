"""Several initializations of the estimator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import mutual_info_score
from torch import Tensor, nn

from converge_to_surprise import SurpriseClustering
from converge_to_surprise.core.rng import init_seed
from converge_to_surprise.data.synthetic import striped_images

SETTINGS = {
    "schedule": ["search=relaxed:4", "merge=merge:1", "refine=refine:1"],
    "network": {"width": 4},
    "views": {"upsample": 1},
    "relaxed": {"heads": 2, "batch_size": 10, "temperature": 0.1, "diversity_floor": [4, 4]},
}
"""Searches of different seeds end in different clusters."""


@pytest.fixture(scope="module")
def few() -> Tensor:
    return striped_images(60)[0]


@pytest.mark.slow
def test_the_initialization_whose_views_tell_most_is_selected(few: Tensor) -> None:
    def fitted(**params: Any) -> SurpriseClustering:
        return SurpriseClustering(settings=SETTINGS, max_clusters=6, n_clusters=6, n_threads=1, **params).fit(few)

    single = [fitted(n_init=1, random_state=init_seed(3, index)) for index in range(3)]
    outputs = [model.model_.run_all(few) for model in single]
    information = [mutual_info_score(found.view_i, found.view_j) for found in outputs]
    assert len(set(information)) > 1, "the initializations must differ for this to show anything"
    together = fitted(n_init=3, random_state=3)
    np.testing.assert_array_equal(together.labels_, single[information.index(max(information))].labels_)
    assert len(together.history_) == 3 * len(single[0].history_)
    by_default = fitted(random_state=3)
    assert len(by_default.history_) == len(single[0].history_)


def test_zero_initializations_are_refused(few: Tensor) -> None:
    with pytest.raises(ValueError, match="n_init is 0; it must be from 1 to 1000"):
        SurpriseClustering(n_init=0).fit(few)


@pytest.mark.parametrize("value", [2.0, True, "auto"])
def test_n_init_is_an_integer(value: Any, few: Tensor) -> None:
    with pytest.raises(ValueError, match=f"n_init is {value!r}; it must be an integer"):
        SurpriseClustering(n_init=value).fit(few)


def test_a_model_fitted_with_numpy_integers_can_be_saved(few: Tensor, tmp_path: Path) -> None:
    settings = {"schedule": ["s=relaxed:1"], "network": {"width": 2}, "relaxed": {"heads": 1, "batch_size": 30}}
    two: Any = np.int64(2)
    model = SurpriseClustering(n_init=two, max_clusters=3 * two, settings=settings, n_threads=1).fit(few)
    model.save(tmp_path / "model.safetensors")
    again = SurpriseClustering.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(few), model.labels_)


def test_every_initialization_of_a_backbone_with_dropout_is_that_of_a_single_search(few: Tensor) -> None:
    """Dropout draws from torch's global generator, which is seeded for every initialization."""
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.3))
    settings = {"schedule": ["s=relaxed:2"], "relaxed": {"heads": 1, "batch_size": 30}, "views": {"upsample": 1}}

    def history(n_init: int, seed: int) -> list[dict[str, Any]]:
        model = SurpriseClustering(
            n_init=n_init, random_state=seed, settings=settings, backbone=backbone, max_clusters=6, n_threads=1
        ).fit(few)
        return [{name: record[name] for name in ("epoch", "surprise", "active")} for record in model.history_]

    first, second = history(1, 5), history(1, 1005)
    assert first != second
    assert history(2, 5) == first + second


def test_the_fitted_model_holds_the_resolved_device(few: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    quick = {"schedule": ["search=relaxed:1", "merge=merge:1"], "precision": "bfloat16", "views": {"upsample": 1}}
    model = clone(SurpriseClustering(settings=quick, n_init=1, random_state=0)).fit(few)
    assert model.get_params()["device"] == "auto"
    assert (model.model_.config.device, model.model_.config.precision) == ("cpu", "bfloat16")
