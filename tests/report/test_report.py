"""What a report shows is what the run found, and nothing in it can run that is not ours."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from support.digit_run import CONFIG, HOSTILE, IMAGES, N_CLUSTERS, make_run, write_source

from converge_to_surprise import cli
from converge_to_surprise.data import datasets
from converge_to_surprise.report import content, page, projection, sprites, summary
from converge_to_surprise.report.content import Pictures, gather, open_pictures
from converge_to_surprise.report.image_data import columns, image_data, label_images
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.load import load_model


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("report")
    return make_run(folder / "run", write_source(folder))


@pytest.fixture(scope="module")
def gathered(run: RunFolder) -> dict[str, Any]:
    return gather(run, open_pictures(run))


def labels_table(run: RunFolder) -> list[dict[str, str]]:
    with run.labels.open(newline="") as file:
        return list(csv.DictReader(file))


def unpacked(text: str, kind: Any) -> list[int]:
    return [int(value) for value in np.frombuffer(base64.b64decode(text), dtype=kind)]


def test_images_are_those_of_the_table_of_labels(run: RunFolder, gathered: dict[str, Any]) -> None:
    rows, shown = labels_table(run), gathered["clustering"]["images"]
    index = unpacked(shown["index"], "<u4")
    assert sorted(index) == list(range(IMAGES))
    assert unpacked(shown["cluster"], "<i2") == [int(rows[i]["cluster"]) for i in index]
    assert unpacked(shown["subcluster"], "<i2") == [int(rows[i]["subcluster"]) for i in index]
    assert unpacked(shown["second"], "<i2") == [int(rows[i]["second"]) for i in index]
    novelty = np.array(unpacked(shown["novelty"], "<u2")) / 10_000
    assert novelty == pytest.approx([float(rows[i]["novelty"]) for i in index], abs=1e-4)
    assert unpacked(shown["viewsAgree"], "<u1") == [int(rows[i]["views_agree"]) for i in index]
    confidence = np.array(unpacked(shown["confidence"], "<u2")) / 10_000
    assert confidence == pytest.approx([float(rows[i]["confidence"]) for i in index], abs=1e-4)
    keys = list(zip(unpacked(shown["cluster"], "<i2"), -confidence, strict=True))
    assert keys == sorted(keys)  # cluster by cluster, the most typical first


def test_cells_count_every_image(run: RunFolder, gathered: dict[str, Any]) -> None:
    rows, cells = labels_table(run), gathered["clustering"]["cells"]
    sizes = Counter(int(row["cluster"]) for row in rows)
    counted: Counter[int] = Counter()
    for cluster, _, _, number, _ in cells:
        counted[cluster] += number
    assert counted == sizes
    assert sum(cell[4] for cell in cells) == pytest.approx(sum(float(row["confidence"]) for row in rows), abs=0.05)


def test_every_level_is_the_models_own(run: RunFolder, gathered: dict[str, Any]) -> None:
    model, shown = load_model(run.path), gathered["clustering"]["images"]
    store = datasets.load(run.description().source).train
    index = unpacked(shown["index"], "<u4")
    cluster, subcluster = unpacked(shown["cluster"], "<i2"), unpacked(shown["subcluster"], "<i2")
    levels = gathered["clustering"]["levels"]
    assert model.merge_result is not None
    own = N_CLUSTERS
    assert levels["own"] == model.merge_result.n_clusters == own
    assert levels["finest"] == model.merge_result.max_clusters > own
    assert [level["clusters"] for level in levels["levels"]] == list(range(1, levels["finest"] + 1))
    for level in levels["levels"]:
        finds = torch.cat([p.cluster for p in model.cut(level["clusters"]).predict(store.images)])[torch.tensor(index)]
        numbers = subcluster if level["of"] == "subclusters" else cluster
        groups = level["groups"] or list(range(len(model.order)))
        assert [groups[number] for number in numbers] == finds.tolist(), level["clusters"]
        assert (level["of"] == "subclusters") == (level["clusters"] > own)


def test_surprise_of_the_cards_is_the_results(run: RunFolder, gathered: dict[str, Any]) -> None:
    result = json.loads(run.result.read_text())
    own = gathered["clustering"]["levels"]["levels"][N_CLUSTERS - 1]
    assert {k: row["surprise"] for k, row in own["table"].items()} == pytest.approx(
        {row["cluster"]: row["surprise"] for row in result["clusters"]}
    )
    assert own["acc"] == pytest.approx(result["acc_both"])


def test_head_line_in_words(run: RunFolder, gathered: dict[str, Any]) -> None:
    result = json.loads(run.result.read_text())
    assert gathered["title"] == f"{len(result['clusters'])} clusters in {IMAGES} images"
    bound = sum(row["nats"] for row in result["clusters"]) / np.log(10)
    exponent = int(re.search(r"below 10\^-([\d,]+)\.$", gathered["sentence"])[1].replace(",", ""))  # type: ignore[index]
    assert bound - 1 < exponent <= bound
    facts = dict(gathered["facts"])
    assert facts["Seed"] == "0"
    assert facts["Orderliness Ω"] == f"{result['orderliness']:.3f}"
    assert facts["Images"] == f"{IMAGES} of 8×8"


def test_thumbnails_are_the_images(run: RunFolder, gathered: dict[str, Any]) -> None:
    shown = gathered["clustering"]["images"]
    pixels = datasets.load(run.description().source).train.images[:, 0].numpy()
    assert (shown["width"], shown["height"]) == (8, 8)
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(shown["sheets"][0]))).convert("L"))
    for position, index in enumerate(unpacked(shown["index"], "<u4")):
        row, column = divmod(position, 32)
        assert (sheet[8 * row : 8 * row + 8, 8 * column : 8 * column + 8] == pixels[index]).all()  # nothing is lost


def test_classes_panels_and_their_names(run: RunFolder, gathered: dict[str, Any]) -> None:
    clustering = gathered["clustering"]
    assert clustering["classes"] == sorted([HOSTILE, "one", *(f"digit {number}" for number in range(2, 10))])
    cluster = unpacked(clustering["images"]["cluster"], "<i2")
    known = unpacked(clustering["images"]["class"], "<i4")
    for panel in clustering["panels"]:
        assert panel["images"] >= 50
        assert 1 <= len(panel["shown"]) <= 9
        assert {(cluster[i], known[i]) for i in panel["shown"]} == {(panel["cluster"], panel["class"])}


def test_without_classes_nothing_is_said_of_them(run: RunFolder) -> None:
    store = replace(open_pictures(run).store, labels=None, class_names=None)
    clustering = gather(run, Pictures(store, "x", True))["clustering"]
    assert clustering["classes"] is None
    assert clustering["panels"] == []
    assert clustering["images"]["class"] is None
    assert clustering["levels"]["levels"]
    assert all("acc" not in level for level in clustering["levels"]["levels"])


def test_the_same_run_gives_the_same_page(run: RunFolder, gathered: dict[str, Any]) -> None:
    again = gather(run, open_pictures(run))
    assert page.render("report", again) == page.render("report", gathered)


def test_hostile_text_stays_text(run: RunFolder) -> None:
    pictures = open_pictures(run)
    store = replace(pictures.store, names=[f"{HOSTILE}{number}" for number in range(IMAGES)])
    run.quarantine.write_text(
        f'file,reason\n"{HOSTILE.replace(chr(34), chr(34) * 2)}",<b>broken</b>\n', encoding="utf-8"
    )
    try:
        found = gather(run, Pictures(store, HOSTILE, True))
    finally:
        run.quarantine.unlink()
    text = page.render("report", found)
    assert found["quarantine"] == [{"file": HOSTILE, "reason": "<b>broken</b>"}]
    assert "<img" not in text
    assert "\u2028" not in text
    assert text.count("<script") == text.count("</script>") == 2
    data = re.search(r'<script id="content" type="application/json">(.*?)</script>', text, re.S)
    assert data is not None
    assert not set("<>&") & set(data[1])
    assert json.loads(data[1]) == json.loads(json.dumps(found))


@given(st.text() | st.lists(st.text()))
def test_json_for_a_script_element_means_the_same(value: Any) -> None:
    text = page.to_json(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)


def test_only_our_program_and_style_may_run(gathered: dict[str, Any]) -> None:
    text = page.render("report", gathered)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    rules = policy[1].replace("&#39;", "'")
    assert "default-src 'none'" in rules
    assert "unsafe" not in rules
    assert "connect-src" not in rules
    assert "connect-src 'self'" in page.render("report", gathered, live=True).replace("&#39;", "'")
    for tag in ("script", "style"):
        inline = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        assert inline is not None
        assert page._hashed(inline[1]) in rules
    assert not re.search(
        r"https?://(?!github\.com/leeoniya|www\.w3\.org/2000/svg)", text.split('type="application/json"')[0]
    )


def test_command_writes_one_file_and_overwrites_only_it(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path for path in run.path.rglob("*") if path.is_file()}
    assert cli.main(["report", str(run.path)]) == 0
    assert {path for path in run.path.rglob("*") if path.is_file()} - before == {run.path / "report.html"}
    assert "report.html" in capsys.readouterr().out
    (run.path / "report.html").unlink()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere is not a run folder"),
        (["RUN", "no-such.npz"], "no-such.npz"),
        (["RUN", "--out", "RUN"], "which is a folder"),
        (["RUN", "--out", "no/folder.html"], "there is no folder no"),
    ],
)
def test_mistakes_are_answered_in_one_line(
    run: RunFolder, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", *(str(run.path) if word == "RUN" else word for word in words)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_images_that_have_moved_are_asked_for(
    tmp_path: Path, run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Path(run.description().source)
    moved = source.rename(tmp_path / "moved.npz")
    try:
        assert cli.main(["report", str(run.path)]) == 2
        assert "cts report RUN SOURCE" in capsys.readouterr().err
        out = tmp_path / "there.html"
        assert cli.main(["report", str(run.path), str(moved), "--out", str(out)]) == 0
        assert '"own":true' in out.read_text()
    finally:
        moved.rename(source)


def test_other_images_are_said_to_be_others(tmp_path: Path, run: RunFolder) -> None:
    other = tmp_path / "other.npz"
    np.savez(other, images=np.random.default_rng(0).integers(0, 255, (40, 8, 8), dtype=np.uint8))
    found = gather(run, open_pictures(run, str(other)))
    assert found["run"]["own"] is False
    assert found["clustering"]["images"]["total"] == 40
    color = tmp_path / "color.npz"
    np.savez(color, images=np.zeros((4, 8, 8, 3), dtype=np.uint8))
    with pytest.raises(ValueError, match="the model was made with 1x8x8"):
        open_pictures(run, str(color))


def test_an_unfinished_run_has_a_page(tmp_path: Path, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = open_pictures(run)
    begun = RunFolder(tmp_path / "begun")
    begun.make()
    begun.describe(run.description())
    found = gather(begun, pictures, live=True)
    assert found["clustering"] is None
    assert "not made a step" in found["sentence"]
    begun.checkpoints.mkdir()
    for path in run.checkpoints.iterdir():
        (begun.checkpoints / path.name).write_bytes(path.read_bytes())
    begun.history.write_bytes(run.history.read_bytes())
    monkeypatch.setattr(content, "LIVE_IMAGES", 100)
    found = gather(begun, pictures, live=True)
    assert found["clustering"]["images"]["total"] == 100
    assert found["title"].endswith(f"so far in {IMAGES} images")
    assert page.render("report", found, live=True)


@pytest.mark.parametrize("side", [8, 28, 200])
@pytest.mark.parametrize("room", [20, 60, 300, 3000])
def test_thumbnails_fit_the_room_or_are_the_smallest(side: int, room: int) -> None:
    rng = np.random.default_rng(0)
    pictures = torch.from_numpy(rng.integers(0, 255, (64, 3, side, side), dtype=np.uint8))
    form, size = sprites.choose_form(pictures, room)
    assert size <= room or form == sprites._forms(side, side)[-1]
    assert max(form.width, form.height) <= min(side, 96)


def test_a_page_over_budget_shows_a_sample_and_counts_all(run: RunFolder, gathered: dict[str, Any]) -> None:
    store = open_pictures(run).store
    model = load_model(run.path)
    seen = image_data(model, label_images(model, store.images), store.labels)
    place = projection.project(seen.embedding, thorough=False)
    wanted = np.array([7, 11])
    shown, positions = columns(seen, store, place, wanted, room=8_000)
    assert shown["shown"] == len(positions) < shown["total"] == IMAGES
    assert {7, 11} <= set(positions.tolist())
    assert set(seen.cluster[positions]) == set(seen.cluster)
    assert sum(len(sheet) for sheet in shown["sheets"]) < 8_000
    for cluster in np.unique(seen.cluster):  # the most and the least typical image of each cluster are there
        members = np.flatnonzero(seen.cluster == cluster)
        if (seen.cluster[positions] == cluster).sum() > 3:
            assert members[seen.confidence[members].argmin()] in positions


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(1, 80))
def test_a_spread_is_a_choice_without_repetition(groups: list[int], count: int) -> None:
    confidence = np.linspace(0, 1, len(groups), dtype=np.float32)
    chosen = sprites.spread(np.array(groups), confidence, count)
    assert len(set(chosen.tolist())) == len(chosen)
    assert set(np.array(groups)[chosen]) == set(groups)
    assert len(chosen) <= count + len(set(groups))
    if count >= len(groups):
        assert sorted(chosen) == list(range(len(groups)))


@pytest.mark.parametrize("thorough", [True, False])
def test_the_map_keeps_clusters_apart_and_is_the_same_again(thorough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "LANDMARKS", 90)
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(3), 50)
    embedding = 8 * np.eye(3, 6)[groups] + rng.normal(size=(150, 6))
    found = projection.project(embedding, thorough)
    assert np.array_equal(found.points, projection.project(embedding, thorough).points)
    assert found.points.min() >= 0
    assert found.points.max() <= 1
    near = np.linalg.norm(found.points[:, None] - found.points[None], axis=2) + 9 * np.eye(150)
    assert (groups[near.argmin(1)] == groups).mean() > 0.95


@pytest.mark.parametrize("thorough", [False, True])
def test_many_images_are_placed_a_chunk_at_a_time(thorough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit the components are those of a sample, and all images find their place by them."""
    monkeypatch.setattr(projection, "LANDMARKS", 60)
    rng = np.random.default_rng(0)
    kinds = np.arange(400) % 4
    embedding = (rng.normal(size=(4, 10))[kinds] * 8 + rng.normal(size=(400, 10)) * 0.1).astype(np.float16)
    few = projection.project(embedding, thorough)
    monkeypatch.setattr(projection, "LIMIT", 399)
    monkeypatch.setattr(projection, "CHUNK", 37)
    many = projection.project(embedding, thorough)
    assert many.method == few.method
    assert many.points.shape == (400, 2)
    middle = np.stack([many.points[kinds == kind].mean(0) for kind in range(4)])
    nearest = np.linalg.norm(many.points[:, None] - middle, axis=2).argmin(1)
    assert (nearest == kinds).all()
    if not thorough:
        np.testing.assert_allclose(many.points, few.points, atol=0.01)


