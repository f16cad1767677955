"""The zoo: its sets, its plan and what is made of its rows."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import photos
import pytest
import rival_process
import rows
import zoo
import zoo_figure
import zoo_glyphs
import zoo_sets
import zoo_summary
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageFont
from zoo_sets import Arrays, Photographs, Sources

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"


@pytest.fixture
def one_font(monkeypatch: pytest.MonkeyPatch) -> None:
    """A font that is there wherever matplotlib is."""
    monkeypatch.setattr(zoo_glyphs, "FONTS", {"matplotlib": ("DejaVuSans.ttf",)})


def sources(seed: int = 0, pictures: Path | None = None) -> Sources:
    return Sources(None, pictures, FONTS, np.random.default_rng(seed))


def arrays(made: Arrays | Photographs) -> Arrays:
    assert isinstance(made, Arrays)
    return made


def test_both_halves_have_all_kinds_and_many_numbers_of_classes() -> None:
    by_half = {
        half: [about for about in zoo_sets.SETS.values() if about.half == half] for half in ("design", "held out")
    }
    kinds = [{about.kind.partition(",")[0] for about in part} for part in by_half.values()]
    assert kinds[0] == kinds[1]
    assert all(len(part) >= 14 for part in by_half.values())
    numbers = {about.classes for about in zoo_sets.SETS.values()}
    assert {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 15, 20, 26, 40, 62, 100} <= numbers


def test_what_shaped_the_rules_is_for_design() -> None:
    shaped = "digits usps fashion-3 mednist mnist-fashion mnist-38 mnist-0247 sign-digits cifar10 mnist fours"
    assert {zoo_sets.SETS[name].half for name in shaped.split()} == {"design"}


def test_signs_are_printed_and_differ() -> None:
    font = ImageFont.truetype(str(FONTS / "DejaVuSans.ttf"), 40)
    found = {bytes(font.getmask(sign)) for sign in zoo_glyphs.SIGNS}
    assert len(found) == 100
    assert bytes(font.getmask("\uffff")) not in found


@pytest.mark.parametrize(("letters", "package"), [("אש", "culmus"), ("กอ", "fonts-thai-tlwg"), ("AЯ", "fonts-lato")])
def test_each_script_has_fonts_of_its_own(letters: str, package: str, tmp_path: Path) -> None:
    for sign in letters:
        assert package in zoo_glyphs.fonts_for(sign)
        with pytest.raises(SystemExit, match=f"apt-get install .*{package}"):
            zoo_glyphs.font_files(tmp_path, sign)


def test_signs_come_in_the_wanted_numbers_and_stay_in_the_picture(one_font: None) -> None:
    made = arrays(zoo_sets.printed("AW@", [3, 1, 2])(sources()))
    assert made.labels.tolist() == [0, 0, 0, 1, 2, 2]
    assert made.images.shape == (6, 28, 28)
    ink = zoo_glyphs.masks("W@", [20, 20], FONTS, np.random.default_rng(0))[0]
    assert ink.max() > 0.9
    assert max(ink[:, [0, -1]].mean(), ink[:, :, [0, -1]].mean()) < 0.01


def test_the_same_seed_makes_the_same_signs(one_font: None) -> None:
    first, again, other = (arrays(zoo_sets.printed("AB", 2)(sources(seed))).images for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()


def test_missing_fonts_are_named_with_their_packages(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no Cantarell-Regular.otf below .* apt-get install fonts-cantarell"):
        zoo_glyphs.font_files(tmp_path, "A")


def test_black_on_white_is_the_negative_and_colors_keep_the_shape(one_font: None) -> None:
    white, black = (arrays(zoo_sets.printed("A", 4, black=flag)(sources())).images for flag in (False, True))
    assert white.mean() < 60 < 195 < black.mean()
    colored = arrays(zoo_sets.tinted(zoo_sets.printed("A", 4))(sources())).images
    assert colored.shape == (4, 28, 28, 3)
    assert np.corrcoef(colored[0].mean(-1).ravel(), white[0].ravel())[0, 1] > 0.95


def test_copies_are_close_to_their_original_and_not_the_same(one_font: None) -> None:
    made = arrays(zoo_sets.copies(zoo_sets.printed("AE", 1), 3)(sources()))
    assert made.labels.tolist() == [0, 0, 0, 1, 1, 1]
    flat = made.images.reshape(6, -1).astype(float)
    distance = np.linalg.norm(flat[:, None] - flat, axis=-1)
    assert 0 < distance[0, 1] < distance[0, 3:].min() / 2


@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(0, 99))
def test_a_subset_has_the_wanted_number_of_every_class(counts: list[int], seed: int) -> None:
    labels = np.repeat(np.arange(10), 30)
    whole = Arrays(labels[:, None, None].astype(np.uint8), labels)
    wanted = dict(zip(range(9, 9 - len(counts), -1), counts, strict=True))
    found = zoo_sets.some(whole, wanted, np.random.default_rng(seed))
    assert np.bincount(found.labels).tolist() == counts
    assert (found.images[:, 0, 0] == 9 - found.labels).all()


def test_lying_digits_are_classes_of_their_own_but_for_zero() -> None:
    made = arrays(zoo_sets.upright_and_lying(zoo_sets.subset("digits", zoo_sets.even(range(10), 5)), [0])(sources()))
    assert np.bincount(made.labels).tolist() == [10] + [5] * 18
    assert (made.images[50:] == np.rot90(made.images[:50], 1, (1, 2))).all()


def test_sets_together_keep_their_classes_apart(one_font: None) -> None:
    both = zoo_sets.together(zoo_sets.printed("AB", 2), zoo_sets.inverted(zoo_sets.printed("AB", 1)))
    made = arrays(both(sources()))
    assert made.labels.tolist() == [0, 0, 1, 1, 2, 3]
    assert made.images[:4].mean() < 60 < made.images[4:].mean()


def make_pictures(folder: Path) -> None:
    for kind in ("hand", "head"):
        (folder / "scans" / kind).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (40, 36), (number, 60, 60)).save(folder / "scans" / kind / f"{number}.png")


def test_sets_are_written_as_arrays_in_random_order_or_as_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pictures(tmp_path)
    made = {
        "some": zoo_sets.ZooSet(10, "handwriting", "design", zoo_sets.subset("digits", zoo_sets.even(range(10), 3))),
        "scans": zoo_sets.ZooSet(2, "photographs", "design", zoo_sets.pictures("scans", {"hand": 3, "head": 1})),
    }
    monkeypatch.setattr(zoo_sets, "SETS", made)
    options = Namespace(seed=0, data_dir=None, pictures_dir=tmp_path, fonts_dir=FONTS, sheet=True)
    out = tmp_path / "zoo"
    out.mkdir()
    for name in made:
        zoo_sets.write(name, out, options)
    with np.load(zoo_sets.set_file(out, "some")) as found:
        assert found["images"].shape == (30, 8, 8)
        assert sorted(found["labels"]) != found["labels"].tolist()
        assert np.bincount(found["labels"]).tolist() == [3] * 10
    assert sorted(path.parent.name for path in (out / "scans").glob("*/*.png")) == ["hand"] * 3 + ["head"]
    assert all(path.is_symlink() for path in (out / "scans").glob("*/*.png"))
    assert Image.open(out / "some.png").size == (240, 100)
    assert [zoo.image_count(zoo_sets.set_file(out, name)) for name in made] == [30, 4]


def test_signs_stand_on_crops_of_photographs(tmp_path: Path, one_font: None) -> None:
    make_pictures(tmp_path)
    make = zoo_sets.on_photographs("AB", 2, "scans")
    assert arrays(make(sources(0, tmp_path))).images.shape == (4, 32, 32, 3)
    with pytest.raises(SystemExit, match="no folder scans in --pictures-dir"):
        make(sources())


@pytest.mark.parametrize("noise", [zoo_sets.uniform_noise, zoo_sets.blobs, zoo_sets.pink_noise])
def test_noise_is_centered_and_fills_the_range(noise: Any) -> None:
    values = noise(np.random.default_rng(0))
    assert abs(values.mean() - 0.5) < 0.01
    assert 0.15 < values.std() < 0.35


def options(tmp_path: Path, **changes: Any) -> Namespace:
    defaults = {"names": ["large", "small", "scans"], "half": None, "sets": tmp_path, "save": tmp_path / "zoo.csv"}
    more = {"seeds": [0, 1], "methods": ["ours", "evoc"], "inputs": ["pixels"], "runs": tmp_path / "runs"}
    rest = {"threads": 1, "jobs": 2, "fit_options": "", "backbone": None, "rivals_python": None}
    return Namespace(**(defaults | more | rest | changes))


def make_sets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large set, a small one and one of photographs."""
    monkeypatch.setattr(zoo, "LARGE", 50)
    about = zoo_sets.ZooSet(2, "signs", "held out", zoo_sets.printed("AB", 1))
    monkeypatch.setattr(zoo_sets, "SETS", {"large": about, "small": about._replace(half="design"), "scans": about})
    for name, count in (("large", 50), ("small", 20)):
        images = np.arange(count * 64, dtype=np.uint8).reshape(count, 8, 8)
        np.savez(folder / f"{name}.npz", images=images, labels=np.arange(count) % 2)
    make_pictures(folder)


