"""Data sets by name, from a local folder or from OpenML, and array files."""

from __future__ import annotations

import gzip
import http.client
import pickle
import struct
import urllib.error
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.pictures import HEIC_HEAD, NEEDS_HEIC, encoded, photo, write

from converge_to_surprise.config.images import ImageOptions
from converge_to_surprise.data import datasets, formats
from converge_to_surprise.data.datasets import load, open_listing
from converge_to_surprise.data.skipped import count_kinds, files_line

RNG = np.random.default_rng(0)
TRAIN = RNG.integers(0, 256, (6, 5, 4), dtype=np.uint8)
TEST = RNG.integers(0, 256, (3, 5, 4), dtype=np.uint8)
LABELS = np.array([3, 1, 4, 1, 5, 9], dtype=np.uint8)


def idx_bytes(array: npt.NDArray[np.uint8]) -> bytes:
    """An IDX file of bytes."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_npz(path: Path) -> None:
    np.savez(path, x_train=TRAIN, y_train=LABELS, x_test=TEST, y_test=LABELS[:3])


def assert_loaded(loaded: datasets.Dataset) -> None:
    np.testing.assert_array_equal(loaded.train.images[:, 0].numpy(), TRAIN)
    assert loaded.train.labels is not None
    assert loaded.train.labels.tolist() == LABELS.tolist()
    assert loaded.test is not None
    np.testing.assert_array_equal(loaded.test.images[:, 0].numpy(), TEST)
    assert loaded.evaluation is loaded.test


def test_digits_need_nothing() -> None:
    loaded = load("digits")
    assert loaded.name == "digits"
    assert tuple(loaded.train.images.shape) == (1797, 1, 8, 8)
    assert (int(loaded.train.images.min()), int(loaded.train.images.max())) == (0, 255)
    assert loaded.train.labels is not None
    assert sorted(set(loaded.train.labels.tolist())) == list(range(10))
    assert loaded.test is None
    assert loaded.evaluation is loaded.train


@pytest.mark.parametrize("file", ["fashion-mnist.npz", "fashion_mnist.npz"])
def test_local_npz(tmp_path: Path, file: str) -> None:
    write_npz(tmp_path / file)
    loaded = load("Fashion-MNIST", tmp_path)
    assert loaded.name == "fashion-mnist"
    assert_loaded(loaded)


def test_the_variable_serves_as_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_npz(tmp_path / "usps.npz")
    monkeypatch.setenv("CTS_DATA", str(tmp_path))
    assert_loaded(load("usps"))


def test_the_flag_beats_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    write_npz(tmp_path / "here" / "usps.npz")
    monkeypatch.setenv("CTS_DATA", str(tmp_path / "nowhere"))
    assert_loaded(load("usps", tmp_path / "here"))


def test_a_folder_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"--data-dir is '.*nowhere', which is not a folder"):
        load("mnist", tmp_path / "nowhere")
    monkeypatch.setenv("CTS_DATA", str(tmp_path / "lost"))
    with pytest.raises(ValueError, match=r"CTS_DATA is '.*lost', which is not a folder"):
        load("mnist")


@pytest.mark.parametrize("place", ["", "fashion-mnist", "fashion_mnist", "FashionMNIST/raw"])
@pytest.mark.parametrize("compressed", [False, True])
def test_idx_folders(tmp_path: Path, place: str, compressed: bool) -> None:
    folder = tmp_path / place
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        "train-images-idx3-ubyte": TRAIN,
        "train-labels-idx1-ubyte": LABELS,
        "t10k-images-idx3-ubyte": TEST,
        "t10k-labels-idx1-ubyte": LABELS[:3],
    }
    for name, array in arrays.items():
        content = idx_bytes(array)
        (folder / (name + ".gz" * compressed)).write_bytes(gzip.compress(content) if compressed else content)
    assert_loaded(load("fashion-mnist", tmp_path))


def test_idx_images_alone_are_enough(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx_bytes(TRAIN))
    loaded = load("mnist", tmp_path)
    assert loaded.train.labels is None
    assert loaded.test is None


def test_truncated_idx_file(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx_bytes(TRAIN)[:-7])
    with pytest.raises(ValueError, match="train-images-idx3-ubyte is truncated"):
        load("mnist", tmp_path)


@pytest.mark.parametrize(("images", "labels"), [("images", "labels"), ("x", "y"), ("X", "target"), ("arr_0", "y")])
def test_own_npz(tmp_path: Path, images: str, labels: str) -> None:
    arrays: dict[str, Any] = {images: TRAIN, labels: LABELS}
    np.savez(tmp_path / "own.npz", **arrays)
    loaded = load(str(tmp_path / "own.npz"))
    np.testing.assert_array_equal(loaded.train.images[:, 0].numpy(), TRAIN)
    assert loaded.train.labels is not None
    assert loaded.train.labels.tolist() == LABELS.tolist()
    assert loaded.evaluation is loaded.train


def test_own_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "own.npy", TRAIN)
    loaded = load(str(tmp_path / "own.npy"))
    np.testing.assert_array_equal(loaded.train.images[:, 0].numpy(), TRAIN)
    assert loaded.train.labels is None


def test_own_npz_with_two_parts(tmp_path: Path) -> None:
    write_npz(tmp_path / "own.npz")
    assert_loaded(load(str(tmp_path / "own.npz")))


class Trap:
    """Leaves a trace when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("file", ["trap.npy", "trap.npz", "plain.npy", "labels.npz"])
