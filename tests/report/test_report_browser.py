"""The report in a browser: headless Chromium, which must be on the path."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.digit_run import CONFIG, HOSTILE, IMAGES, N_CLUSTERS, make_run, write_source

from converge_to_surprise import cli
from converge_to_surprise.config import Stage
from converge_to_surprise.data import datasets
from converge_to_surprise.report import page as pages
from converge_to_surprise.report.comparison import compare_runs
from converge_to_surprise.report.content import Pictures, gather, open_pictures
from converge_to_surprise.report.live import serve
from converge_to_surprise.runs import session
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.load import load_model

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WAIT = 120_000
"""Milliseconds after which a page is given up: a busy machine is no reason for a test to fail."""
OWN = N_CLUSTERS
MISSING = "Chromium" if CHROMIUM is None else "" if find_spec("playwright") else "the package playwright"
pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} is not installed")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=[*root, "--disable-dev-shm-usage"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """Opens an address; a message on the console or an error in the page fails the test."""
    troubles: list[str] = []
    contexts = []

    def open_it(address: str, width: int = 1280, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(WAIT)
        tab.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error: troubles.append(str(error)))
        tab.on("request", lambda request: troubles.append(request.url) if outside(request.url, address) else None)
        tab.goto(address)
        tab.wait_for_selector("html[data-ready]")
        return tab

    yield open_it
    for context in contexts:
        context.close()
    assert troubles == []


def outside(url: str, address: str) -> bool:
    """Whether a page asks for anything from elsewhere."""
    return not url.startswith(("data:", "blob:", address.split("?")[0].rsplit("/", 1)[0]))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("browser")
    return make_run(folder / "run", write_source(folder))


@pytest.fixture(scope="module")
def content(run: RunFolder) -> dict[str, Any]:
    """With names that someone chose to do harm."""
    pictures = open_pictures(run)
    store = replace(pictures.store, names=[f"{number} {HOSTILE}" for number in range(IMAGES)])
    found = gather(run, Pictures(store, HOSTILE, True))
    return found | {"quarantine": [{"file": HOSTILE, "reason": HOSTILE}]}


@pytest.fixture(scope="module")
def address(content: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(pages.render("report", content), encoding="utf-8")
    return path.as_uri()


def sizes(content: dict[str, Any], clusters: int) -> list[int]:
    """How large the clusters are at a level of the merge tree, from the content alone."""
    level = content["clustering"]["levels"]["levels"][clusters - 1]
    found: dict[int, int] = {}
    for cluster, subcluster, _, number, _ in content["clustering"]["cells"]:
        where = subcluster if level["of"] == "subclusters" else cluster
        group = where if level["groups"] is None else level["groups"][where]
        found[group] = found.get(group, 0) + number
    return sorted(found.values(), reverse=True)


def card_sizes(tab: Any) -> list[int]:
    return [int(card.get_attribute("data-size")) for card in tab.query_selector_all("#cards .card")]


def set_cut(tab: Any, clusters: int) -> None:
    tab.locator("#cut").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", clusters
    )


def test_cards_and_counts_are_the_runs(open_page: Any, address: str, content: dict[str, Any], run: RunFolder) -> None:
    tab = open_page(address)
    result = json.loads(run.result.read_text())
    assert tab.inner_text("#title") == f"{len(result['clusters'])} clusters in {IMAGES} images"
    assert card_sizes(tab) == [row["size"] for row in sorted(result["clusters"], key=lambda row: -row["size"])]
    assert tab.inner_text("#count") == f"{len(result['clusters'])} clusters"
    first = tab.inner_text("#cards .card >> nth=0")
    assert f"{result['clusters'][0]['size']} images" in first
    assert f"surprise {result['clusters'][0]['surprise']:.3f}" in first
    assert tab.locator("#cards .card >> nth=0").locator(".thumb").count() == 24
    assert tab.locator("#charts .uplot").count() == 4
    assert tab.locator("#confusion tbody tr").count() == len(result["clusters"])
    assert tab.locator("#purity li").count() == len(result["clusters"])
    assert tab.locator("#panels .panel").count() == len(content["clustering"]["panels"])
    assert tab.locator("#tree-drawing svg .branch").count() == 2 * len(content["clustering"]["tree"])


def test_the_cut_changes_cards_counts_and_table(open_page: Any, address: str, content: dict[str, Any]) -> None:
    tab = open_page(address)
    finest = content["clustering"]["levels"]["finest"]
    own = len(sizes(content, OWN))
    for clusters in (2, finest, OWN):
        set_cut(tab, clusters)
        assert card_sizes(tab) == sizes(content, clusters)
        assert tab.inner_text("#count").split()[0] == str(len(sizes(content, clusters)))
        assert tab.locator("#confusion tbody tr").count() == len(sizes(content, clusters))
        assert tab.locator("#cards footer button", has_text="Edit").count() == (own if clusters == OWN else 0)


def test_dragging_the_line_in_the_tree_moves_the_cut(open_page: Any, address: str, content: dict[str, Any]) -> None:
    tab = open_page(address)
    tab.locator("#tree-drawing").scroll_into_view_if_needed()
    before = tab.input_value("#cut")
    line = tab.locator("#cut-line").bounding_box()
    area = tab.locator("#tree-drawing svg").bounding_box()
    tab.mouse.move(line["x"] + 100, line["y"])
    tab.mouse.down()
    tab.mouse.move(line["x"] + 100, area["y"] + 14)
    tab.mouse.up()
    assert before == str(OWN)
    assert tab.input_value("#cut") == "1"
    assert card_sizes(tab) == [IMAGES]
    tab.click("#cut-back")
    assert card_sizes(tab) == sizes(content, OWN)


def test_filter_and_sort(open_page: Any, address: str) -> None:
    tab = open_page(address)
    everything = card_sizes(tab)
    tab.select_option("#sort", "name")
    assert sorted(card_sizes(tab), reverse=True) == everything
    names = [card.inner_text() for card in tab.query_selector_all("#cards h3")]
    assert names == [f"Cluster {number}" for number in range(len(everything))]
    tab.fill("#filter", "cluster 3")
    assert [card.inner_text() for card in tab.query_selector_all("#cards h3")] == ["Cluster 3"]
    tab.fill("#filter", "no such name")
    assert tab.is_visible("#nothing")


def test_all_images_of_a_cluster_by_keyboard(open_page: Any, address: str, content: dict[str, Any]) -> None:
    tab = open_page(address)
    largest = sizes(content, OWN)[0]
    pages_of_it = -(-largest // 60)
    assert pages_of_it > 1
    tab.focus("#cards .card >> nth=0 >> footer button >> nth=0")
    tab.keyboard.press("Enter")
    assert tab.locator("#gallery figure").count() == min(60, largest)
    assert tab.inner_text("#gallery [role=status]") == f"page 1 of {pages_of_it}"
    caption = tab.inner_text("#gallery figcaption >> nth=0")
    assert "<img src=x" in caption
    assert re.search(r"\d+\.\d%", caption)
    assert "then Cluster" in caption
    tab.keyboard.press("ArrowRight")
    assert tab.inner_text("#gallery [role=status]") == f"page 2 of {pages_of_it}"
    tab.keyboard.press("ArrowLeft")
    assert tab.inner_text("#gallery [role=status]") == f"page 1 of {pages_of_it}"
    tab.keyboard.press("Escape")
    assert not tab.is_visible("#gallery")


def test_the_map_shows_the_picture_under_the_pointer(open_page: Any, address: str, content: dict[str, Any]) -> None:
    tab = open_page(address)
    canvas = tab.locator("#map-canvas")
    canvas.scroll_into_view_if_needed()
    canvas.focus()
    tab.keyboard.press("ArrowRight")
    assert tab.is_visible("#map-tip")
    assert "confidence" in tab.inner_text("#map-tip")
    box, tip = canvas.bounding_box(), tab.inner_text("#map-tip")
    tab.keyboard.press("ArrowRight")
    assert tab.inner_text("#map-tip") != tip
    tab.mouse.move(box["x"] + 1, box["y"] + 1)
    tab.keyboard.press("Escape")
    assert not tab.is_visible("#map-tip")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    assert tab.is_visible("#gallery")


def change(tab: Any, cluster: str, **changes: Any) -> None:
    tab.get_by_role("button", name=f"Edit {cluster}", exact=True).click()
    if "name" in changes:
        tab.fill("#edit-name", changes["name"])
    if "into" in changes:
        tab.select_option("#edit-into", label=changes["into"])
    if changes.get("noise"):
        tab.check("#edit-noise")
    tab.get_by_role("button", name="Done").click()


def test_rename_merge_and_save_give_a_file_that_relabel_applies(
    open_page: Any, address: str, content: dict[str, Any], run: RunFolder, tmp_path: Path
) -> None:
    tab = open_page(address)
    own = sizes(content, OWN)  # clusters are numbered by size
    before = len(own)
    assert before > 3
    name = "<b>sevens</b> & co"
    change(tab, "Cluster 2", name=name)
    change(tab, "Cluster 3", into=name)
    change(tab, "Cluster 1", noise=True)
    assert tab.inner_text("#count") == f"{before - 2} clusters"
    assert card_sizes(tab) == [*sorted([own[0], own[2] + own[3], *own[4:]], reverse=True), own[1]]
    tab.reload()
    tab.wait_for_selector("html[data-ready]")
    assert tab.inner_text("#changes") == "3 clusters changed"  # the browser has kept it
    assert name in [card.inner_text() for card in tab.query_selector_all("#cards h3")]
    with tab.expect_download() as download:
        tab.click("#save")
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    assert re.fullmatch(r"clusters-[0-9]{14}\.json", saved.name)
    assert "n_clusters" not in json.loads(saved.read_text())  # cut as found
    assert cli.main(["relabel", str(run.path), str(saved)]) == 0
    try:
        again = gather(run, open_pictures(run))
        path = tmp_path / "again.html"
        path.write_text(pages.render("report", again), encoding="utf-8")
        tab = open_page(path.as_uri())
        assert name in [card.inner_text() for card in tab.query_selector_all("#cards h3")]
        assert tab.inner_text("#count") == f"{before - 2} clusters"
        assert not tab.is_visible("#edits")
        tab.get_by_role("button", name="Separate").click()
        assert tab.inner_text("#count") == f"{before - 1} clusters"
    finally:
        assert cli.main(["relabel", str(run.path), "--undo"]) == 0


def test_the_saved_file_holds_the_cut_and_the_command_works_from_anywhere(
    open_page: Any, address: str, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tab = open_page(address)
    change(tab, "Cluster 0", name="ours")
    tab.fill("#cut", str(OWN + 2))
    assert tab.inner_text("#changes") == f"1 cluster changed, cut at {OWN + 2}"
    with tab.expect_download() as download:
        tab.click("#save")
    (tmp_path / "home" / "Downloads").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    download.value.save_as(tmp_path / "home" / "Downloads" / download.value.suggested_filename)
    program, *words = shlex.split(tab.inner_text("#saved code"))
    assert program == "cts"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_DOWNLOAD_DIR", raising=False)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert cli.main(words) == 0
    try:
        assert load_model(run.path).cut_at == OWN + 2
        path = tmp_path / "again.html"
        path.write_text(pages.render("report", gather(run, open_pictures(run))), encoding="utf-8")
        tab = open_page(path.as_uri())
        assert tab.input_value("#cut") == str(OWN + 2)
        assert not tab.is_visible("#edits")
        tab.click("#cut-back")
        assert tab.inner_text("#changes") == f"cut at {OWN}"
        tab.click("#reset")
        assert tab.input_value("#cut") == str(OWN + 2)
    finally:
        assert cli.main(["relabel", str(run.path), "--undo"]) == 0
    assert load_model(run.path).cut_at is None


def test_changes_can_be_taken_back(open_page: Any, address: str, content: dict[str, Any]) -> None:
    tab = open_page(address)
    change(tab, "Cluster 3", into="Cluster 0")
    assert tab.inner_text("#count") == f"{len(sizes(content, OWN)) - 1} clusters"
    assert tab.evaluate("document.activeElement.getAttribute('aria-label')") == "Edit Cluster 0"
    tab.click("#reset")
    assert card_sizes(tab) == sizes(content, OWN)
    assert not tab.is_visible("#edits")


def test_hostile_names_are_inert(open_page: Any, address: str, content: dict[str, Any]) -> None:
    tab = open_page(address)
    title = tab.title()
    tab.click("#cards .card >> nth=0 >> footer button >> nth=0")
    tab.keyboard.press("Escape")
    change(tab, "Cluster 0", name=HOSTILE[:100])
    tab.wait_for_timeout(300)
    assert tab.title() == title
    assert tab.locator("img").count() == 0
    assert tab.evaluate("document.scripts.length") == 2
    assert HOSTILE[:40] in tab.inner_text("#quarantined")
    assert HOSTILE[:40] in tab.inner_text("#confusion")


STICKING_OUT = """[...document.querySelectorAll('*')].filter(e => e.scrollWidth > screen.width)
    .map(e => `${e.tagName} ${e.id}: ${e.textContent.slice(0, 60)}`)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 380])