def test_the_plan_leaves_out_what_has_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_sets(tmp_path, monkeypatch)
    finished = {"set": "small", "input": "pixels", "method": "ours", "seed": 0}
    rows.write_rows(tmp_path / "zoo.csv", [finished])
    jobs = zoo.plan(options(tmp_path, names=["large", "small"]))
    assert [(job.name, job.method, job.seed) for job in jobs] == [
        ("large", "ours", 0), ("small", "evoc", 0), ("large", "evoc", 0), ("small", "ours", 1), ("small", "evoc", 1),
    ]  # fmt: skip
    on_backbone = zoo.plan(options(tmp_path, inputs=["backbone"], seeds=[0]))
    assert [(job.name, job.method) for job in on_backbone] == [("scans", "ours"), ("scans", "evoc")]
    assert {job.name for job in zoo.plan(options(tmp_path, names=[], half="design"))} == {"small"}


def test_each_run_has_a_row_and_a_failed_one_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_sets(tmp_path, monkeypatch)
    told: list[list[object]] = []

    def fit(source: Path, run: Path, words: list[object]) -> dict[str, Any]:
        told.append([source.name, *words])
        if "--labels" in words:
            raise ValueError("no disk")
        return {"n_clusters": 2, "ari": 0.5, "levels": "2 3", "verdict": "strong", "bank": "cached"}

    monkeypatch.setattr(photos, "ours", fit)
    chosen = options(tmp_path, methods=["ours"], seeds=[7], fit_options="--n-init 1")
    workers = zoo.Workers(zoo.plan(chosen), chosen)
    workers.run()
    assert [job.name for job in workers.failed] == ["scans"]
    assert "scans pixels ours 7 failed: no disk" in capsys.readouterr().err
    assert ["small.npz", "--seed", 7, "--threads", 1, "--n-init", "1"] in told
    found = {row["set"]: row for row in rows.read_rows(tmp_path / "zoo.csv")}
    assert found.keys() == {"large", "small"}
    assert (found["small"]["half"], found["small"]["images"], found["small"]["levels"]) == ("design", "20", "2 3")
    assert "bank" not in found["small"]
    assert [job.name for job in zoo.plan(chosen)] == ["scans"]


