"""What a user gives: configurations, arrays, tables and pictures."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil

from hypothesis import strategies as st
from support.pictures import SAVING, encoded, photo

from converge_to_surprise.config import Config, files
from converge_to_surprise.config.images import ImageOptions
from converge_to_surprise.data import datasets
from converge_to_surprise.data.decode import BadPicture, decode, probe

from .place import Draw, Place, Use
from .spoil import dice, idx, npz, spoil_bytes, spoil_png, spoilt, whole_array


def configuration(place: Place, draw: Draw) -> Use:
    """A configuration file, as data or as bytes, in JSON or TOML."""
    plain = files.to_dict(Config())
    if draw(st.booleans()):
        path = place.file("c.json", json.dumps(draw(spoilt(plain))).encode())
    else:
        text = 'seed = 3\nschedule = ["a=evolution:3"]\n[evolution]\nbatch_size = 5\n[relaxed]\ntemperature = 0.5\n'
        path = place.file("c.toml", spoil_bytes(text.encode(), draw(dice)))
    return lambda: files.overlay(Config(), files.read(path))


def idx_file(place: Place, draw: Draw) -> Use:
    """IDX, plain, and compressed with the damage inside or outside."""
    rng = draw(dice)
    content = idx(rng.choice((8, 9, 11, 12, 13, 14)), 5, 4, 4, content=bytes(5 * 4 * 4))
    match rng.randrange(3):
        case 0:
            path = place.file("a.idx", spoil_bytes(content, rng))
        case 1:
            path = place.file("a.idx.gz", gzip.compress(spoil_bytes(content, rng)))
        case _:
            path = place.file("a.idx.gz", spoil_bytes(gzip.compress(content), rng))
    return lambda: datasets.load(str(path))


def array_file(place: Place, draw: Draw) -> Use:
    """npy, and npz with the damage inside or outside."""
    rng = draw(dice)
    array = whole_array((5, 4, 4), rng.choice(("|u1", "<f4", "<i8", "|b1")))
    match rng.randrange(3):
        case 0:
            path = place.file("a.npy", spoil_bytes(array, rng))
        case 1:
            labels = spoil_bytes(whole_array((5,)), rng)
            path = place.file("a.npz", npz(images=spoil_bytes(array, rng), labels=labels))
        case _:
            path = place.file("a.npz", spoil_bytes(npz(images=array, labels=whole_array((5,))), rng))
    return lambda: datasets.load(str(path))


def embedding_file(place: Place, draw: Draw) -> Use:
    """Embeddings in npy, npz and Parquet, with the damage inside or outside."""
    rng = draw(dice)
    array = whole_array(rng.choice(((5, 4), (5, 2, 4))), rng.choice(("|u1", "<f4", "<f8", "<i8", "|b1")))
    match rng.randrange(3):
        case 0:
            path = place.file("a.npy", spoil_bytes(array, rng))
        case 1:
            path = place.file("a.npz", npz(embeddings=spoil_bytes(array, rng), labels=whole_array((5,))))
        case _:
            path = place.file("e.parquet", spoil_bytes(_parquet(), rng))
    return lambda: datasets.load(str(path), options=ImageOptions(input="embeddings"))


CELLS = ("a.png", "", "../../etc/passwd", "\0", "/dev/zero", "\ud800", '"', ",", "\r\n", "x" * 5000, ".", "\x1b[2J")
HEADERS = ("path,label", "file", "image;class", "filename\ttarget", "\0", "", "\ufeffpath")


def table(place: Place, draw: Draw) -> Use:
    """CSV of strange cells or with damaged bytes, and damaged Parquet."""
    rng = draw(dice)
    place.file("a.png", encoded(photo(8, 8), "png"))
    if rng.random() < 0.2:
        path = place.file("t.parquet", spoil_bytes(_parquet(), rng))
    else:
        rows = draw(st.lists(st.lists(st.sampled_from(CELLS), max_size=4), max_size=5))
        text = "\n".join([draw(st.sampled_from(HEADERS)), *map(",".join, rows)]).encode("utf-8", "surrogatepass")
        path = place.file("t.csv", text if rng.random() < 0.6 else spoil_bytes(text, rng))
    return lambda: datasets.load(str(path))


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(
        pa.table({"path": ["a.png", "b.png", "a.png"], "label": ["x", "y", "x"], "vector": [[1.0, 2.0]] * 3}), file
    )
    return file.getvalue()


def picture(place: Place, draw: Draw) -> Use:
    """All formats that can be read here, in gray and color; of PNG also what its checksums would give away."""
    rng = draw(dice)
    kind = rng.choice(sorted(SAVING))
    content = encoded(photo(24, 17, rng.randrange(9), channels=rng.choice((1, 3))), kind)
    deep = kind == "png" and rng.random() < 0.7
    path = place.file(f"a.{kind}", spoil_png(content, rng) if deep else spoil_bytes(content, rng))

    def use() -> None:
        try:
            probe(path)
            assert decode(path, (3, 9, 7)).shape == (3, 9, 7)
        except BadPicture as bad:
            reason = str(bad)
        else:
            return
        assert "\n" not in reason
        raise ValueError(reason)

    return use


def picture_folder(place: Place, draw: Draw) -> Use:
    """A folder of good and bad pictures: the good ones stay."""
    rng = draw(dice)
    folder = place.folder / "pictures"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    good = rng.randrange(2, 5)
    for number in range(good):
        (folder / f"good-{number}.png").write_bytes(encoded(photo(8, 8, number), "png"))
    for number in range(rng.randrange(1, 4)):
        kind = rng.choice(sorted(SAVING))
        (folder / f"bad-{number}.{kind}").write_bytes(spoil_bytes(encoded(photo(8, 8, number), kind), rng))
    os.symlink(rng.choice(("..", "/etc/passwd", "nowhere", "loop.png", "/dev/zero")), folder / "loop.png")

    def use() -> None:
        found = datasets.load(str(folder))
        assert found.train.names is not None
        assert sum(name.startswith("good-") for name in found.train.names) == good

    return use