def test_pickled_objects_are_refused_and_never_run(tmp_path: Path, file: str) -> None:
    trace = tmp_path / "trace"
    objects = np.array([Trap(trace)] * 6, dtype=object)
    path = tmp_path / file
    if file == "trap.npy":
        np.save(path, objects, allow_pickle=True)
    elif file == "trap.npz":
        np.savez(path, images=objects)
    elif file == "plain.npy":
        path.write_bytes(pickle.dumps(Trap(trace)))
    else:
        np.savez(path, images=TRAIN, labels=objects)
    with pytest.raises(ValueError, match=r"cannot read .* as an array file") as refused:
        load(str(path))
    assert str(path) in str(refused.value)
    assert not trace.exists()


@pytest.mark.parametrize("damage", ["empty", "truncated", "garbage inside", "text"])
@pytest.mark.parametrize("file", ["own.npz", "own.npy"])
def test_damaged_array_files(tmp_path: Path, file: str, damage: str) -> None:
    path = tmp_path / file
    if file == "own.npz":
        np.savez_compressed(path, images=TRAIN.repeat(100, axis=0))
    else:
        np.save(path, TRAIN)
    whole = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "truncated": whole[: len(whole) // 2],
            # Behind the first local header of the archive, or over the header of the array.
            "garbage inside": whole[:60] + b"\xff" * 20 + whole[80:] if file == "own.npz" else b"\xff" * len(whole),
            "text": b"these are no images",
        }[damage]
    )
    with pytest.raises(ValueError, match=r"cannot read .* as an array file"):
        load(str(path))


def test_npz_without_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", pictures=TRAIN, y=LABELS)
    with pytest.raises(ValueError, match=r"own.npz has the arrays \['pictures', 'y'\]; one of them must be called"):
        load(str(tmp_path / "own.npz"))


def test_problems_of_the_array_name_the_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x_train=TRAIN, x_test=TEST.astype(complex))
    with pytest.raises(ValueError, match=r"x_test of .*own.npz has dtype complex128"):
        load(str(tmp_path / "own.npz"))


def test_unknown_sources(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"no data set or file 'mnits'; give a name \(mnist, fashion-mnist, usps, digi"
    ):
        load("mnits")
    with pytest.raises(ValueError, match=r"no data set or file '.*none.npz'"):
        load(str(tmp_path / "none.npz"))
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ValueError, match="is not a source of images"):
        load(str(tmp_path / "notes.txt"))
    with pytest.raises(ValueError, match=r"is not a source of images: it holds no pictures \(.*BMP.*\), but 1 of .tx"):
        load(str(tmp_path))


@pytest.mark.parametrize("shape", [(0, 4, 4), (0,), ()])
def test_own_npy_without_images(tmp_path: Path, shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "own.npy", np.zeros(shape, np.uint8))
    with pytest.raises(ValueError, match=r"own.npy"):
        load(str(tmp_path / "own.npy"))


def test_own_npy_stays_on_disk(tmp_path: Path) -> None:
    np.save(tmp_path / "own.npy", TRAIN)
    with (tmp_path / "own.npy").open("r+b") as file:
        images = load(str(tmp_path / "own.npy")).train.images
        file.seek(-1, 2)
        file.write(b"\x07" if TRAIN[-1, -1, -1] != 7 else b"\x08")
    assert int(images[-1, 0, -1, -1]) != TRAIN[-1, -1, -1]


