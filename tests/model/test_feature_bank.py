"""Stored features: what they hold, when they are computed again, and that a killed build ends with the same bytes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support import onnx_models
from torch import Tensor

from converge_to_surprise.config import Augmentation, Views
from converge_to_surprise.core.views import make_views, to_float
from converge_to_surprise.data.store import fingerprint
from converge_to_surprise.model import feature_bank
from converge_to_surprise.model.encoder import BackboneEncoder, Projection
from converge_to_surprise.model.feature_bank import CHUNK, BankJob, stored_features
from converge_to_surprise.model.feature_recipe import FeatureRecipe
from converge_to_surprise.model.pretrained import PreprocessFlags, open_backbone

pytestmark = pytest.mark.subprocess  # an ONNX file is tried in a process of its own

SIDE = 16
AUGMENTATION = Augmentation(rotation=10, crop=4, flip_prob=0.5, brightness=0.3, sampling="bilinear", fill="background")


@pytest.fixture
def images() -> Tensor:
    pixels = np.random.default_rng(0).integers(0, 256, (3 * CHUNK + 5, 3, SIDE, SIDE))
    return torch.from_numpy(pixels.astype(np.uint8))


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> FeatureRecipe:
    model = onnx_models.save(onnx_models.vectors(), tmp_path_factory.mktemp("backbone") / "model.onnx")
    identity = open_backbone(str(model), PreprocessFlags(size=SIDE)).identity
    return FeatureRecipe(identity, Views(fill_masked=True), AUGMENTATION, copies=3, components=4)


def job(images: Tensor, recipe: FeatureRecipe, folder: Path, threads: int = 1) -> BankJob:
    return BankJob(images, recipe, folder / recipe.key(fingerprint(images)), threads)


def test_the_first_copy_is_the_un_augmented_view_and_the_others_differ(
    images: Tensor, recipe: FeatureRecipe, tmp_path: Path
) -> None:
    found = job(images, recipe, tmp_path / "bank")
    items, projection = stored_features(found)
    assert items.shape == (len(images), 2, 4, 4)
    assert items.dtype == torch.float16
    backbone = open_backbone(recipe.identity.source, PreprocessFlags(size=SIDE))
    for side, view in enumerate(make_views(to_float(images), recipe.views)):
        torch.testing.assert_close(items[:, side, 0], projection(backbone(view).half()), atol=2e-3, rtol=2e-3)
    assert not torch.equal(items[:, :, 1], items[:, :, 2])
    assert (items[:, 0, 0] - items[:, 0, 1]).abs().mean() > 0.01
    encoder = BackboneEncoder(recipe, projection, (3, SIDE, SIDE))
    torch.testing.assert_close(encoder.view_features(images[:40]), items[:40, :, 0].float(), atol=2e-3, rtol=2e-3)


def test_the_bytes_do_not_depend_on_the_number_of_threads(
    images: Tensor, recipe: FeatureRecipe, tmp_path: Path
) -> None:
    one, three = (job(images, recipe, tmp_path / str(threads), threads) for threads in (1, 3))
    for each in (one, three):
        stored_features(each)
    assert (one.folder / "features.npy").read_bytes() == (three.folder / "features.npy").read_bytes()


def test_complete_features_are_not_computed_again(
    images: Tensor, recipe: FeatureRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = job(images, recipe, tmp_path / "bank")
    first = stored_features(found).items.clone()

    def never(*_: object) -> Tensor:
        raise AssertionError("computed again")

    monkeypatch.setattr(feature_bank, "all_features", never)
    assert torch.equal(stored_features(found).items, first)
    fewer = replace(recipe, components=2)  # another projection of the same features
    assert stored_features(job(images, fewer, tmp_path / "bank")).items.shape[3] == 2


@pytest.mark.parametrize("change", ["picture", "model", "size", "copies", "augmentation", "views"])
def test_any_change_makes_another_bank(change: str, images: Tensor, recipe: FeatureRecipe, tmp_path: Path) -> None:
    before = recipe.key(fingerprint(images))
    if change == "picture":
        images = images.clone()
        images[7, 1, 3, 3] ^= 1
    elif change == "model":
        other = onnx_models.save(onnx_models.vectors(seed=1), tmp_path / "other.onnx")
        recipe = replace(recipe, identity=open_backbone(str(other), PreprocessFlags(size=SIDE)).identity)
    elif change == "size":
        preprocess = replace(recipe.identity.preprocess, size=SIDE + 4)
        recipe = replace(recipe, identity=replace(recipe.identity, preprocess=preprocess))
    elif change == "copies":
        recipe = replace(recipe, copies=4)
    elif change == "augmentation":
        recipe = replace(recipe, augmentation=replace(AUGMENTATION, rotation=11))
    else:
        recipe = replace(recipe, views=Views())
    assert recipe.key(fingerprint(images)) != before


def test_the_place_of_the_model_does_not_matter(images: Tensor, recipe: FeatureRecipe) -> None:
    moved = replace(recipe, identity=replace(recipe.identity, source="elsewhere.onnx"))
    assert moved.key(fingerprint(images)) == recipe.key(fingerprint(images))


def test_a_recipe_survives_as_plain_data(recipe: FeatureRecipe) -> None:
    assert FeatureRecipe.from_dict(recipe.to_dict()) == recipe
    with pytest.raises(ValueError, match="not complete"):
        FeatureRecipe.from_dict({"copies": 3})
    with pytest.raises(ValueError, match=r"augmentation\.rotation"):
        FeatureRecipe.from_dict(recipe.to_dict() | {"augmentation": {"rotation": 999}})


@pytest.mark.parametrize("cut", [0, 1, 100, 5_000, 20_000])
def test_a_partial_file_is_continued(cut: int, images: Tensor, recipe: FeatureRecipe, tmp_path: Path) -> None:
    whole, broken = (job(images, recipe, tmp_path / name) for name in ("whole", "broken"))
    stored_features(whole)
    content = (whole.folder / "features.npy").read_bytes()
    broken.folder.mkdir(parents=True)
    (broken.folder / "features.part").write_bytes(content[:cut])
    items = stored_features(broken).items
    assert (broken.folder / "features.npy").read_bytes() == content
    assert torch.equal(items, stored_features(whole).items)


def test_a_full_disk_is_refused_in_one_line(
    images: Tensor, recipe: FeatureRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("usage", (), {"free": 10})())
    with pytest.raises(ValueError, match=r"need 0\.0 GB in .*; free some space, set CTS_CACHE"):
        stored_features(job(images, recipe, tmp_path / "bank"))


BUILD = """
import sys, time, torch, numpy as np
sys.path[:0] = {path!r}
from converge_to_surprise.model import feature_bank
from converge_to_surprise.model.feature_recipe import FeatureRecipe
import json, pathlib
recipe = FeatureRecipe.from_dict(json.loads(pathlib.Path({recipe!r}).read_text()))
images = torch.from_numpy(np.load({images!r}))
slow = feature_bank.all_features
def all_features(*words):
    time.sleep(0.05)
    return slow(*words)
