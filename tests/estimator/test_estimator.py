"""The estimator: scikit-learn's contract, inputs of every kind, saving, and the merge tree without training."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.estimators import Pooled
from torch import Tensor, nn

from converge_to_surprise import SurpriseClustering
from converge_to_surprise.data.synthetic import striped_images

QUICK: dict[str, Any] = {
    "views": {"upsample": 1},
    "schedule": ["search=relaxed:40", "merge=merge:1", "refine=refine:3"],
    "network": {"width": 4},
    "relaxed": {"heads": 2, "batch_size": 20},
    "n_init": 1,
}
TINY: dict[str, Any] = QUICK | {"schedule": ["search=relaxed:2", "merge=merge:1", "refine=refine:1"]}
TINY["relaxed"] = {"heads": 2, "batch_size": 4}


def quick(**params: Any) -> SurpriseClustering:
    defaults: dict[str, Any] = {"settings": QUICK, "random_state": 0, "n_threads": 1, "max_clusters": 12}
    return SurpriseClustering(**defaults | params)


@pytest.fixture(scope="module")
def images() -> Tensor:
    return striped_images(60)[0]


@pytest.fixture(scope="module")
def fitted(images: Tensor) -> SurpriseClustering:
    return quick().fit(images)


def same(first: SurpriseClustering, second: SurpriseClustering) -> bool:
    return bool((first.labels_ == second.labels_).all() and (first.probabilities_ == second.probabilities_).all())


NOT_IMAGES = {"check_clustering": "its blobs have two numbers each: two views of one pixel have nothing in common"}


@pytest.mark.slow
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [SurpriseClustering(settings=TINY, image_shape=(1, -1), random_state=0, n_threads=1, max_clusters=8)],
    expected_failed_checks=lambda estimator: NOT_IMAGES,
)
def test_the_contract_of_scikit_learn(estimator: SurpriseClustering, check: Any) -> None:
    check(estimator)


def test_what_was_learned(fitted: SurpriseClustering, images: Tensor) -> None:
    assert fitted.n_clusters_ >= 2
    assert fitted.n_features_in_ == 64
    assert fitted.labels_.shape == fitted.probabilities_.shape == (60,)
    sizes = np.bincount(fitted.labels_)
    assert len(sizes) == fitted.n_clusters_
    assert (np.diff(sizes) <= 0).all()
    assert [row["size"] for row in fitted.cluster_info_] == sizes.tolist()
    for row in fitted.cluster_info_:  # the exact probability is never above the Chernoff bound
        assert row["nats"] >= len(images) * row["surprise"]
    assert max(row["nats"] for row in fitted.cluster_info_) > 1
    assert len(fitted.history_) == 130
    assert len(fitted.merge_tree_) == fitted.model_.merge_result.max_clusters - 1  # type: ignore[union-attr]
    assert fitted.transform(images).shape == (60, 32)
    assert fitted.get_feature_names_out()[0] == "surpriseclustering0"
    assert fitted.score(images) >= 1


def test_the_training_images_get_their_labels(fitted: SurpriseClustering, images: Tensor) -> None:
    assert (fitted.predict(images) == fitted.labels_).all()
    assert (fitted.confidence(images) == fitted.probabilities_).all()
    probabilities = fitted.predict_proba(images)
    assert probabilities.shape == (60, fitted.n_clusters_)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    assert (probabilities[np.arange(60), fitted.labels_] == fitted.probabilities_).all()


def test_one_image_alone_is_the_image_in_a_batch(fitted: SurpriseClustering, images: Tensor) -> None:
    for part in (slice(0, 1), slice(7, 9), slice(20, 59)):
        assert (fitted.predict(images[part]) == fitted.labels_[part]).all()
        np.testing.assert_allclose(fitted.confidence(images[part]), fitted.probabilities_[part], atol=1e-6)


SHAPES: dict[str, Any] = {
    "N, H, W": lambda x: x[:, 0].numpy(),
    "N, H, W, C": lambda x: x.permute(0, 2, 3, 1).numpy(),
    "floats of 0..1": lambda x: x[:, 0].numpy() / 255,
    "floats of 0..255": lambda x: x[:, 0].double().numpy(),
    "whole numbers": lambda x: x[:, 0].numpy().astype(int),
    "flat": lambda x: x.flatten(1).numpy(),
    "a list of arrays": lambda x: [image[0].numpy() for image in x],
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_same_images_in_another_form_give_the_same_clusters(
    name: str, fitted: SurpriseClustering, images: Tensor
) -> None:
    given = SHAPES[name](images)
    other = quick().fit(given)
    assert same(other, fitted)
    assert (other.predict(given[:5]) == fitted.labels_[:5]).all()


def test_flat_color_images_need_their_shape() -> None:
    color = np.random.default_rng(0).integers(0, 256, (30, 6, 5, 3), dtype=np.uint8)
    first = quick(settings=TINY).fit(color)
    second = quick(settings=TINY, image_shape=(6, 5, 3)).fit(color.reshape(30, -1))
    third = quick(settings=TINY, image_shape=(3, 6, 5)).fit(color.transpose(0, 3, 1, 2).reshape(30, -1))
    assert same(first, second)
    assert same(first, third)
    with pytest.raises(ValueError, match=r"image_shape is \(6, 6\), which does not make images of 90 values"):
        quick(image_shape=(6, 6)).fit(color.reshape(30, -1))


def enlarged(images: Tensor, times: int) -> Tensor:
    return images.repeat_interleave(times, 2).repeat_interleave(times, 3)


def test_large_images_are_made_small() -> None:
    large = enlarged(striped_images(30, side=10)[0], 6)
    first = quick(settings=TINY).fit(large)
    assert first.model_.shape == (1, 48, 48)
    assert first.n_features_in_ == 3600
    second = quick(settings=TINY, image_size=16).fit(large)
    assert second.model_.shape == (1, 16, 16)
    assert (second.predict(large) == second.labels_).all()
    flat = quick(settings=TINY, image_size=16).fit(large.flatten(1))
    assert flat.n_features_in_ == 3600
    assert same(flat, second)
    assert (flat.predict(large.flatten(1)) == second.labels_).all()


def test_later_images_are_brought_to_the_size_of_the_model(fitted: SurpriseClustering, images: Tensor) -> None:
    """Each pixel of an enlarged image is a block of equal ones; to shrink it by a whole number gives it back."""
    large = np.stack([np.asarray(Image.fromarray(image[0].numpy()).resize((160, 160), 0)) for image in images])
    again = np.stack([np.asarray(Image.fromarray(image).resize((8, 8), 3, reducing_gap=3.0)) for image in large])
    assert (fitted.predict(large) == fitted.predict(again)).all()
    assert (fitted.confidence(large) == fitted.confidence(again)).all()
    assert len(set(fitted.predict(large))) > 1


def test_seeds_reproduce(fitted: SurpriseClustering, images: Tensor) -> None:
    assert same(clone(fitted).fit(images), fitted)
    assert not same(quick(random_state=1).fit(images), fitted)
    first = quick(random_state=np.random.RandomState(5)).fit(images)
    assert same(first, quick(random_state=np.random.RandomState(5)).fit(images))


def test_cut_reads_the_tree_without_training(fitted: SurpriseClustering, images: Tensor) -> None:
    found = fitted.model_.merge_result
    assert found is not None
    for n_clusters in range(1, found.max_clusters + 1):
        cut = fitted.cut(n_clusters=n_clusters)
        assert cut.n_clusters_ <= n_clusters
        assert cut.n_clusters_ == len(np.unique(cut.labels_)) == len(cut.cluster_info_)
        assert (cut.predict(images) == cut.labels_).all()
        assert cut.predict_proba(images).shape == (60, cut.n_clusters_)
        assert cut.merge_tree_ == fitted.merge_tree_
    assert fitted.cut(1).n_clusters_ == 1
    with pytest.raises(ValueError, match=f"n_clusters is 99; the merge tree has 1 to {found.max_clusters}"):
        fitted.cut(99)
    with pytest.raises(ValueError, match=r"n_clusters is 2\.5; it must be an integer"):
        fitted.cut(2.5)  # type: ignore[arg-type]


def test_cut_returns_a_new_estimator_and_changes_nothing(images: Tensor) -> None:
    model = quick(n_clusters=3, min_confidence=0.2).fit(images)
    labels, probabilities, info = model.labels_.copy(), model.probabilities_.copy(), list(model.cluster_info_)
    assert model.n_clusters_ == 3
    cut = model.cut(2)
    assert cut is not model
    assert type(cut) is SurpriseClustering
    assert cut.get_params() == model.get_params()
    assert cut.n_clusters_ == 2
    assert not (cut.labels_ == labels).all()
    assert model.n_clusters_ == 3
    assert (model.labels_ == labels).all()
    assert (model.probabilities_ == probabilities).all()
    assert model.cluster_info_ == info
    assert (model.predict(images) == labels).all()
    for again in (model.cut(None), model.cut(), cut.cut(None), cut.cut(1).cut()):
        assert again is not model
        assert again.n_clusters_ == 3
        assert same(again, model)


def test_cut_of_a_search_without_merging(images: Tensor) -> None:
    settings = TINY | {"schedule": ["e=evolution:2:1@1"], "evolution": {"population": 4, "batch_size": 30}}
    model = quick(settings=settings, search="evolution").fit(images)
    assert model.merge_tree_ == []
    assert same(model.cut(), model)
    assert model.cut() is not model
    with pytest.raises(ValueError, match="merge"):
        model.cut(2)


def test_the_merge_tree_joins_everything_in_the_end(fitted: SurpriseClustering) -> None:
    gone: set[int] = set()
    for into, merged, phi in fitted.merge_tree_:
        assert into != merged
        assert not {into, merged} & gone
        assert -1 <= phi <= 1
        gone.add(merged)
    left = {output for step in fitted.merge_tree_ for output in (step.into, step.merged)} - gone
    assert len(left) == 1


def test_a_coarser_cut_only_joins(images: Tensor) -> None:
    model = quick(n_clusters=4).fit(images)
    four = model.labels_.copy()
    two = model.cut(2).labels_
    for cluster in np.unique(four):
        assert len(np.unique(two[four == cluster])) == 1


@pytest.mark.subprocess
def test_saved_and_loaded_in_a_new_process(fitted: SurpriseClustering, images: Tensor, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.safetensors")
    np.save(tmp_path / "images.npy", images.numpy())
    program = (
        "import sys, numpy as np; from converge_to_surprise import SurpriseClustering;"
        "model = SurpriseClustering.load(sys.argv[1] + '/model.safetensors'); x = np.load(sys.argv[1] + '/images.npy');"
        "np.savez(sys.argv[1] + '/out.npz', labels=model.labels_, predicted=model.predict(x), "
        "sure=model.confidence(x), coarse=model.cut(1).labels_, steps=len(model.history_))"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    out = np.load(tmp_path / "out.npz")
    assert (out["labels"] == fitted.labels_).all()
    assert (out["predicted"] == fitted.labels_).all()
    assert (out["sure"] == fitted.probabilities_).all()
    assert (out["coarse"] == 0).all()
    assert out["steps"] == 130


def test_pickles_hold_no_network_but_the_safe_format(
    fitted: SurpriseClustering, images: Tensor, tmp_path: Path
) -> None:
    content = pickle.dumps(fitted)
    assert b"torch" not in content.replace(b"converge_to_surprise", b"")
    assert same(pickle.loads(content), fitted)
    joblib.dump(fitted, tmp_path / "model.joblib")
    loaded = joblib.load(tmp_path / "model.joblib")
    assert (loaded.predict(images) == fitted.labels_).all()
    assert pickle.loads(pickle.dumps(quick(n_clusters=3))).n_clusters == 3


@pytest.mark.parametrize(
    "damage", [lambda c: c[: len(c) // 2], lambda c: c[:-9] + bytes([c[-9] ^ 1]) + c[-8:], lambda c: b""]
)
def test_a_damaged_file_is_noticed(damage: Any, fitted: SurpriseClustering, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.safetensors")
    path = tmp_path / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"cannot read the model .*model\.safetensors"):
        SurpriseClustering.load(path)


def test_a_missing_model_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no model "):
        SurpriseClustering.load(tmp_path / "none.safetensors")


@pytest.mark.slow
def test_works_in_a_pipeline_and_in_a_grid_search(images: Tensor) -> None:
    flat = images.flatten(1).numpy()
    pipeline = make_pipeline(FunctionTransformer(lambda x: 255 - x), quick(settings=TINY))
    assert pipeline.fit_predict(flat).shape == (60,)
    search = GridSearchCV(quick(settings=TINY), {"n_clusters": [2, 3]}, cv=2, error_score="raise").fit(flat)
    assert search.best_params_["n_clusters"] in (2, 3)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_images_with_low_confidence_get_no_cluster(fitted: SurpriseClustering, images: Tensor) -> None:
    boundary = float(np.sort(fitted.probabilities_)[30])
    strict = quick(min_confidence=boundary).fit(images)
    assert (strict.probabilities_ == fitted.probabilities_).all()
    assert ((strict.labels_ == -1) == (fitted.probabilities_ < boundary)).all()
    assert 0 < (strict.labels_ == -1).sum() < 60
    assert (strict.predict(images) == strict.labels_).all()
    with pytest.raises(ValueError, match=r"min_confidence is 1\.5"):
        quick(min_confidence=1.5).fit(images)


def test_images_of_another_kind_are_novel_and_get_no_cluster(
    fitted: SurpriseClustering, images: Tensor, tmp_path: Path
) -> None:
    assert fitted.novelty_.shape == (60,)
    np.testing.assert_allclose(fitted.novelty(images), fitted.novelty_, atol=1e-5)
    fitted.save(tmp_path / "model")
    strict = SurpriseClustering.load(tmp_path / "model").set_params(max_novelty=0.9)
    foreign = torch.zeros_like(images[:2])
    foreign[1, :, 4, 4] = 255
    assert (strict.novelty(foreign) > 0.9).all()
    assert (strict.predict(foreign) == -1).all()
    assert ((strict.predict(images) == -1) == (strict.novelty(images) > 0.9)).all()
    assert (fitted.predict(foreign) >= 0).all()


def test_paths_and_bad_files(fitted: SurpriseClustering, images: Tensor, tmp_path: Path) -> None:
    paths = []
    for number, image in enumerate(images):
        paths.append(tmp_path / f"{number:02d}.png")
        Image.fromarray(image[0].numpy()).save(paths[-1])
    assert same(quick().fit(paths), fitted)
    assert same(quick().fit(tmp_path), fitted)
    paths.insert(3, tmp_path / "broken.png")
    paths[3].write_bytes(b"not an image")
    model = quick().fit([str(path) for path in paths])
    assert model.labels_[3] == -1
    assert model.probabilities_[3] == 0
    assert (np.delete(model.labels_, 3) == fitted.labels_).all()
    assert [entry.name for entry in model.quarantine_] == [str(paths[3])]
    assert (model.predict(paths[:5]) == model.labels_[:5]).all()
    reloaded = pickle.loads(pickle.dumps(model))
    assert same(reloaded, model)
    assert reloaded.quarantine_ == model.quarantine_


def test_gray_images_that_fill_the_frame_keep_their_background(fitted: SurpriseClustering) -> None:
    assert (fitted.model_.config.kind, fitted.model_.config.views.background) == ("gray", "keep")


@pytest.mark.parametrize("search", ["relaxed", "evolution"])
@pytest.mark.parametrize("frozen", [False, True])
def test_the_users_own_backbone(images: Tensor, tmp_path: Path, search: str, frozen: bool) -> None:
    torch.manual_seed(0)
    backbone = Pooled()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    schedule = ["e=evolution:2:1@1"] if search == "evolution" else TINY["schedule"]
    settings = TINY | {"schedule": schedule, "evolution": {"population": 4, "batch_size": 30}}
    model = quick(backbone=backbone, freeze_backbone=frozen, settings=settings, search=search).fit(images)
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    learned = model.model_.final.network.state_dict()
    moved = [name for name, value in before.items() if not torch.equal(learned[f"backbone.{name}"], value)]
    assert bool(moved) != frozen
    assert model.model_.config.views.background == "keep", "it may have been trained with values from 0 to 1"
    assert model.transform(images).shape == (60, 16)
    assert (model.predict(images) == model.labels_).all()
    assert same(clone(model).fit(images), model)
    model.save(tmp_path / "own.safetensors")
    loaded = SurpriseClustering.load(tmp_path / "own.safetensors", backbone=Pooled())
    assert (loaded.predict(images) == model.labels_).all()
    assert same(pickle.loads(pickle.dumps(model)), model)
    with pytest.raises(ValueError, match="made with a backbone: give the same one"):
        SurpriseClustering.load(tmp_path / "own.safetensors")


def test_a_backbone_that_does_not_fit(images: Tensor) -> None:
    with pytest.raises(ValueError, match=r"gives \(2, 1, 8, 8\) for two views; .* pool and flatten"):
        quick(backbone=nn.Identity()).fit(images)
    with pytest.raises(ValueError, match=r"does not take views of shape \(B, 1, 8, 8\)"):
        quick(backbone=nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())).fit(images)
    with pytest.raises(ValueError, match="there is no backbone 'resnet'; give one of"):
        quick(backbone="resnet").fit(images)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((5, 8, 8)), "all 5 images of X are constant"),
        (np.full((5, 8, 8), np.nan), "X has a pixel that is nan in image 0"),
        (np.zeros((5, 8, 8, 7)), r"X has shape \(5, 8, 8, 7\)"),
        (np.zeros((0, 8, 8)), "there is no pixel"),
        (np.array([["a", "b"]] * 3), "could not convert string|Unable to convert|dtype"),
        (np.zeros((4, 8, 8), dtype=complex), "dtype complex128"),
        ("no/such/folder", "there is no data set or file"),
        ([], "X is empty"),
    ],
)  # fmt: skip
def test_images_that_cannot_be_used(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(given)


def test_before_and_after_fit(fitted: SurpriseClustering, images: Tensor) -> None:
    uses: list[Callable[[SurpriseClustering], Any]] = [
        lambda m: m.predict(images), lambda m: m.cut(2), lambda m: m.save("x"), lambda m: m.score(images),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(NotFittedError):
            use(quick())
    with pytest.raises(ValueError, match=r"X are 1x6x8 .* made with 1x8x8, another aspect"):
        fitted.predict(images[:, :, :6])
    with pytest.raises(ValueError, match=r"X are 3x8x8 .* made with 1x8x8, another number of channels"):
        fitted.predict(images.repeat(1, 3, 1, 1))
    with pytest.raises(ValueError, match=r"unknown setting 'relaxed\.temprature'"):
        quick(settings={"relaxed": {"temprature": 1}}).fit(images)