@pytest.mark.parametrize("images", ["train-images-idx3-ubyte", "t10k-images.idx3-ubyte.gz", "own-images.idx"])
@pytest.mark.parametrize("zipped", [False, True])
def test_a_single_idx_file(tmp_path: Path, images: str, zipped: bool) -> None:
    def write(name: str, content: bytes) -> None:
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)

    labels = images.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1") + ".gz" * zipped
    write(images, idx_bytes(TRAIN))
    loaded = load(str(tmp_path / images))
    np.testing.assert_array_equal(loaded.train.images[:, 0].numpy(), TRAIN)
    assert loaded.train.labels is None
    write(labels, idx_bytes(LABELS))
    loaded = load(str(tmp_path / images))
    assert loaded.train.labels is not None
    assert loaded.train.labels.tolist() == LABELS.tolist()


def photos(folder: Path) -> Path:
    """Two folders of pictures, and a file that is none."""
    for number in range(6):
        write(folder / ("cat" if number < 4 else "dog") / f"{number}.png", photo(8, 10, number))
    (folder / "cat" / "2b.png").write_bytes(b"meow")
    return folder


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    loaded = load(str(photos(tmp_path)))
    assert loaded.name == str(tmp_path)
    assert tuple(loaded.train.images.shape) == (6, 3, 8, 10)
    for number, image in enumerate(loaded.train.images):
        np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), photo(8, 10, number))
    assert loaded.train.names == ["cat/0.png", "cat/1.png", "cat/2.png", "cat/3.png", "dog/4.png", "dog/5.png"]
    assert loaded.train.labels is None
    assert loaded.test is None
    assert [bad.name for bad in loaded.quarantine] == ["cat/2b.png"]
    assert loaded.classes_offered == 2


def test_folders_as_labels(tmp_path: Path) -> None:
    loaded = load(str(photos(tmp_path)), options=ImageOptions(labels="from-folders"))
    assert loaded.train.labels is not None
    assert loaded.train.labels.tolist() == [0, 0, 0, 0, 1, 1]
    assert loaded.train.class_names == ["cat", "dog"]
    assert loaded.classes_offered == 0


def test_folders_as_labels_of_something_else(tmp_path: Path) -> None:
    write_npz(tmp_path / "own.npz")
    for source in ("digits", str(tmp_path / "own.npz")):
        with pytest.raises(ValueError, match=r"labels is 'from-folders', but .* is not a folder of pictures"):
            load(source, options=ImageOptions(labels="from-folders"))


@pytest.mark.parametrize("file", ["list.csv", "list.parquet"])
def test_a_table_of_pictures(tmp_path: Path, file: str) -> None:
    photos(tmp_path)
    table = {"path": ["dog/4.png", "cat/2b.png", "cat/0.png", "none.png"], "label": ["d", "c", "c", "x"]}
    if file == "list.csv":
        lines = [",".join(row) for row in [("path", "label"), *zip(*table.values(), strict=True)]]
        (tmp_path / file).write_text("\n".join(lines))
    else:
        pq.write_table(pa.table(table), tmp_path / file)
    loaded = load(str(tmp_path / file))
    assert loaded.train.names == ["dog/4.png", "cat/0.png"]
    assert loaded.train.labels is not None
    assert loaded.train.labels.tolist() == [1, 0]
    assert loaded.train.class_names == ["c", "d"]
    assert [bad.name for bad in loaded.quarantine] == ["cat/2b.png", "none.png"]
    assert loaded.classes_offered == 0