def test_nothing_sticks_out_and_the_theme_follows(open_page: Any, address: str, width: int, scheme: str) -> None:
    tab = open_page(address, width, scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width, tab.evaluate(STICKING_OUT)
    assert tab.evaluate("document.documentElement.dataset.theme") == scheme
    tab.click("#theme")
    assert tab.evaluate("document.documentElement.dataset.theme") == ("dark" if scheme == "light" else "light")
    tab.reload()
    tab.wait_for_selector("html[data-ready]")
    assert tab.evaluate("document.documentElement.dataset.theme") == ("dark" if scheme == "light" else "light")


def test_pictures_have_words(open_page: Any, address: str) -> None:
    tab = open_page(address)
    assert tab.locator("[role=img]:not([aria-label])").count() == 0
    assert tab.evaluate("[...document.querySelectorAll('button')].every(b => b.textContent.trim())")
    assert tab.evaluate("[...document.querySelectorAll('input, select')].every(i => i.labels.length)")


def test_comparison_page(open_page: Any, run: RunFolder, tmp_path: Path) -> None:
    copy = shutil.copytree(run.path, tmp_path / "<b>copy")
    found = compare_runs([run, RunFolder(copy)])
    path = tmp_path / "compare.html"
    path.write_text(pages.render("compare", found), encoding="utf-8")
    for width in (1280, 380):
        tab = open_page(path.as_uri(), width)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert "<b>copy" in tab.inner_text("#ari")
        assert tab.locator("b").count() == 0
        assert tab.locator("#ari td").count() == 4
        assert tab.locator("#flow-drawing .band").count() == len(found["flows"][0])
        assert tab.locator("#charts .uplot").count() == 5
        assert "same settings" in tab.inner_text("#settings-table")


def written(content: dict[str, Any], folder: Path, kind: str = "report") -> str:
    """The address of a page with this content."""
    path = folder / "page.html"
    path.write_text(pages.render(kind, content), encoding="utf-8")
    return path.as_uri()


def test_levels_are_marks_on_the_slider(open_page: Any, content: dict[str, Any], tmp_path: Path) -> None:
    numbers = (OWN, 1, 3)
    stable = [{"clusters": n, "strength": 0.9 - k / 10, "agreement": 0.9} for k, n in enumerate(numbers)]
    clustering = content["clustering"]
    marked = content | {"clustering": clustering | {"levels": clustering["levels"] | {"stable": stable}}}
    tab = open_page(written(marked, tmp_path))
    marks = tab.locator("#cut-levels .level")
    assert marks.all_inner_texts() == ["1", "3", str(OWN)]
    assert tab.locator("#cut-levels .taken").get_attribute("data-clusters") == str(OWN)
    assert tab.inner_text("#cut-evidence").startswith(f"{OWN} clusters: the weakest split holds 0.90, heads agree 0.90")
    assert tab.inner_text("#cut-evidence").endswith("taken by the run")
    marks.nth(1).hover()
    assert tab.inner_text("#cut-evidence").startswith("3 clusters: the weakest split holds 0.70")
    marks.nth(1).click()
    assert card_sizes(tab) == sizes(content, 3)
    assert marks.nth(1).get_attribute("aria-pressed") == "true"
    marks.nth(0).focus()
    tab.keyboard.press("Enter")
    assert card_sizes(tab) == [IMAGES]
    assert tab.inner_text("#cut-evidence").startswith("1 cluster: the weakest split holds 0.80")
    set_cut(tab, 2)
    tab.mouse.move(0, 0)
    tab.evaluate("document.activeElement.blur()")
    assert "Not one of the marked levels" in tab.inner_text("#cut-evidence")
    knob = tab.locator("#cut").bounding_box()
    for mark, n in zip(marks.all(), sorted(numbers), strict=True):  # each lies below the knob's place at its number
        box = mark.bounding_box()
        share = (n - 1) / (content["clustering"]["levels"]["finest"] - 1)
        assert box["x"] + box["width"] / 2 == pytest.approx(knob["x"] + 8 + share * (knob["width"] - 16), abs=1.5)


@pytest.mark.parametrize("strength", ["strong", "weak", "nothing found"])
def test_the_verdict_is_at_the_top(open_page: Any, content: dict[str, Any], tmp_path: Path, strength: str) -> None:
    advice = [] if strength == "strong" else ["add images", HOSTILE]
    verdict = {"strength": strength, "reasons": ["because", HOSTILE], "advice": advice}
    tab = open_page(written(content | {"verdict": verdict}, tmp_path), 390)
    shown = tab.inner_text("#verdict")
    assert shown.startswith(f"Verdict: {strength}")
    assert "because; <img src=x" in shown
    assert ("What to try: add images" in shown) == bool(advice)
    assert tab.locator("#verdict").bounding_box()["y"] < tab.locator("#facts").bounding_box()["y"]
    assert tab.locator("img").count() == 0
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_runs_own_verdict_is_shown(open_page: Any, address: str, run: RunFolder) -> None:
    tab = open_page(address)
    verdict = json.loads(run.result.read_text())["verdict"]
    assert tab.get_attribute("#verdict", "data-strength") == verdict["strength"]
    assert verdict["reasons"][0] in tab.inner_text("#verdict")


def code_distances(content: dict[str, Any], position: int) -> Any:
    """The squared distances of all images from one, by the codes in the page."""
    images = content["clustering"]["images"]
    codes = np.frombuffer(base64.b64decode(images["codes"]), np.int8).reshape(-1, images["codeSize"]).astype(int)
    return ((codes - codes[position]) ** 2).sum(1)


def test_a_click_on_a_picture_shows_similar_ones(
    open_page: Any, content: dict[str, Any], address: str, tmp_path: Path
) -> None:
    plain = content | {"clustering": content["clustering"] | {"duplicates": []}}
    tab = open_page(written(plain, tmp_path))
    index = np.frombuffer(base64.b64decode(content["clustering"]["images"]["index"]), "<u4").tolist()
    tab.click("#cards .card >> nth=0 >> footer button >> nth=0")
    tab.click("#gallery button.open >> nth=2")
    number = int(tab.inner_text("#gallery h2").split("Similar to ")[1].split()[0])
    distances = code_distances(content, index.index(number))
    shown = [int(name.split()[0]) for name in tab.locator("#gallery figcaption .name:first-child").all_inner_texts()]
    assert len(shown) == 60
    assert number not in shown
    found = [distances[index.index(one)] for one in shown]
    assert found == sorted(found)
    assert found == sorted(np.delete(distances, index.index(number)))[:60]
    tab.click("#gallery button.open >> nth=0")  # from one picture to the next
    assert f"Similar to {shown[0]} " in tab.inner_text("#gallery h2")
    tab.click("#gallery .back")
    assert f"Similar to {number} " in tab.inner_text("#gallery h2")
    tab.click("#gallery .back")
    assert tab.locator("#gallery .back").count() == 0
    assert tab.inner_text("#gallery h2") == "Cluster 0"
    tab.keyboard.press("Escape")
    tab.click("#cards .thumb >> nth=0")
    assert "Similar to" in tab.inner_text("#gallery h2")
    tab.get_by_role("button", name="All of Cluster 0").click()
    assert tab.inner_text("#gallery h2") == "Cluster 0"


def test_near_duplicates_are_stacked(open_page: Any, content: dict[str, Any], tmp_path: Path) -> None:
    """The first three images shown are the most typical ones of cluster 0; a fourth one lies in the last cluster."""
    stacked = content | {"clustering": content["clustering"] | {"duplicates": [[0, 1, 2, IMAGES - 1]]}}
    for width in (1280, 390):
        tab = open_page(written(stacked, tmp_path), width)
        assert card_sizes(tab) == sizes(content, OWN)  # all are counted
        assert tab.inner_text("#cards .card >> nth=0 >> .strip >> nth=0 >> .badge") == "×3"
        tab.click("#cards .card >> nth=0 >> footer button >> nth=0")
        assert tab.locator("#gallery .stack").count() == 1
        assert tab.locator("#gallery figure").count() == min(60, sizes(content, OWN)[0] - 2)
        tab.click("#gallery .stack")
        assert "Near-duplicates of" in tab.inner_text("#gallery h2")
        assert tab.locator("#gallery figure").count() == 3
        tab.click("#gallery button.open >> nth=1")
        assert "Similar to" in tab.inner_text("#gallery h2")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_run_with_one_cluster_has_a_page(open_page: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", write_source(tmp_path), replace(CONFIG, n_clusters=1))
    found = gather(run, open_pictures(run))
    tab = open_page(written(found, tmp_path))
    assert tab.inner_text("#title") == f"1 cluster in {IMAGES} images"
    assert card_sizes(tab) == [IMAGES]
    assert tab.get_attribute("#verdict", "data-strength") == json.loads(run.result.read_text())["verdict"]["strength"]
    set_cut(tab, 3)
    assert len(card_sizes(tab)) == 3
    tab.click("#cut-back")
    assert card_sizes(tab) == [IMAGES]
    assert cli.main(["show", str(run.path)]) == 0
    assert cli.main(["predict", str(run.path), run.description().source, "--out", str(tmp_path / "l.csv")]) == 0


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_of_similar_images(open_page: Any, run: RunFolder, tmp_path: Path, width: int) -> None:
    queries = tmp_path / "<b>queries.npz"
    np.savez(queries, images=datasets.load(run.description().source).train.images[:3].numpy())
    assert cli.main(["similar", str(run.path), str(queries), "--page", str(tmp_path / "s.html"), "--count", "7"]) == 0
    tab = open_page((tmp_path / "s.html").as_uri(), width)
    assert tab.locator(".similar").count() == 3
    assert tab.locator(".similar li").count() == 21
    for query in range(3):
        assert tab.inner_text(f".similar >> nth={query} >> li >> nth=0").startswith(f"image {query}\n0.000")
    assert tab.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_the_live_page_grows_with_a_run(open_page: Any, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    source = write_source(tmp_path)
    dataset = datasets.load(str(source))
    run = RunFolder(tmp_path / "live")
    config = replace(CONFIG, checkpoint_seconds=0.0, schedule=(*CONFIG.schedule[:2], Stage("refine", "refine", 6)))
    search = session.begin(run, dataset, session.Origin(str(source), "fast"), config)
    go_on = threading.Event()

    def wait(record: Any) -> None:
        if record.step in (0, 20):
            assert go_on.wait(120)
            go_on.clear()

    fit = threading.Thread(target=session.train, args=(run, search, dataset, [wait]), daemon=True)
    with serve(run.path, 0, Console(quiet=True), dataset.train) as url:
        tab = open_page(url)
        assert "not made a step" in tab.inner_text("#sentence")
        assert not tab.is_visible("#clusters")
        fit.start()
        expect(tab.locator("#sentence")).to_contain_text("step 1 of", timeout=WAIT)
        go_on.set()
        tab.wait_for_selector("#cards .card")
        expect(tab.locator("#sentence")).to_contain_text("step 21 of", timeout=WAIT)
        assert "so far" in tab.inner_text("#title")
        go_on.set()
        expect(tab.locator("#live")).to_contain_text("Finished", timeout=WAIT)
        result = json.loads(run.result.read_text())
        expect(tab.locator("#count")).to_have_text(f"{len(result['clusters'])} clusters", timeout=WAIT)
        assert sum(card_sizes(tab)) == IMAGES
        fit.join()
