"""Sub-clusters on the report page, in headless Chromium."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.digit_run import make_run, write_source
from support.known_trees import with_tree

from converge_to_surprise import cli
from converge_to_surprise.config.storage import write_json
from converge_to_surprise.data import datasets
from converge_to_surprise.model import model_file
from converge_to_surprise.report.page import write_report
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.hypothesis_table import Row
from converge_to_surprise.runs.load import load_model
from converge_to_surprise.runs.result import read_result

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WAIT = 120_000
MISSING = "Chromium" if CHROMIUM is None else "" if find_spec("playwright") else "the package playwright"
pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} is not installed")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run whose largest cluster is split, and a part of it again."""
    folder = tmp_path_factory.mktemp("inside")
    source = write_source(folder)
    found = make_run(folder / "run", source)
    store = datasets.load(str(source)).train
    model_file.save(found.model, with_tree(load_model(found.path), store.images))
    rounds = [(0, 1, 1, 5, 300.4, None), (1, 5, 0, 5, 0.0, None)]
    table = {"rounds": [Row(*row)._asdict() for row in rounds], "nodes": [], "finished": True}
    write_json(found.result, read_result(found.result) | {"hypotheses": table})
    write_report(found, store)
    return found


@pytest.fixture
def tab(run: RunFolder) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    troubles: list[str] = []
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=[*root, "--disable-dev-shm-usage"])
        page = chromium.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True).new_page()
        page.set_default_timeout(WAIT)
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(run.report.as_uri())
        page.wait_for_selector("html[data-ready]")
        yield page
        chromium.close()
    assert troubles == []


def parts(tab: Any) -> list[str]:
    found: list[str] = tab.eval_on_selector_all(
        "#inside-parts [data-node]", "all => all.map((one) => one.dataset.node)"
    )
    return found


def test_a_card_opens_into_its_parts_and_back(tab: Any) -> None:
    assert tab.locator("#cards .open-node").count() == 1
    tab.click('#cards [data-group="0"] .open-node')
    assert parts(tab) == ["0/0", "0/1"]
    assert tab.locator('#inside-parts [data-node="0/0"] .thumb').count() > 3
    assert "Split into 2 parts" in tab.inner_text("#inside-why")
    # By keyboard: into the part that has parts, and back to all clusters.
    tab.keyboard.press("ArrowRight")
    assert parts(tab) == ["0/1/0", "0/1/1"]
    assert tab.evaluate("document.activeElement.closest('#inside-trail') !== null")
    tab.keyboard.press("Backspace")
    assert parts(tab) == ["0/0", "0/1"]
    tab.keyboard.press("ArrowLeft")
    assert set(parts(tab)) >= {"0", "1"}
    assert "/" not in "".join(parts(tab))


def test_every_node_is_in_the_tree_with_its_size_and_reason(tab: Any, run: RunFolder) -> None:
    found = tab.eval_on_selector_all("#inside-tree .node", "all => all.map((one) => one.dataset.path)")
    assert {"0", "0/0", "0/1", "0/1/0", "0/1/1"} <= set(found)
    sizes = tab.evaluate("JSON.parse(document.getElementById('content').textContent).clustering.hierarchy.nodes")
    by_path = {node["path"]: node["size"] for node in sizes}
    assert by_path["0"] == by_path["0/0"] + by_path["0/1"]
    assert by_path["0/1"] == by_path["0/1/0"] + by_path["0/1/1"]
    assert "no further surprise found" in tab.inner_text("#inside-ending")
    label = tab.locator('#inside-tree [data-path="0"]').get_attribute("aria-label")
    assert "its parts explain 20 nats" in label
    assert "20 nats" in tab.locator('#inside-tree [data-path="0"]').text_content()
    tab.locator('#inside-tree [data-path="1"]').focus()
    tab.keyboard.press("Enter")
    assert parts(tab) == ["1"]
    assert "but gradually" in tab.inner_text("#inside-why")
    assert "97% of 10 images" in tab.inner_text("#inside-why")
    assert "chance alone gives 52%" in tab.inner_text("#inside-why")
    # Among its neighbors: down to cluster 2, up again, and from the first to the last.
    tab.keyboard.press("ArrowDown")
    assert parts(tab) == ["2"]
    tab.keyboard.press("ArrowUp")
    tab.keyboard.press("ArrowUp")
    assert parts(tab) == ["0/0", "0/1"]
    tab.keyboard.press("ArrowUp")
    assert parts(tab) == [str(len([path for path in by_path if "/" not in path]) - 1)]


def test_the_page_shows_how_much_each_assumption_explains(tab: Any) -> None:
    tab.click("#inside details summary")
    lines = tab.eval_on_selector_all("#inside-rounds tbody tr", "all => all.map((one) => one.innerText)")
    assert lines[0].split("\t") == ["H0: pixels are noise – rejected", "1", "1", "5", "300"]
    assert lines[1].startswith("H1: given its cluster, an image is noise – not rejected")


def test_a_name_of_a_part_is_kept_and_saved(tab: Any, run: RunFolder, tmp_path: Path) -> None:
    tab.click('#cards [data-group="0"] .open-node')
    field = tab.locator('#inside-parts [data-node="0/1"] input')
    field.fill("<b>thin</b>")
    field.press("Enter")
    tab.reload()
    tab.wait_for_selector("html[data-ready]")
    tab.click('#cards [data-group="0"] .open-node')
    assert tab.inner_text('#inside-parts [data-node="0/1"] h3') == "<b>thin</b>"
    with tab.expect_download() as waiting:
        tab.click("#save")
    saved = tmp_path / "clusters.json"
    waiting.value.save_as(saved)
    assert json.loads(saved.read_text())["leaves"] == {"0/1": "<b>thin</b>"}
    copy = tmp_path / "run"
    shutil.copytree(run.path, copy)
    assert cli.main(["relabel", str(copy), str(saved)]) == 0
    assert load_model(copy).path_name((0, 1)) == "0/<b>thin</b>"