def test_wishes_reach_the_pictures(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    loaded = load(
        str(photos(tmp_path)),
        options=ImageOptions(image_size=10, color="gray", threads=1),
        progress=lambda done, total: heard.append((done, total)),
    )
    assert tuple(loaded.train.images.shape) == (6, 1, 8, 10)
    assert heard == [(7, 7)]
    assert tuple(load(str(tmp_path), shape=(3, 4, 4)).train.images.shape) == (6, 3, 4, 4)


def test_pictures_that_are_too_few(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("path,label\n")
    with pytest.raises(ValueError, match=r"list.csv names no pictures: it has no rows"):
        load(str(tmp_path / "list.csv"))
    folder = tmp_path / "few"
    folder.mkdir()
    with pytest.raises(
        ValueError, match=r"few is not a source of images: it holds no pictures .*, but no files at all"
    ):
        load(str(folder))
    (folder / "bad.png").write_bytes(b"bad")
    with pytest.raises(ValueError, match=r"none of the 1 files of .*few can be read: 'bad.png': not a picture"):
        load(str(folder))
    write(folder / "good.png", photo(8, 8))
    with pytest.raises(ValueError, match=r"few has 1 readable pictures of 2, and .* skipped: 'bad.png': not a pic"):
        load(str(folder))


def test_a_folder_of_pictures_that_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "heif_version", lambda: None)
    for number in range(5):
        (tmp_path / f"IMG_{number}.HEIC").write_bytes(HEIC_HEAD)
    (tmp_path / "x.nef").write_bytes(b"raw")
    with pytest.raises(ValueError, match="none of the 6 files of") as refused:
        load(str(tmp_path))
    heic = "'IMG_0.HEIC' and 4 more: HEIC pictures need pillow-heif: pip install 'converge-to-surprise[photos]'"
    assert str(refused.value).endswith(f"can be read: {heic}; 'x.nef': camera raw; export it as JPEG")


def test_nothing_vanishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "heif_version", lambda: None)
    photos(tmp_path)
    (tmp_path / "dog" / "phone.heic").write_bytes(HEIC_HEAD)
    (tmp_path / "dog" / "phone 2").write_bytes(HEIC_HEAD)
    (tmp_path / "dog" / "logo.svg").write_text("<svg></svg>")
    (tmp_path / "dog" / "video.mov").write_bytes(b"\0\0\0\x14ftypqt  ")
    (tmp_path / "dog" / "notes.txt").write_text("woof")
    (tmp_path / "dog" / "9").write_bytes(encoded(photo(8, 10, 9), "png"))
    loaded = load(str(tmp_path))
    assert loaded.train.names is not None
    assert loaded.train.names[-1] == "dog/9"
    assert {bad.name: bad.kind for bad in loaded.quarantine} == {
        "cat/2b.png": "not a picture",
        "dog/logo.svg": "SVG",
        "dog/phone 2": "HEIC (needs pillow-heif)",
        "dog/phone.heic": "HEIC (needs pillow-heif)",
    }
    assert load(str(tmp_path)).quarantine == loaded.quarantine  # from the cache
    line = files_line(len(loaded.train.names), count_kinds(loaded.quarantine), Path("run/quarantine.csv"))
    assert line == (
        "read 7 of 11 files; skipped 4: 2 HEIC (needs pillow-heif), 1 not a picture, 1 SVG; see run/quarantine.csv"
    )


@NEEDS_HEIC
def test_pictures_are_decoded_anew_once_they_can_be_read(tmp_path: Path) -> None:
    photos(tmp_path)
    write(tmp_path / "cat" / "0.heic", photo(8, 10, 50))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "heif_version", lambda: None)
        before = load(str(tmp_path))
    after = load(str(tmp_path))
    assert [bad.name for bad in before.quarantine] == ["cat/0.heic", "cat/2b.png"]
    assert [bad.name for bad in after.quarantine] == ["cat/2b.png"]
    assert len(after.train.images) == len(before.train.images) + 1


def test_the_line_about_files() -> None:
    assert files_line(1240, {}) == "read 1,240 files"
    assert files_line(1, {}, Path("q.csv")) == "read 1 file"
    skipped = {"damaged": 12, "HEIC (needs pillow-heif)": 1060}
    assert files_line(1240, skipped, Path("q.csv")) == (
        "read 1,240 of 2,312 files; skipped 1,072: 1,060 HEIC (needs pillow-heif), 12 damaged; see q.csv"
    )
    assert files_line(0, {"empty": 1}) == "read 0 of 1 files; skipped 1: 1 empty"


def test_a_folder_of_idx_files(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx_bytes(TRAIN))
    with pytest.raises(ValueError, match=r"holds IDX files and no pictures; give one .*train-images-idx3-ubyte"):
        load(str(tmp_path))