feature_bank.all_features = all_features
print("ready", flush=True)
feature_bank.stored_features(feature_bank.BankJob(images, recipe, pathlib.Path({folder!r}), 2))
"""


@pytest.mark.slow
@pytest.mark.subprocess
def test_a_build_that_is_killed_ten_times_ends_with_the_same_bytes(
    images: Tensor, recipe: FeatureRecipe, tmp_path: Path
) -> None:
    many = images.repeat(12, 1, 1, 1)
    whole = job(many, recipe, tmp_path / "whole")
    stored_features(whole)
    np.save(tmp_path / "images.npy", many.numpy())
    (tmp_path / "recipe.json").write_text(json.dumps(recipe.to_dict()), encoding="utf-8")
    folder = tmp_path / "killed"
    part = folder / "features.part"
    names = {"recipe": str(tmp_path / "recipe.json"), "images": str(tmp_path / "images.npy"), "folder": str(folder)}
    words = [sys.executable, "-c", BUILD.format(path=[p for p in sys.path if p], **names)]
    draw = np.random.default_rng(0)
    sizes: list[int] = []
    for _ in range(10):
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        before = sizes[-1] if sizes else 0
        while process.poll() is None and (not part.is_file() or part.stat().st_size <= before):
            time.sleep(0.005)
        time.sleep(float(draw.uniform(0, 0.06)))
        process.kill()
        process.wait()
        sizes.append(part.stat().st_size)
    assert sizes == sorted(set(sizes)), "every build adds to what the one before it made"
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    for name in ("features.npy", "components-4.npy", "projection-4.safetensors"):
        assert (folder / name).read_bytes() == (whole.folder / name).read_bytes(), name


def test_the_projection_is_fitted_to_a_sample_of_augmented_views(
    images: Tensor, recipe: FeatureRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each view of the sample is drawn once, from any image, and never the one without augmentation."""
    shape = len(images), 2, 1 + recipe.copies, recipe.features
    numbered = torch.zeros(shape, dtype=torch.float16)
    numbered[..., :3] = torch.stack(torch.meshgrid(*map(torch.arange, shape[:3]), indexing="ij"), -1).half()
    chunks = iter(torch.split(numbered, CHUNK))
    seen: list[Tensor] = []

    def fit(features: Tensor, components: int) -> Projection:
        seen.append(features)
        return Projection(torch.zeros(recipe.features), torch.zeros(recipe.features, components))

    monkeypatch.setattr(feature_bank, "all_features", lambda *_: next(chunks))
    monkeypatch.setattr(feature_bank, "SAMPLE", 400)
    monkeypatch.setattr(Projection, "fit", fit)
    stored_features(job(images, recipe, tmp_path / "bank"))
    (sample,) = seen
    image, side, copy = sample[:, :3].int().unbind(1)
    assert len({*zip(image.tolist(), side.tolist(), copy.tolist(), strict=True)}) == len(sample) == 400
    assert sorted(set(copy.tolist())) == [1, 2, 3]
    assert set(side.tolist()) == {0, 1}
    assert len(set(image.tolist())) > 0.9 * len(images)


