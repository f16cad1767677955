"""Sorting pictures into folders: what is taken and what is left, undoing, and kills, on real files."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import torch
from faults import sorting
from faults.child import start
from faults.harness import Loss, Whole
from faults.ward import Tally, Ward
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.picture_run import call, fit_pictures, make_pictures, refused, table
from torch import Tensor

from converge_to_surprise.data.source import Source
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model.cluster_model import Model
from converge_to_surprise.runs import place_file
from converge_to_surprise.runs import sort_journal as journal
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.sort import SortOptions, carry_out, claimed, make_plan
from converge_to_surprise.runs.sort_undo import undo


class NoPictures(Exception):  # noqa: N818
    """There is nothing to sort."""


Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Path:
    return fit_pictures(pictures, tmp_path_factory.mktemp("runs") / "run", tmp_path_factory.getbasetemp() / "cache")


@pytest.fixture
def own(pictures: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pictures, tmp_path / "own"))


def tree(folder: Path) -> dict[str, str]:
    """Every file, link and folder below a folder: content and time of files, text of links."""
    found = dict.fromkeys((str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_dir()), "folder")
    return found | sorting.contents(folder)


def reasons(path: Path) -> dict[str, str]:
    return {row["file"]: row["reason"] for row in table(path)}


class Found(NamedTuple):
    cluster: Tensor
    confidence: Tensor


@dataclass
class Quick:
    """In place of a model: the cluster is read off the first pixel."""

    n_clusters: int = 3
    shape: tuple[int, int, int] = (1, 8, 8)
    annotations: None = None

    @property
    def cluster_names(self) -> list[str]:
        return [str(number) for number in range(self.n_clusters)]

    def predict(self, images: Tensor) -> Iterator[Found]:
        if len(images):
            yield Found(images[:, 0, 0, 0].long() % self.n_clusters, torch.ones(len(images)))


def quick_sort(
    source: Path, into: Path, how: place_file.How = "move", between: Callable[[], object] = lambda: None
) -> dict[str, str]:
    """Sort without a trained model; ``between`` happens when all is planned. Returns what was skipped, and why."""
    try:
        images = Source.open(str(source), (1, 8, 8), "train", None)
    except ValueError as error:
        raise NoPictures(str(error)) from None
    options = SortOptions(into, how, threads=1)
    with claimed(into):
        plan = make_plan(cast(Model, Quick()), images, options, lambda done, total: None)
        between()
        done = carry_out(plan, images, options, lambda done, total: None)
    assert done.seen == len(images) == len(done.placed) + len(done.skipped)
    return {file: reason for file, reason, _ in done.skipped}


def quick_undo(into: Path) -> dict[str, str]:
    """Returns what was kept, and why."""
    return {file: reason for file, reason, _ in undo(into, lambda done, total: None).kept}


def picture(path: Path, value: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8), value, np.uint8)).save(path)
    return path


# What goes where


def test_sorting_copies_links_and_moves_and_undoing_each(
    run: Path, pictures: Path, own: Path, tmp_path: Path, capsys: Capture
) -> None:
    labels = {row["path"]: int(row["cluster"]) for row in table(run / "labels.csv")}
    before = tree(own)
    for how in ("copy", "link", "hardlink", "move"):
        into = tmp_path / how
        assert call("sort", run, own, "--into", into, "--how", how) == 0
        assert "62 seen, 60 sorted into" in capsys.readouterr().out
        placed = {row["from"]: into / row["to"] for row in table(into / "sorted.csv")}
        assert len(placed) == 60
        for origin, target in placed.items():
            name = os.path.relpath(origin, own)
            assert target.parent.name == str(labels[name])
            assert target.is_symlink() == (how == "link")
            assert target.read_bytes() == (pictures / name).read_bytes()
            assert os.path.exists(origin) == (how != "move")
            assert (target.stat().st_nlink > 1) == (how == "hardlink") or how in ("link", "move")
        assert set(reasons(into / "quarantine.csv")) == {"class 0/empty.png", "class 1/text.jpg"}
        if how == "move":
            assert {path.name for path in own.rglob("*") if path.is_file()} == {"empty.png", "text.jpg"}
        assert call("sort", "--undo", into) == 0
        assert "60 files" in capsys.readouterr().out
        assert tree(own) == before
        assert not into.exists()


def test_sorting_pictures_of_the_same_name_and_arrays(run: Path, tmp_path: Path) -> None:
    images, _ = striped_images(4)
    for number, image in enumerate(images):
        (tmp_path / "in" / str(number)).mkdir(parents=True)
        Image.fromarray(image[0].numpy()).save(tmp_path / "in" / str(number) / "same.png")
    assert call("sort", run, tmp_path / "in", "--into", tmp_path / "out", "--min-confidence", 1) == 0
    names = sorted(path.name for path in (tmp_path / "out").rglob("*.png"))
    assert names == ["same.png", "same~2.png", "same~3.png", "same~4.png"]
    np.save(tmp_path / "array.npy", images.numpy())
    array = tmp_path / "array"
    assert call("sort", run, tmp_path / "array.npy", "--into", array) == 0
    for path in array.rglob("*.png"):
        assert (np.asarray(Image.open(path)) == images[int(path.stem), 0].numpy()).all()
    assert len(list(array.rglob("*.png"))) == 4
    edited = next(array.rglob("*.png"))
    edited.write_bytes(b"mine")
    assert call("sort", "--undo", array) == 1
    assert list(array.rglob("*.png")) == [edited]


def test_a_dry_run_changes_nothing(run: Path, own: Path, tmp_path: Path, capsys: Capture) -> None:
    (own / "link.png").symlink_to(min(own.glob("class 1/*.png")))
    before = tree(tmp_path)
    assert call("sort", run, own, "--into", tmp_path / "out", "--how", "move", "--dry-run") == 0
    shown = capsys.readouterr().out
    assert tree(tmp_path) == before
    assert "63 seen; would move 59 into" in shown
    assert "and skip 4; nothing was changed" in shown
    assert "skipped: link.png: it is a link" in shown
    assert "skipped: class 0/empty.png: " in shown
    counts = [int(line.split(": ")[1]) for line in shown.splitlines() if line.startswith("  ") and line[2].isdigit()]
    assert sum(counts) == 59
    first = next(line for line in shown.splitlines() if " -> " in line).strip().split(" -> ")
    assert (own / first[0]).exists()
    assert first[1].startswith(str(tmp_path / "out"))
    assert "and 49 more" in shown


# What links lead to stays where it is


def test_pictures_in_a_linked_folder_stay(run: Path, tmp_path: Path) -> None:
    for number in range(4):
        picture(tmp_path / "a" / f"{number}.png", 60 * number)
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "old").symlink_to("../a")
    picture(tmp_path / "inbox" / "new.png")
    before = tree(tmp_path / "a")
    assert call("sort", run, tmp_path / "inbox", "--into", tmp_path / "out", "--how", "move") == 0
    assert tree(tmp_path / "a") == before
    assert [row["from"] for row in table(tmp_path / "out" / "sorted.csv")] == [str(tmp_path / "inbox" / "new.png")]
    skipped = reasons(tmp_path / "out" / "quarantine.csv")
    assert set(skipped) == {f"old/{number}.png" for number in range(4)}
    assert all("linked folder" in reason for reason in skipped.values())


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


# Refusals


def test_the_place_for_sorted_pictures_must_be_apart(run: Path, own: Path, tmp_path: Path, capsys: Capture) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    (own / "more").symlink_to(linked)
    (tmp_path / "alias").symlink_to(own)
    before = tree(tmp_path)
    for into in (own / "out", tmp_path / "alias" / "out", own / "class 0" / ".." / "out", linked / "deep" / "out"):
        text = refused(capsys, "sort", run, own, "--into", into)
        assert text.startswith(f"--into is {into}, which lies within {own}")
    assert tree(tmp_path) == before
    text = refused(capsys, "sort", run, own, "--into", tmp_path)
    assert "exists and is not empty" in text
    (tmp_path / "file").touch()
    assert "is not a folder" in refused(capsys, "sort", run, own, "--into", tmp_path / "file")


def test_mistakes(run: Path, own: Path, tmp_path: Path, capsys: Capture) -> None:
    assert "needs RUN, SOURCE and --into" in refused(capsys, "sort", run, own)
    assert "needs RUN, SOURCE and --into" in refused(capsys, "sort", "--into", tmp_path / "x")
    assert "takes no RUN, SOURCE" in refused(capsys, "sort", run, own, "--undo", tmp_path / "x")
    assert "there is no such folder" in refused(capsys, "sort", "--undo", tmp_path / "x")
    assert "no sort was made there" in refused(capsys, "sort", "--undo", own)
    np.save(tmp_path / "good.npy", np.zeros((5, 8, 8), np.uint8))
    text = refused(capsys, "sort", run, tmp_path / "good.npy", "--into", tmp_path / "x", "--how", "move")
    assert "can only be copied" in text
    assert not (tmp_path / "x").exists()
    assert call("sort", run, own, "--into", tmp_path / "out") == 0
    text = refused(capsys, "sort", run, own, "--into", tmp_path / "out")
    assert "holds a sort that is finished" in text
    assert f"`cts sort --undo {tmp_path / 'out'}`" in text


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


# Files that change meanwhile


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


def test_undo_overwrites_nothing(run: Path, own: Path, tmp_path: Path, capsys: Capture) -> None:
    before = tree(own)
    out = tmp_path / "out"
    assert call("sort", run, own, "--into", out, "--how", "move") == 0
    rows = table(out / "sorted.csv")
    taken, lost = Path(rows[0]["from"]), out / rows[1]["to"]
    taken.write_bytes(b"new")
    kept = (tmp_path / "kept", lost.rename(tmp_path / "kept"))[0]
    shutil.rmtree(Path(rows[-1]["from"]).parent)
    capsys.readouterr()
    assert call("sort", "--undo", out) == 1
    shown = capsys.readouterr().out
    assert "58 files are where they were" in shown
    assert "2 files are still in" in shown
    assert taken.read_bytes() == b"new"
    assert (out / rows[0]["to"]).exists()
    assert set(reasons(out / "kept.csv")) == {rows[0]["to"], rows[1]["to"]}
    taken.unlink()
    kept.rename(lost)
    assert call("sort", "--undo", out) == 0
    emptied = {name for name, what in before.items() if name.endswith(("empty.png", "text.jpg"))}
    assert {name: what for name, what in before.items() if name not in emptied}.items() <= tree(own).items()
    assert not out.exists()


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


# Other file systems


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


# Several processes


@pytest.fixture
def ward(run: Path, pictures: Path, tmp_path: Path) -> Ward:
    return Ward(tmp_path, [Whole(pictures, [], RunFolder(run), 1.0)], seed=1)


@pytest.mark.subprocess
@pytest.mark.parametrize("same", [True, False], ids=["into one folder", "into two folders"])
def test_two_sorts_at_once_lose_nothing(run: Path, own: Path, tmp_path: Path, same: bool) -> None:
    before = tree(own)
    outs = [tmp_path / "out" / ("0" if same else str(number)) for number in range(2)]
    said = [tmp_path / f"said {number}" for number in range(2)]
    processes = [
        start(["sort", str(run), str(own), "--into", str(out), "--how", "move"], text, out, tmp_path / "cache")
        for out, text in zip(outs, said, strict=True)
    ]
    for process in processes:
        process.join(120)
    codes = [process.exitcode or 0 for process in processes if process.exitcode is not None]
    assert sorted(codes) == ([0, 2] if same else [0, 0]), [text.read_text() for text in said]
    assert all("Traceback" not in text.read_text() for text in said)
    names = [Path(row["from"]).name for out in set(outs) for row in table(out / "sorted.csv")]
    assert len(names) == len(set(names)) == 60
    for out in set(outs):
        assert call("sort", "--undo", out) == 0
    assert tree(own) == before


KILLS = {
    "sort, random moment": sorting.kill_sort_at_random,
    "sort, at a file operation": sorting.kill_in_sorting,
    "undo": sorting.kill_in_undoing,
}


@pytest.mark.slow
@pytest.mark.subprocess
@pytest.mark.parametrize("name", KILLS)
def test_kills_lose_nothing(ward: Ward, name: str) -> None:
    """A little of what ``python -m tests.faults`` does at length."""
    tally = Tally()
    KILLS[name](ward, tally, 3)
    assert tally.lost == []
    assert tally.tried == 3


@pytest.mark.subprocess
def test_the_harness_sees_a_lost_picture(ward: Ward) -> None:
    inbox = sorting.Inbox(ward.patient(), ward.folder / "out")
    assert inbox.patient.await_end(inbox.sort()) == 0
    moved = next(inbox.out.rglob("*.png"))
    content = moved.read_bytes()
    moved.unlink()
    with pytest.raises(Loss, match="1 files are in neither place"):
        inbox.examine()
    moved.write_bytes(content)  # with another time
    inbox.patient.await_end(inbox.undo())
    with pytest.raises(Loss, match="not as before"):
        inbox.compare()