def test_rivals_get_the_pixels_of_the_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_sets(tmp_path, monkeypatch)
    some, classes = zoo.vectors(zoo.Job("small", "pixels", "evoc", 0), options(tmp_path))
    assert some.dtype == np.float32
    assert (some * 255 == np.arange(20 * 64, dtype=np.uint8).reshape(20, 64)).all()
    assert classes.tolist() == [0, 1] * 10


@pytest.mark.subprocess
def test_a_rival_that_ends_is_told_and_started_anew() -> None:
    with rival_process.RivalProcess(1, sys.executable) as process:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="nobody ended with exit code 1"):
                process.fit(rival_process.Request("nobody", 0), np.zeros((3, 2), np.float32))


def run(name: str, method: str, seed: int, n_clusters: int, ari: float, **changes: Any) -> dict[str, Any]:
    about = {"set": name, "half": "held out", "kind": "signs", "classes": 10, "images": 1000, "input": "pixels"}
    row = {"method": method, "seed": seed, "n_clusters": n_clusters, "ari": ari, "levels": "", "verdict": ""}
    return about | row | changes


def test_summary_compares_each_set_with_its_best_rival(tmp_path: Path) -> None:
    file = tmp_path / "zoo.csv"
    own = [run("a", "ours", seed, number, 0.9, levels="10 3") for seed, number in enumerate([10, 11, 14])]
    others = [run("a", "evoc", 0, 5, 0.7), run("a", "umap+hdbscan", 0, 10, 0.8), run("b", "evoc", 0, 30, 0.2)]
    more = [run("b", "ours", 0, 4, 0.3, levels="4"), run("b", "ours", 0, 5, 0.3, levels="5"),
            run("c", "ours", 0, 40, 0.0, classes=0, kind="noise")]  # fmt: skip
    rows.write_rows(file, [*own, *others, *more])
    found = zoo_summary.read(file)
    lines = [" ".join(line.split()) for line in zoo_summary.summary(found).splitlines()]
    # Off by 0, 0.1, 0.4 and 0.5: the later row of b counts, noise does not.
    ours = "| held out | pixels | converge-to-surprise | 2 | 4 | 0.25 | 50 % | 2.0 | 75 % | 60.0 | +10.0 | +10.0 |"
    assert ours in lines
    assert "| held out | pixels | EVoC | 2 | 2 | 1.25 | 0 % | 3.0 | – | 45.0 | – | – |" in lines
    sets = [" ".join(line.split()) for line in zoo_summary.per_set(found).splitlines()]
    line = (
        "| a | held out | signs | 1,000 | 10 | pixels | 10, 11, 14 | 10 3; 10 3; 10 3 | | 90.0 | 10 | 80.0 | 5 | 70.0 |"
    )
    assert line in sets
    assert "| c | held out | noise | 1,000 | 0 | pixels | 40 | – | | – | – | – | – | – |" in sets


def test_figure_shows_the_sets(tmp_path: Path) -> None:
    file = tmp_path / "zoo.csv"
    rows.write_rows(file, [run("alone", "ours", 0, 10, 0.9), run("alone", "evoc", 0, 0, 0.7)])
    zoo_figure.draw(zoo_summary.read(file), tmp_path / "zoo.svg")
    text = (tmp_path / "zoo.svg").read_text()
    assert all(word in text for word in ("alone", "converge-to-surprise, held out, pixels", "EVoC", "noise"))
    rows.write_rows(file, [run("alone", "evoc", 0, 0, 0.7)])
    zoo_figure.draw(zoo_summary.read(file), tmp_path / "zoo.svg")
    assert "best rival" not in (tmp_path / "zoo.svg").read_text()
