"""Sorting pictures into folders: what is taken and what is left, undoing, and kills, on real files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from faults import sorting
from faults.child import start
from faults.harness import Loss, Whole
from faults.ward import Tally, Ward
from PIL import Image
from support.picture_run import call, refused, table
from support.sorting import picture, reasons, tree

from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.runs.folder import RunFolder

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def own(pictures: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pictures, tmp_path / "own"))


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
    "two sorts at once": sorting.two_sorts_at_once,
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