def test_projected_features_are_half_whitened() -> None:
    """Standard deviations become their square roots, up to one common factor."""
    deviations = torch.tensor([16.0, 4.0, 1.0, 0.25])
    features = torch.randn(20_000, 4, generator=torch.Generator().manual_seed(0)) * deviations + 5
    projected = Projection.fit(features, 3)(features).float()
    assert projected.std() == pytest.approx(1.0, abs=0.01)
    torch.testing.assert_close(projected.mean(0), torch.zeros(3), atol=0.02, rtol=0)
    spread = projected.std(0)
    torch.testing.assert_close(spread / spread[0], torch.tensor([1.0, 0.5, 0.25]), atol=0.02, rtol=0)


def test_fewer_images_than_components_are_projected() -> None:
    features = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    assert Projection.fit(features, 16)(features).shape == (5, 4)


def test_a_run_that_waits_for_another_one_says_so(
    images: Tensor, recipe: FeatureRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_bank, "PATIENCE", 0.05)
    found = job(images, recipe, tmp_path)
    found.folder.mkdir(parents=True)
    holding = "import sys, time, filelock\nwith filelock.FileLock(sys.argv[1]): print(flush=True); time.sleep(0.5)"
    command = [sys.executable, "-c", holding, str(found.folder / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.warns(UserWarning, match="another run is computing the features of these images in"):
            items, _ = stored_features(found)
    assert len(items) == len(images)
