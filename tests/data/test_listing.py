"""Which files are pictures, in which order, under which names; tables of them."""

from __future__ import annotations

import builtins
import csv
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pictures import HEIC_HEAD, SAVING, encoded, photo

from converge_to_surprise.data import listing as listing_module
from converge_to_surprise.data.formats import UNREAD
from converge_to_surprise.data.listing import (
    Listing,
    list_folder,
    list_paths,
    list_table,
    looks_like_classes,
    with_folder_classes,
)


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


class TestFolder:
    def test_every_extension_in_any_case_and_nothing_else(self, tmp_path: Path) -> None:
        good = ["a.jpg", "b.JPEG", "c.Png", "d.webp", "e.bmp", "f.tif", "g.TIFF", "h.gif", "i.JFIF", "j.jpe"]
        good += ["k.heic", "l.HEIF", "m.avif"]
        touch(tmp_path, *good, "notes.txt", "png", "x.png.txt", "Thumbs.db", "z.npy", "IMG_1.MOV", "y.unknown")
        assert list_folder(tmp_path).names == sorted(good)

    def test_pictures_that_are_not_read_are_listed(self, tmp_path: Path) -> None:
        names = [f"x{ending}" for ending in UNREAD]
        assert {"x.cr2", "x.nef", "x.dng", "x.svg", "x.psd", "x.jp2", "x.ico", "x.jxl", "x.tga", "x.ppm"} <= set(names)
        touch(tmp_path, *names)
        assert list_folder(tmp_path).names == sorted(names)

    @pytest.mark.parametrize("name", ["IMG_0001", "x.jpg_large", "x.unknown", "x."])
    @pytest.mark.parametrize("kind", [*SAVING, "heic head", "mif1", "raw", "psd", "jxl"])
    def test_other_names_are_looked_into(self, tmp_path: Path, name: str, kind: str) -> None:
        heads = {
            "heic head": HEIC_HEAD, "mif1": HEIC_HEAD.replace(b"ftypheic", b"ftypmif1"),
            "raw": b"FUJIFILMCCD-RAW ", "psd": b"8BPS\0\1", "jxl": b"\0\0\0\x0cJXL \r\n\x87\n",
        }  # fmt: skip
        (tmp_path / name).write_bytes(heads[kind] if kind in heads else encoded(photo(8, 8), kind))
        assert list_folder(tmp_path).names == [name]

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"hello",
            b"BM is how this text begins, and it goes on for a while",
            b"\0\0\0\x14ftypqt  \0\0\0\0qt  ",
            b"\0\0\0\x20ftypisom\0\0\2\0isomiso2avc1mp41",
            b"\0\0\0\x1cftyp",
            b"\0\0\0\x1cftyphe",
            b"RIFF\0\0\0\0WAVEfmt ",
            b"\0\0\x08\3\0\0\0\5",
        ],
    )
    def test_other_names_without_a_picture(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "x").write_bytes(content)
        assert len(list_folder(tmp_path)) == 0

    def test_looking_is_cheap(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("a.png", "b.heic", "c.nef", "d.txt", "e.MP4", "f.csv", "g.unknown", "h"):
            (tmp_path / name).write_bytes(encoded(photo(30, 30), "png"))
        opened: list[str] = []
        real = listing_module._head

        def noted(path: str) -> bytes:
            opened.append(os.path.basename(path))
            head = real(path)
            assert len(head) <= 32
            return head

        monkeypatch.setattr(listing_module, "_head", noted)
        assert list_folder(tmp_path).names == ["a.png", "b.heic", "c.nef", "g.unknown", "h"]
        assert sorted(opened) == ["g.unknown", "h"]

    def test_a_pipe_without_an_ending_is_not_opened(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        os.mkfifo(tmp_path / "pipe")  # opening it would wait for ever
        monkeypatch.setattr(listing_module, "_head", Mock(side_effect=AssertionError))
        assert len(list_folder(tmp_path)) == 0

    def test_sub_folders_in_a_stable_order(self, tmp_path: Path) -> None:
        touch(tmp_path, "b/2.png", "b/10.png", "a/deep/er/x.png", "z.png", "B.png")
        listing = list_folder(tmp_path)
        assert listing.names == ["B.png", "a/deep/er/x.png", "b/10.png", "b/2.png", "z.png"]
        assert listing.paths == [str(tmp_path / name) for name in listing.names]
        assert listing.classes is None
        assert len(listing) == 5

    def test_hidden_things_and_copies_of_the_system(self, tmp_path: Path) -> None:
        touch(tmp_path, ".x.png", ".git/y.png", "__MACOSX/z.png", "a/._b.jpg", "@eaDir/c.jpg", "a/b.jpg")
        assert list_folder(tmp_path).names == ["a/b.jpg"]

    def test_a_hidden_folder_may_be_asked_for(self, tmp_path: Path) -> None:
        touch(tmp_path, ".pictures/x.png")
        assert list_folder(tmp_path / ".pictures").names == ["x.png"]

    def test_links_are_followed(self, tmp_path: Path) -> None:
        touch(tmp_path, "outside/x.png", "in/y.png")
        (tmp_path / "in" / "link").symlink_to(tmp_path / "outside")
        (tmp_path / "in" / "z.png").symlink_to("y.png")
        assert list_folder(tmp_path / "in").names == ["link/x.png", "y.png", "z.png"]

    def test_links_in_a_circle_end(self, tmp_path: Path) -> None:
        touch(tmp_path, "a/x.png", "b/y.png")
        (tmp_path / "a" / "up").symlink_to(tmp_path)
        (tmp_path / "a" / "other").symlink_to("../b")
        (tmp_path / "b" / "other").symlink_to("../a")
        (tmp_path / "0").symlink_to("b")  # a folder is found under its own name, whatever comes first
        assert list_folder(tmp_path).names == ["a/x.png", "b/y.png"]

    def test_a_folder_with_the_name_of_a_picture(self, tmp_path: Path) -> None:
        touch(tmp_path, "x.png/y.png")
        assert list_folder(tmp_path).names == ["x.png/y.png"]

    def test_what_is_broken_is_listed(self, tmp_path: Path) -> None:
        (tmp_path / "x.png").symlink_to("nowhere.png")
        (tmp_path / "self.jpg").symlink_to("self.jpg")
        (tmp_path / "album").symlink_to("nowhere")
        (tmp_path / "notes.txt").symlink_to("nowhere.txt")
        os.mkfifo(tmp_path / "pipe.png")
        assert list_folder(tmp_path).names == ["album", "pipe.png", "self.jpg", "x.png"]

    def test_a_folder_that_may_not_be_read_is_listed(self, locked: Path) -> None:
        listing = list_folder(locked)
        assert listing.names == ["a/x.png", "a/y.png", "b/x.png", "b/y.png", "closed"]
        assert looks_like_classes(listing) == 2
        assert list_folder(locked / "closed").names == ["."]

    @pytest.fixture
    def locked(self) -> Iterator[Path]:
        with TemporaryDirectory() as name:
            place = Path(name)
            place.chmod(0o755)
            touch(place, "closed/hidden.png", "a/x.png", "a/y.png", "b/x.png", "b/y.png")
            (place / "closed").chmod(0)
            root = os.geteuid() == 0
            if root:
                os.seteuid(65534)
            try:
                yield place
            finally:
                if root:
                    os.seteuid(0)
                (place / "closed").chmod(0o700)

    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"nowhere is not a folder"):
            list_folder(tmp_path / "nowhere")
        assert len(list_folder(tmp_path)) == 0


class TestNames:
    @pytest.mark.parametrize(
        ("raw", "shown"),
        [
            (b"new\nline.png", "new\nline.png"),
            (b'a "quote", comma.png', 'a "quote", comma.png'),
            (b"\xff\xfe.png", "\\xff\\xfe.png"),
            ("grün ☃.png".encode(), "grün ☃.png"),
            (b" lead.png", " lead.png"),
            (b"=1+1.png", "=1+1.png"),
            (b"-rf.png", "-rf.png"),
        ],
    )
    def test_odd_characters(self, tmp_path: Path, raw: bytes, shown: str) -> None:
        with open(os.path.join(os.fsencode(tmp_path), raw), "wb") as file:
            file.write(b"found")
        listing = list_folder(tmp_path)
        assert listing.names == [shown]
        assert Path(listing.paths[0]).read_bytes() == b"found"

    # Any bytes but / and the end of a string; not . and .., which are folders.
    @given(st.binary(min_size=1, max_size=60).filter(lambda raw: not set(raw) & {0, 47}))
    def test_every_name_survives_a_csv_file(self, raw: bytes) -> None:
        name = list_paths([os.fsdecode(raw)]).names[0]
        file = io.StringIO(newline="")
        csv.writer(file).writerow([name, "reason"])
        back = file.getvalue().encode("utf-8").decode("utf-8")
        assert next(csv.reader(io.StringIO(back, newline=""))) == [name, "reason"]

    def test_names_that_are_unicode_stay(self) -> None:
        assert list_paths(["a/ü.png", Path("b.png")]).names == ["a/ü.png", "b.png"]
        assert list_paths(["a.png"]).paths == [str(Path.cwd() / "a.png")]


class TestClasses:
    def test_folders_as_classes(self, tmp_path: Path) -> None:
        touch(tmp_path, "cat/1.png", "cat/2.png", "dog/a/1.png", "dog/b/2.png", "notes.txt")
        listing = list_folder(tmp_path)
        assert looks_like_classes(listing) == 2
        assert listing.classes is None
        assert with_folder_classes(listing).classes == ["cat", "cat", "dog", "dog"]

    def test_only_pictures_that_are_read_count(self, tmp_path: Path) -> None:
        touch(tmp_path, "cat/1.png", "cat/2.png", "dog/1.png", "dog/2.heic", "folder.ico", "logo.svg", "raw/1.nef")
        assert looks_like_classes(list_folder(tmp_path)) == 2
        (tmp_path / "loose").write_bytes(encoded(photo(8, 8), "png"))
        assert looks_like_classes(list_folder(tmp_path)) == 0
        (tmp_path / "loose").rename(tmp_path / "loose.ico")
        assert looks_like_classes(list_folder(tmp_path)) == 0

    @pytest.mark.parametrize(
        ("names", "why"),
        [
            (["cat/1.png", "cat/2.png"], "has 1 folders with pictures"),
            (["cat/1.png", "cat/2.png", "dog/1.png"], "has 2 folders with pictures, and a single picture in 'dog'"),
            (["cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png", "x.png"], "has 1 pictures outside of its folders"),
            (["1.png", "2.png"], "has 2 pictures outside of its folders"),
        ],
    )
    def test_what_does_not_look_like_classes(self, tmp_path: Path, names: list[str], why: str) -> None:
        touch(tmp_path, *names)
        listing = list_folder(tmp_path)
        assert looks_like_classes(listing) == 0
        with pytest.raises(ValueError, match="labels is 'from-folders', but") as refused:
            with_folder_classes(listing)
        assert why in str(refused.value)


def write_table(path: Path, columns: dict[str, list[Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    return path


class TestTables:
    @pytest.mark.parametrize("file", ["t.csv", "t.tsv", "t.parquet"])
    @pytest.mark.parametrize("column", ["path", "File", "filename", "image"])
    def test_paths_start_at_the_table(self, tmp_path: Path, file: str, column: str) -> None:
        listing = list_table(write_table(tmp_path / file, {"id": [1, 2], column: ["sub/b.png", "/abs/a.png"]}))
        assert listing.paths == [str(tmp_path / "sub/b.png"), "/abs/a.png"]
        assert listing.names == ["sub/b.png", "/abs/a.png"]
        assert listing.classes is None

    @pytest.mark.parametrize("file", ["t.csv", "t.parquet"])
    @pytest.mark.parametrize("column", ["label", "Class", "target"])
    def test_labels(self, tmp_path: Path, file: str, column: str) -> None:
        listing = list_table(write_table(tmp_path / file, {"path": ["a", "b"], column: [3, 10]}))
        assert listing.classes == ["3", "10"]

    @pytest.mark.parametrize("file", ["t.csv", "t.parquet"])
    def test_columns_that_are_missing(self, tmp_path: Path, file: str) -> None:
        with pytest.raises(
            ValueError, match=r"has the columns \['id', 'picture'\]; one of them must be called path, fi"
        ):
            list_table(write_table(tmp_path / file, {"id": [1], "picture": ["a.png"]}))

    @pytest.mark.parametrize("file", ["t.csv", "t.parquet"])
    def test_rows_without_a_label(self, tmp_path: Path, file: str) -> None:
        with pytest.raises(ValueError, match=r"row 2 of .* has no label"):
            list_table(write_table(tmp_path / file, {"path": ["a", "b"], "label": ["x", None]}))

    @pytest.mark.parametrize("file", ["t.csv", "t.parquet"])
    def test_rows_without_a_path(self, tmp_path: Path, file: str) -> None:
        listing = list_table(write_table(tmp_path / file, {"path": ["a.png", None, "c.png"], "x": [1, 2, 3]}))
        assert listing.names == ["a.png", "row 2", "c.png"]

    def test_the_forms_of_csv_files(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        for content, names in (
            (b"\xef\xbb\xbfpath\r\na.png\r\nb.png\r\n", ["a.png", "b.png"]),
            (b"label;path\nx;a,b.png\n\ny;c.png\n", ["a,b.png", "c.png"]),
            (b'n, path\n1, "a ""b"", c.png"\n', ['a "b", c.png']),
            (b'path\n"two\nlines.png"\n', ["two\nlines.png"]),
            (b"path\n\xff.png\n", ["\\xff.png"]),
            (b"path,label\nshort.png,x\n", ["short.png"]),
        ):
            path.write_bytes(content)
            listing = list_table(path)
            assert listing.names == names
        assert isinstance(listing, Listing)

    def test_bytes_that_are_no_unicode_lead_to_the_file(self, tmp_path: Path) -> None:
        with open(os.path.join(os.fsencode(tmp_path), b"\xff.png"), "wb") as file:
            file.write(b"found")
        (tmp_path / "t.csv").write_bytes(b"path\n\xff.png\n")
        assert Path(list_table(tmp_path / "t.csv").paths[0]).read_bytes() == b"found"

    @pytest.mark.parametrize("file", ["t.csv", "t.parquet"])
    def test_damaged_tables(self, tmp_path: Path, file: str) -> None:
        (tmp_path / file).write_bytes(b"")
        with pytest.raises(ValueError, match=file):
            list_table(tmp_path / file)
        (tmp_path / file).write_bytes(bytes(range(256)) * 10)
        with pytest.raises(ValueError, match=file):
            list_table(tmp_path / file)
        with pytest.raises(ValueError, match="cannot read"):
            list_table(tmp_path / f"none-{file}")

    def test_a_column_that_holds_no_paths(self, tmp_path: Path) -> None:
        path = write_table(tmp_path / "t.parquet", {"image": [{"bytes": b"x"}]})
        with pytest.raises(ValueError, match=r"the column 'image' of .* holds struct<.*>, not paths"):
            list_table(path)

    def test_parquet_without_pyarrow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write_table(tmp_path / "t.parquet", {"path": ["a.png"]})
        real = builtins.__import__

        def without(name: str, *args: Any, **kwargs: Any) -> Any:
            if name.startswith("pyarrow"):
                raise ImportError(name)
            return real(name, *args, **kwargs)

        monkeypatch.setattr(builtins, "__import__", without)
        for name in [name for name in sys.modules if name.startswith("pyarrow")]:
            monkeypatch.delitem(sys.modules, name)
        with pytest.raises(ValueError, match=r"needs pyarrow: pip install 'converge-to-surprise\[tables\]'"):
            list_table(path)
