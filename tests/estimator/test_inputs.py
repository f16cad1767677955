"""What the estimator takes as X: columns of paths, and matrices only if they can be pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits
from support.estimators import tiny

from converge_to_surprise.data.arrays import check_flattened, image_shape_of
from converge_to_surprise.data.synthetic import striped_images

RNG = np.random.default_rng(0)


class PolarsLike:
    """What matters of a polars Series: its length, its entries, and no number of dimensions."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def to_list(self) -> list[Any]:
        return self.values


COLUMNS: dict[str, Callable[[list[Any]], Any]] = {
    "pandas": pandas.Series,
    "pandas of another order": lambda paths: pandas.Series(paths, index=range(len(paths), 0, -1)),
    "pandas index": pandas.Index,
    "pandas strings": lambda paths: pandas.Series([str(path) for path in paths], dtype="string"),
    "pandas column": lambda paths: pandas.DataFrame({"path": paths})["path"],
    "arrow": lambda paths: pyarrow.chunked_array([[str(path) for path in paths]]),
    "polars": PolarsLike,
    "numpy": lambda paths: np.array([str(path) for path in paths]),
    "tuple": tuple,
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    found = [folder / f"{number:02d}.png" for number in range(30)]
    for path, image in zip(found, striped_images(30)[0], strict=True):
        Image.fromarray(image[0].numpy()).save(path)
    return found


@pytest.fixture(scope="module")
def labels(paths: list[Path]) -> Any:
    return tiny().fit(paths).labels_


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_of_paths_is_a_list_of_paths(paths: list[Path], labels: Any, kind: str) -> None:
    column = COLUMNS[kind](paths)
    fitted = tiny().fit(column)
    assert (fitted.labels_ == labels).all()
    assert (fitted.predict(column) == labels).all()


def test_a_real_polars_series(paths: list[Path], labels: Any) -> None:
    polars = pytest.importorskip("polars")
    assert (tiny().fit(polars.Series([str(path) for path in paths])).labels_ == labels).all()


def test_a_column_with_holes_is_refused(paths: list[Path]) -> None:
    for missing in (None, np.nan):
        with pytest.raises(ValueError, match="X mixes paths with other things"):
            tiny().fit(pandas.Series([*map(str, paths), missing], dtype=object))


def test_a_column_of_images_is_a_list_of_images() -> None:
    images = striped_images(30)[0][:, 0].numpy()
    assert (tiny().fit(pandas.Series(list(images))).labels_ == tiny().fit(images).labels_).all()


ASK = 'give image_shape=(H, W) or (C, H, W) for flattened images, or input="embeddings" for feature vectors'


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (RNG.normal(size=(50, 384)), f"X has shape (50, 384), which is not a square image; {ASK}"),
        (RNG.integers(0, 255, (50, 300)), f"X has shape (50, 300), which is not a square image; {ASK}"),
        (RNG.normal(size=(50, 64)), f"X has shape (50, 64) and negative values, as feature vectors have; {ASK}"),
        (
            RNG.integers(-128, 127, (50, 64)),
            f"X has shape (50, 64) and negative values, as feature vectors have; {ASK}",
        ),
        (3 * RNG.random((50, 64)), f"X has shape (50, 64) and fractions above 1, as feature vectors have; {ASK}"),
        (
            (unit := RNG.random((50, 64))) / np.linalg.norm(unit, axis=1)[:, None],
            f"X has shape (50, 64) and rows of length 1, as feature vectors have; {ASK}",
        ),
    ],
)
def test_a_matrix_that_may_be_features_is_asked_about(rows: Any, message: str) -> None:
    for given_rows in (rows, rows.tolist(), pandas.DataFrame(rows)):
        with pytest.raises(ValueError, match=r"^") as refused:
            tiny().fit(given_rows)
        assert str(refused.value) == message


def test_a_matrix_with_an_image_shape_is_not_asked_about() -> None:
    rows = striped_images(30)[0].flatten(1).numpy()
    labels = tiny().fit(rows).labels_
    assert (tiny(image_shape=(8, 8)).fit(rows - 128.0).labels_ == labels).all()
    assert tiny(image_shape=(1, -1)).fit(rows[:, :30]).labels_.shape == (30,)


@given(st.sampled_from(["bytes", "shares", "whole", "wide"]), st.integers(2, 12))
def test_matrices_of_pixels_are_taken(kind: str, side: int) -> None:
    pixels = RNG.integers(0, 256, (20, side * side))
    forms: dict[str, np.ndarray] = {
        "bytes": pixels.astype(np.uint8),
        "shares": pixels / 255,
        "whole": pixels.astype(float),
        "wide": pixels * 257,
    }
    check_flattened(forms[kind], "X")


def test_the_digits_of_scikit_learn_are_pictures() -> None:
    check_flattened(load_digits().data, "X")


@given(st.integers(1, 12), st.integers(1, 12))
def test_one_side_may_be_left_out(height: int, width: int) -> None:
    for shape in ((height, -1), (-1, width)):
        assert image_shape_of(height * width, shape) == (1, height, width)


@pytest.mark.parametrize("shape", [(-1, 2), (-1, -1), (-2, 7), (0, -1), (-1,)])
def test_sides_that_do_not_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="does not make images of 7 values"):
        image_shape_of(7, shape)