def test_listings_are_for_pictures_only(tmp_path: Path) -> None:
    write_npz(tmp_path / "own.npz")
    assert open_listing("digits") is None
    assert open_listing(str(tmp_path / "own.npz")) is None
    listing = open_listing(str(photos(tmp_path / "photos")), ImageOptions(labels="from-folders"))
    assert listing is not None
    assert listing.classes == ["cat"] * 5 + ["dog"] * 2
    with pytest.raises(ValueError, match="no data set or file 'mnits'"):
        open_listing("mnits")


def fake_openml(
    monkeypatch: pytest.MonkeyPatch, name: str, data: npt.NDArray[Any], target: npt.NDArray[Any], train: int
) -> list[tuple[str, int]]:
    """OpenML as the client hands it over: one row per image, classes as text. Returns what was asked for."""
    asked: list[tuple[str, int]] = []

    def fetch(openml_name: str, *, version: int, as_frame: bool, parser: str) -> SimpleNamespace:
        assert not as_frame
        assert parser == "liac-arff"  # the other parser needs pandas
        asked.append((openml_name, version))
        return SimpleNamespace(data=data, target=target)

    described = datasets.NAMED[name]
    assert described is not None
    small = datasets._OpenML(described.name, described.version, described.side, train)
    monkeypatch.setattr(datasets, "fetch_openml", fetch)
    monkeypatch.setitem(datasets.NAMED, name, small)
    return asked


@pytest.mark.parametrize(("name", "there"), [("mnist", "mnist_784"), ("fashion-mnist", "Fashion-MNIST")])
def test_download(monkeypatch: pytest.MonkeyPatch, name: str, there: str) -> None:
    rows = RNG.integers(0, 256, (7, 784))
    rows[0, 0], rows[0, 1] = 0, 255
    asked = fake_openml(monkeypatch, name, rows.astype(float), np.array(list("5041921"), dtype=object), train=5)
    loaded = load(name)
    assert asked == [(there, 1)]
    np.testing.assert_array_equal(loaded.train.images.numpy(), rows[:5].reshape(5, 1, 28, 28))
    assert loaded.test is not None
    np.testing.assert_array_equal(loaded.test.images.numpy(), rows[5:].reshape(2, 1, 28, 28))
    assert loaded.train.labels is not None
    assert loaded.train.labels.tolist() == [5, 0, 4, 1, 9]
    assert loaded.test.labels is not None
    assert loaded.test.labels.tolist() == [2, 1]


def test_download_of_usps(monkeypatch: pytest.MonkeyPatch) -> None:
    # OpenML has USPS from -1 (black) to 1, its digits 0..9 as classes 1..10.
    rows = RNG.uniform(-1, 1, (5, 256))
    rows[0, 0], rows[0, 1] = -1, 1
    fake_openml(monkeypatch, "usps", rows, np.array(["7", "6", "1", "10", "2"]), train=3)
    loaded = load("usps")
    assert tuple(loaded.train.images.shape) == (3, 1, 16, 16)
    expected = np.round((rows + 1) / 2 * 255).reshape(5, 1, 16, 16)
    np.testing.assert_array_equal(loaded.train.images.numpy(), expected[:3])
    assert loaded.train.labels is not None
    assert loaded.train.labels.tolist() == [6, 5, 0]
    assert loaded.test is not None
    assert loaded.test.labels is not None
    assert loaded.test.labels.tolist() == [9, 1]


def test_splits_have_the_original_sizes() -> None:
    described = {name: entry for name, entry in datasets.NAMED.items() if entry is not None}
    assert {name: (entry.train, entry.side) for name, entry in described.items()} == {
        "mnist": (60_000, 28),
        "fashion-mnist": (60_000, 28),
        "usps": (7_291, 16),
    }


@pytest.mark.parametrize(
    "error",
    [
        urllib.error.URLError("Name or service not known"),
        ConnectionResetError("reset"),
        TimeoutError("too slow"),
        http.client.IncompleteRead(b"half"),
        EOFError("the file ended early"),
        ValueError("md5 checksum does not match"),
    ],
)
def test_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(datasets, "fetch_openml", fail)
    with pytest.raises(ValueError, match="could not be downloaded from OpenML") as refused:
        load("mnist", tmp_path)
    message = str(refused.value)
    assert message.startswith("mnist is not in the local folder")
    assert str(error) in message
    assert "mnist.npz" in message
    assert "--data-dir or CTS_DATA" in message
    assert "\n" not in message
