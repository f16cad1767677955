"""Single files of a sort: links, journals, other file systems, and undoing, without a trained model."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.picture_run import table
from support.sorting import NoPictures, picture, quick_sort, quick_undo, reasons, tree

from converge_to_surprise.runs import place_file
from converge_to_surprise.runs import sort_journal as journal


@pytest.fixture(params=["real", "pretended"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on another file system than tmp_path, as far as renaming and linking can tell."""
    if request.param == "real":
        memory = Path("/dev/shm")
        if not os.access(memory, os.W_OK) or memory.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("there is one file system only")
        with tempfile.TemporaryDirectory(dir=memory) as name:
            yield Path(name)
        return
    place = tmp_path / "elsewhere"
    place.mkdir()

    def guarded(real: Callable[..., None]) -> Callable[..., None]:
        def act(old: Any, new: Any, **options: Any) -> None:
            if Path(old).is_relative_to(place) != Path(new).is_relative_to(place):
                raise OSError(errno.EXDEV, "Invalid cross-device link", str(old), None, str(new))
            real(old, new, **options)

        return act

    monkeypatch.setattr(os, "rename", guarded(os.rename))
    monkeypatch.setattr(os, "link", guarded(os.link))
    yield place


def test_links_of_every_kind(tmp_path: Path) -> None:
    inbox, outside = tmp_path / "inbox", tmp_path / "outside"
    for path in (inbox / "sub" / "free.png", inbox / "sub" / "aimed.png", inbox / "named.png", outside / "x.png"):
        picture(path)
    picture(inbox / ".hidden" / "h.png")
    (inbox / "to-outside.png").symlink_to("../outside/x.png")
    (inbox / "to-inside.png").symlink_to("sub/aimed.png")
    (inbox / "chain.png").symlink_to("to-inside.png")
    (inbox / "latest.txt").symlink_to("named.png")  # not listed: its name is not that of a picture
    (inbox / "newest").symlink_to("sub/aimed.png")  # listed by its content
    (inbox / "dangling.png").symlink_to("nowhere.png")
    (inbox / "folder-inside").symlink_to("sub")
    (inbox / "folder-outside").symlink_to(outside)
    (inbox / "folder-hidden").symlink_to(".hidden")
    (inbox / "sub" / "circle").symlink_to("..")
    os.link(inbox / "sub" / "free.png", inbox / "second-name.png")
    before, away = tree(inbox), tree(outside)
    skipped = quick_sort(inbox, tmp_path / "out")
    assert tree(outside) == away
    moved = {"sub/free.png", "second-name.png"}
    assert tree(inbox) == {name: what for name, what in before.items() if name not in moved}
    for link in ("to-outside.png", "to-inside.png", "chain.png", "latest.txt", "newest", "folder-inside"):
        assert (inbox / link).exists(), f"{link} dangles"
    assert set(skipped) == {
        "to-outside.png", "to-inside.png", "chain.png", "dangling.png", "sub/aimed.png", "named.png",
        "folder-outside/x.png", "folder-hidden/h.png", "newest",
    }  # fmt: skip
    assert skipped == reasons(tmp_path / "out" / "quarantine.csv")
    assert "would break" in skipped["named.png"]
    assert skipped["to-inside.png"] == "it is a link; only files are moved"
    assert quick_undo(tmp_path / "out") == {}
    assert tree(inbox) == before
    assert (inbox / "second-name.png").samefile(inbox / "sub" / "free.png")


def test_a_source_that_is_itself_a_link_is_moved_from(tmp_path: Path) -> None:
    picture(tmp_path / "real" / "a.png")
    (tmp_path / "inbox").symlink_to("real")
    assert quick_sort(tmp_path / "inbox", tmp_path / "out") == {}
    assert not list((tmp_path / "real").iterdir())
    assert quick_undo(tmp_path / "out") == {}
    assert (tmp_path / "real" / "a.png").exists()