@pytest.mark.parametrize("shape", [(1, 4), (2, 4), (5, 1), (5, 3), (13, 2)])
def test_a_map_of_very_little(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    assert projection.project(rng.normal(size=shape)).points.shape == (shape[0], 2)
    assert np.isfinite(projection.project(np.zeros(shape)).points).all()


def records(kinds: Sequence[str]) -> list[dict[str, Any]]:
    names = dict.fromkeys(summary.SERIES, 1.0)
    return [{"stage": kind[0], "kind": kind, "seconds": 2.0 * step + 1, **names} for step, kind in enumerate(kinds)]


def test_curves_have_stages_and_marks() -> None:
    kinds = ["relaxed"] * 3 + ["merge"] + ["consolidate"] * 2 + ["relaxed"] + ["consolidate"]
    found = summary.curves(records(kinds))
    assert found["seconds"] == [1, 3, 5, 7, 9, 11, 13, 15]
    assert [(stage["name"], stage["from"], stage["to"]) for stage in found["stages"]] == [
        ("r", 0, 5), ("m", 5, 7), ("c", 7, 11), ("r", 11, 13), ("c", 13, 15)
    ]  # fmt: skip
    assert [(mark["kind"], mark["seconds"]) for mark in found["marks"]] == [
        ("merge", 7), ("consolidate", 11), ("consolidate", 15)
    ]  # fmt: skip
    assert summary.curves([])["seconds"] == []
    long = summary.curves(records(["relaxed", "consolidate"] * 3000))
    assert len(long["marks"]) <= summary.MARKS


def test_settings_are_listed_by_their_flags(gathered: dict[str, Any]) -> None:
    settings = gathered["run"]["settings"]
    assert settings["n_clusters"] == str(N_CLUSTERS)
    assert settings["schedule"] == " ".join(map(str, CONFIG.schedule))


@given(st.lists(st.sampled_from("abc"), max_size=60), st.integers(1, 20))
def test_thinning_keeps_the_ends_of_stages(stages: list[str], most: int) -> None:
    long: list[dict[str, Any]] = [{"step": n, "stage": stage} for n, stage in enumerate(sorted(stages))]
    kept = summary.thinned(long, most)
    assert kept == [record for record in long if record in kept]  # in order, none twice
    assert len(kept) <= most + len(set(stages))
    for stage in set(stages):
        assert max(record["step"] for record in long if record["stage"] == stage) in [one["step"] for one in kept]
    assert summary.thinned(long, 60) == long
