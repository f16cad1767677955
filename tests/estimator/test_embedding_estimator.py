"""SurpriseClustering(input="embeddings")."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from support.picture_run import call, table
from support.vectors import FEATURES, QUICK, WORDS, vectors

from converge_to_surprise import SurpriseClustering


def new(**params: Any) -> SurpriseClustering:
    defaults: dict[str, Any] = {
        "input": "embeddings",
        "max_clusters": 8,
        "settings": QUICK,
        "random_state": 0,
        "n_threads": 1,
    }
    return SurpriseClustering(**defaults | params)


@pytest.fixture(scope="module")
def model() -> SurpriseClustering:
    return new().fit(vectors()[0])


def test_the_result_is_that_of_the_command_line(model: SurpriseClustering, tmp_path: Path) -> None:
    values, _ = vectors()
    np.save(tmp_path / "a.npy", values)
    words = ["--input", "embeddings", *WORDS, "--no-report"]
    assert call("fit", tmp_path / "a.npy", "--out", tmp_path / "run", *words) == 0
    found = [int(row["cluster"]) for row in table(tmp_path / "run" / "labels.csv")]
    assert model.labels_.tolist() == found
    loaded = SurpriseClustering.load(tmp_path / "run")
    assert loaded.input == "embeddings"
    assert loaded.predict(values).tolist() == found
    assert clone(loaded).fit(values).labels_.tolist() == found


def test_all_methods_work(model: SurpriseClustering, tmp_path: Path) -> None:
    values, classes = vectors()
    assert model.n_features_in_ == FEATURES
    assert len({*zip(model.labels_.tolist(), classes.tolist(), strict=True)}) == model.n_clusters_, "none is mixed"
    assert (model.predict(torch.from_numpy(values)) == model.labels_).all()
    np.testing.assert_allclose(model.confidence(values), model.probabilities_, atol=1e-5)
    assert model.predict_proba(values).shape == (120, model.n_clusters_)
    assert model.transform(values[:7].tolist()).shape == (7, FEATURES)
    assert model.score(values) > 1
    assert model.cut(2).n_clusters_ == 2
    model.save(tmp_path / "model.safetensors")
    for other in (SurpriseClustering.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))):
        assert (other.predict(values) == model.labels_).all()
    assert (clone(model).fit(values).labels_ == model.labels_).all()


def test_data_frames_and_several_views() -> None:
    quick = {"settings": QUICK | {"schedule": ["search=relaxed:2", "merge=merge:1"]}}
    frame = pd.DataFrame(vectors()[0]).add_prefix("f")
    fitted = new(**quick).fit(frame)
    assert fitted.feature_names_in_.tolist() == list(frame.columns)
    assert len(fitted.predict(frame[:5])) == 5
    fitted.fit(vectors(views=2)[0])
    assert fitted.n_features_in_ == FEATURES
    assert not hasattr(fitted, "feature_names_in_")
    assert len(fitted.predict(vectors(views=2)[0][:5])) == 5


@pytest.mark.parametrize(
    ("params", "given", "message"),
    [
        ({}, np.full((5, 3), np.nan), "NaN"),
        ({}, np.full((5, 2, 3), np.nan), "X has the value nan in item 0; embeddings must be finite"),
        ({}, np.full((5, 3), 1e30), "X has the value 1e+30 in item 0; embeddings must be finite numbers from"),
        ({}, [["a", "b"], ["c", "d"]], "not compatible with arrays of bytes/strings"),
        ({}, "folder", "X is of type str; embeddings are (N, D) or (N, V, D) arrays"),
        ({}, np.ones((5, 3)), "all 5 embeddings of X are the same"),
        ({"backbone": "x.onnx"}, np.eye(5), "backbone is 'x.onnx', but with input='embeddings' there are no images"),
        ({"image_shape": (1, -1)}, np.eye(5), "image_shape is (1, -1), but with input='embeddings'"),
        ({"input": "text"}, np.eye(5), "input is 'text'; it must be one of images, embeddings"),
        ({"input": "images"}, np.eye(9) - 1, 'or input="embeddings" for feature vectors'),
    ],
)
def test_wrong_inputs_are_refused(params: dict[str, Any], given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        new(**params).fit(given)


def test_another_number_of_values_is_refused(model: SurpriseClustering) -> None:
    with pytest.raises(ValueError, match=f"3 features, but SurpriseClustering is expecting {FEATURES}"):
        model.predict(np.ones((4, 3)))
    with pytest.raises(ValueError, match=f"X has embeddings of 3 values; the model was made with .* of {FEATURES}"):
        model.predict(np.ones((4, 2, 3)))