def test_of_a_table_only_files_under_its_folder_are_moved(tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    for path in (lists / "in" / "a.png", lists / "b.png", tmp_path / "c.png", tmp_path / "far" / "d.png"):
        picture(path)
    (lists / "far").symlink_to("../far")
    rows = ["path", "in/a.png", "b.png", "../c.png", str(tmp_path / "c.png"), "far/d.png", "in/a.png"]
    (lists / "all.csv").write_text("\n".join(rows) + "\n")
    skipped = quick_sort(lists / "all.csv", lists / "out")
    assert {Path(row["from"]).name for row in table(lists / "out" / "sorted.csv")} == {"a.png", "b.png"}
    assert set(skipped) == {"../c.png", str(tmp_path / "c.png"), "far/d.png", "in/a.png"}
    assert skipped["in/a.png"] == "it is listed more than once"
    assert (tmp_path / "c.png").exists()
    assert (tmp_path / "far" / "d.png").exists()
    assert quick_undo(lists / "out") == {}
    assert (lists / "in" / "a.png").exists()


@settings(max_examples=60)
@given(st.data())
def test_moving_and_undoing_any_tree_changes_nothing(data: st.DataObject) -> None:
    """Trees of files, hard links, links to anything and folders, in and around the source."""
    folders = ["in", "in/a", "in/a/b", "in/.c", "away", "away/d"]
    names = st.sampled_from(["p.png", "q.png", "r.jpg", "note", ".h.png", "\udcff.png", "P.PNG", "l"])
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for folder in folders:
            (root / folder).mkdir()
        for _ in range(data.draw(st.integers(1, 12))):
            path = root / data.draw(st.sampled_from(folders)) / data.draw(names)
            there = sorted(str(found) for found in root.rglob("*"))
            kind = data.draw(st.sampled_from(["file", "file", "link", "hardlink"]))
            if os.path.lexists(path):
                continue
            if kind == "link":
                aim = data.draw(st.sampled_from([*there, str(root / "nowhere.png")]))
                path.symlink_to(aim if data.draw(st.booleans()) else os.path.relpath(aim, path.parent))
            elif kind == "hardlink" and (files := [p for p in there if os.path.isfile(p) and not os.path.islink(p)]):
                os.link(data.draw(st.sampled_from(files)), path)
            else:
                with path.open("wb") as file:
                    Image.fromarray(np.full((8, 8), len(there), np.uint8)).save(file, "PNG")
        before, away = tree(root), tree(root / "away")
        alive = {path for path in (root / "in").rglob("*") if path.is_symlink() and path.exists()}
        with contextlib.suppress(NoPictures):
            quick_sort(root / "in", root / "out")
        assert tree(root / "away") == away
        assert all(link.exists() for link in alive)
        if (root / "out").exists():
            assert quick_undo(root / "out") == {}
        assert tree(root) == before


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda lines: lines[:-3], "its list of files is not complete"),
        (lambda lines: [lines[0], *lines[2:]], "it lists 1 files in place of 2"),
        (lambda lines: [lines[0].replace("/out", "/other"), *lines[1:]], "move the folder back there first"),
        (lambda lines: [lines[0], lines[1].replace('"0/', '"../'), *lines[2:]], "is not FOLDER/NAME"),
        (lambda lines: [lines[0], lines[1].replace('"/', '"'), *lines[2:]], "is not an absolute path"),
        (lambda lines: ["[]\n", *lines[1:]], "cannot use"),
        (lambda lines: [lines[0].replace('"version": 1', '"version": 2'), *lines[1:]], "that this version can undo"),
    ],
)
def test_a_damaged_or_foreign_journal_is_refused(
    change: Callable[[list[str]], list[str]], complaint: str, tmp_path: Path
) -> None:
    picture(tmp_path / "in" / "a.png")
    picture(tmp_path / "in" / "b.png")
    quick_sort(tmp_path / "in", tmp_path / "out")
    path = tmp_path / "out" / journal.JOURNAL
    before = tree(tmp_path / "in")
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    with pytest.raises(ValueError, match=complaint):
        quick_undo(tmp_path / "out")
    assert tree(tmp_path / "in") == before
    assert len(list((tmp_path / "out").rglob("*.png"))) == 2


@pytest.mark.parametrize("left", [0, 10, 250, 10_000], ids=["empty", "half a head", "half a list", "no folders yet"])
def test_a_sort_killed_before_it_moved_anything_is_undone(left: int, tmp_path: Path) -> None:
    picture(tmp_path / "in" / "a.png")
    picture(tmp_path / "in" / "b.png")
    before = tree(tmp_path)
    quick_sort(tmp_path / "in", tmp_path / "other")
    text = (tmp_path / "other" / journal.JOURNAL).read_text().replace(str(tmp_path / "other"), str(tmp_path / "out"))
    assert quick_undo(tmp_path / "other") == {}
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / journal.JOURNAL).write_text(text[:left])
    with pytest.raises(ValueError, match="cts sort --undo"):
        quick_sort(tmp_path / "in", tmp_path / "out")
    assert quick_undo(tmp_path / "out") == {}
    assert tree(tmp_path) == before


def test_a_sort_that_fails_before_it_moved_anything_leaves_nothing(tmp_path: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    picture(tmp_path / "in" / "a.png")
    before = tree(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        quick_sort(tmp_path / "in", tmp_path / "out", between=stop)
    assert tree(tmp_path) == before


def test_putting_back_never_takes_a_name_that_exists(elsewhere: Path, tmp_path: Path) -> None:
    """Also if the name was free a moment before."""
    for target in (tmp_path / "from.png", elsewhere / "from.png"):
        target.write_bytes(b"sorted")
        origin = tmp_path / "to.png"
        origin.write_bytes(b"mine")
        with pytest.raises(place_file.Skip, match="exists"):
            place_file.put_back(target, str(origin), tmp_path / "part")
        assert (target.read_bytes(), origin.read_bytes()) == (b"sorted", b"mine")


def test_files_that_vanish_or_change_before_they_are_moved_are_skipped(tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    gone, changed, swapped, good = (picture(inbox / f"{name}.png") for name in ("gone", "changed", "swapped", "good"))

    def meanwhile() -> None:
        gone.unlink()
        changed.write_bytes(b"another picture")
        swapped.unlink()
        swapped.symlink_to(good)

    skipped = quick_sort(inbox, tmp_path / "out", between=meanwhile)
    assert skipped == {
        "gone.png": place_file.GONE,
        "changed.png": place_file.CHANGED,
        "swapped.png": place_file.CHANGED,
    }
    assert changed.read_bytes() == b"another picture"
    assert swapped.is_symlink()
    assert reasons(tmp_path / "out" / "quarantine.csv") == skipped
    assert quick_undo(tmp_path / "out") == {}
    assert good.exists()
    assert not gone.exists()


def test_undo_removes_only_what_is_unchanged_and_not_the_last(tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    for name in "abcde":
        picture(inbox / f"{name}.png")
    before = tree(inbox)
    for how in ("copy", "link", "hardlink"):
        into = tmp_path / how
        quick_sort(inbox, into, how)
        folder = into / "0"
        (folder / "note.txt").write_text("mine")
        replaced, orphan = folder / "a.png", inbox / "b.png"
        content = replaced.read_bytes()
        replaced.unlink()
        replaced.write_bytes(content)  # the same size and bytes, but another time and inode
        if how == "copy":
            os.utime(folder / "c.png", ns=(0, 12345))
        if how != "link":
            orphan.rename(tmp_path / "b.png")
        expected = {"0/a.png"} | ({"0/c.png"} if how == "copy" else set()) | ({"0/b.png"} if how != "link" else set())
        assert set(quick_undo(into)) == expected
        assert {path.name for path in folder.glob("*.png")} == {name[2:] for name in expected}
        for name in expected - {"0/b.png"}:
            (into / name).unlink()
        if how != "link":
            (tmp_path / "b.png").rename(orphan)
        assert quick_undo(into) == {}
        assert [path.name for path in into.rglob("*")] == ["0", "note.txt"]  # a user's file is not ours to remove
        assert tree(inbox) == before


def test_a_copy_that_is_the_same_in_both_places_is_not_kept_twice(tmp_path: Path) -> None:
    """A kill across file systems may fall between the copy and the removal of the file."""
    origin = picture(tmp_path / "in" / "a.png")
    quick_sort(tmp_path / "in", tmp_path / "out")
    shutil.copy2(tmp_path / "out" / "0" / "a.png", origin)
    assert quick_undo(tmp_path / "out") == {}
    assert origin.exists()


def test_moving_to_another_file_system_and_back(elsewhere: Path, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    for number in range(5):
        picture(inbox / f"{number}.png", number)
    before = tree(inbox)
    assert quick_sort(inbox, elsewhere / "out") == {}
    assert tree(inbox) == {}
    assert not (elsewhere / "out" / place_file.PART).exists()
    assert quick_undo(elsewhere / "out") == {}
    assert tree(inbox) == before
    assert list(elsewhere.iterdir()) == []
    skipped = quick_sort(inbox, elsewhere / "hard", "hardlink")
    assert all("use --how copy or link" in reason for reason in skipped.values())
    assert len(skipped) == 5


def test_a_file_that_cannot_be_removed_is_not_left_twice(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = picture(tmp_path / "in" / "a.png")

    real = os.unlink

    def guarded(path: Any, **options: Any) -> None:
        if Path(path) == origin:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        real(path, **options)

    monkeypatch.setattr(os, "unlink", guarded)
    assert quick_sort(origin.parent, elsewhere / "out") == {"a.png": "cannot move it: Permission denied"}
    assert origin.exists()
    assert not list((elsewhere / "out").rglob("*.png"))


def test_a_full_disk_stops_the_sort_and_undo_puts_everything_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = tmp_path / "in"
    for number in range(5):
        picture(inbox / f"{number}.png", number)
    before = tree(inbox)
    real, calls = place_file.place, []

    def full(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 4:
            raise OSError(errno.ENOSPC, "No space left on device", arguments[0])
        real(*arguments)

    monkeypatch.setattr("converge_to_surprise.runs.sort.place", full)
    with pytest.raises(ValueError, match=r"No space left on device .*`cts sort --undo .*` puts everything back"):
        quick_sort(inbox, tmp_path / "out")
    assert len(list(inbox.iterdir())) == 2
    with pytest.raises(ValueError, match=r"holds a sort that was interrupted: `cts sort --undo"):
        quick_sort(inbox, tmp_path / "out")
    assert quick_undo(tmp_path / "out") == {}
    assert tree(inbox) == before
