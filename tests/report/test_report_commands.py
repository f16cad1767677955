"""cts compare, cts relabel, the live server and the event files."""

from __future__ import annotations

import builtins
import http.client
import json
import re
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from sklearn.metrics import adjusted_rand_score
from support.digit_run import CONFIG, IMAGES, make_run, write_source

from converge_to_surprise import cli
from converge_to_surprise.data import datasets
from converge_to_surprise.report.comparison import compare_runs
from converge_to_surprise.report.content import gather, open_pictures
from converge_to_surprise.report.events import event_files
from converge_to_surprise.report.live import serve
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.runs.load import load_model
from converge_to_surprise.search.record import Record

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    folder = tmp_path_factory.mktemp("runs")
    source = write_source(folder)
    return [make_run(folder / f"seed-{seed}", source, replace(CONFIG, seed=seed)) for seed in (0, 1)]


@pytest.fixture
def run(runs: list[RunFolder]) -> Iterator[RunFolder]:
    yield runs[0]
    runs[0].annotations.unlink(missing_ok=True)


def clusters_file(run: RunFolder, folder: Path, *entries: dict[str, Any]) -> Path:
    identity = run.description().identity
    path = folder / "clusters.json"
    path.write_text(
        json.dumps({"format": "converge-to-surprise clusters", "version": 1, "run": identity, "clusters": entries})
    )
    return path


def clusters_of(run: RunFolder) -> Any:
    store = datasets.load(run.description().source).train
    return torch.cat([found.cluster for found in load_model(run.path).predict(store.images)]).numpy()


def test_relabel_changes_predictions_and_the_next_report_and_can_be_undone(run: RunFolder, tmp_path: Path) -> None:
    before = clusters_of(run)
    entries: list[dict[str, Any]] = [
        {"cluster": 0, "name": "round"},
        {"cluster": 1, "into": 0},
        {"cluster": 2, "noise": True},
    ]
    assert cli.main(["relabel", str(run.path), str(clusters_file(run, tmp_path, *entries))]) == 0
    after = clusters_of(run)
    assert np.array_equal(after, np.array([0, 0, -1, *range(3, 16)])[before])
    clustering = gather(run, open_pictures(run))["clustering"]
    assert [(entry["name"], entry["into"], entry["noise"]) for entry in clustering["annotations"]][:4] == [
        ("round", None, False), (None, 0, False), (None, None, True), (None, None, False)
    ]  # fmt: skip
    counted = sum(cell[3] for cell in clustering["cells"] if cell[0] == 1)
    assert counted == (before == 1).sum()  # the page can take apart what was merged
    assert cli.main(["relabel", str(run.path), "--undo"]) == 0
    assert np.array_equal(clusters_of(run), before)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give the clusters.json"),
        (["--undo"], "nothing to undo"),
        (["FILE", "--undo"], "not both"),
        (["missing.json"], "cannot read missing.json"),
    ],
)
def test_relabel_answers_mistakes_in_one_line(
    run: RunFolder, tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(clusters_file(run, tmp_path))
    assert cli.main(["relabel", str(run.path), *(file if word == "FILE" else word for word in words)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_relabel_refuses_an_unfinished_run(run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun = RunFolder(tmp_path / "begun")
    begun.make()
    begun.describe(run.description())
    assert cli.main(["relabel", str(begun.path), str(clusters_file(run, tmp_path))]) == 2
    assert "is not finished" in capsys.readouterr().err


def test_comparison(runs: list[RunFolder]) -> None:
    found = compare_runs(runs)
    labels = [clusters_of(run) for run in runs]
    assert found["ari"][0][1] == pytest.approx(adjusted_rand_score(*labels), abs=1e-4)
    assert found["ari"][0][0] == found["nmi"][1][1] == 1
    assert found["ari"][0][1] == found["ari"][1][0]
    for a, b, number in found["flows"][0]:
        assert number == ((labels[0] == a) & (labels[1] == b)).sum() > 0
    assert sum(number for _, _, number in found["flows"][0]) == IMAGES
    assert [cluster["size"] for cluster in found["runs"][1]["clusters"]] == np.bincount(labels[1]).tolist()
    assert [row["name"] for row in found["settings"] if row["differs"]] == ["seed"]
    assert [run["name"] for run in found["runs"]] == ["seed-0", "seed-1"]


def test_compare_command(runs: list[RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "both.html"
    assert cli.main(["compare", *(str(run.path) for run in runs), "--out", str(out)]) == 0
    assert "2 runs on 360 images" in out.read_text()
    assert cli.main(["compare", str(runs[0].path)]) == 2
    assert "at least two runs" in capsys.readouterr().err


def test_of_several_seeds_the_consensus_is_named(
    runs: list[RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = shutil.copytree(runs[0].path, tmp_path / "twin")
    odd = RunFolder(shutil.copytree(runs[1].path, tmp_path / "odd <one>"))
    found = np.roll(clusters_of(odd), 7)
    rows = [f"{number},{label}" for number, label in enumerate(found)]
    odd.labels.write_text("\n".join(["image,cluster", *rows]))
    out = tmp_path / "three.html"
    paths = [odd.path, runs[0].path, twin]
    assert cli.main(["compare", *map(str, paths), "--out", str(out)]) == 0
    assert "agrees most with the others: seed-0\n" in capsys.readouterr().out
    assert "seed-0 agrees most with the others" in out.read_text()
    content = compare_runs([RunFolder(path) for path in paths])
    apart = adjusted_rand_score(found, clusters_of(runs[0]))
    expected = [apart, (1 + apart) / 2, (1 + apart) / 2]
    shown = [float(value) for value in content["results"][-1][1:]]
    assert shown == pytest.approx(expected, abs=5.1e-4), "rounded to three digits"
    assert compare_runs(runs)["consensus"] is None, "two are as like each other as each other"


def test_runs_on_other_images_are_not_compared(runs: list[RunFolder], tmp_path: Path) -> None:
    other = RunFolder(tmp_path / "other")
    other.make()
    other.describe(replace(runs[0].description(), fingerprint="00", source="elsewhere.npz"))
    with pytest.raises(ValueError, match="is not finished"):
        compare_runs([runs[0], other])
    other.result.write_text("{}")
    other.labels.write_text("image,cluster\n")
    with pytest.raises(ValueError, match=rf"{runs[0].path} and {other.path} were made with different images"):
        compare_runs([runs[0], other])


class Client:
    """Asks the live server as a browser would, or as one should not."""

    def __init__(self, url: str) -> None:
        self.port = int(re.search(r":(\d+)/$", url)[1])  # type: ignore[index]

    def ask(self, path: str, method: str = "GET", host: str | None = None) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or f"127.0.0.1:{self.port}")
        connection.endheaders()
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read().decode()
        connection.close()
        return found


@pytest.fixture
def client(run: RunFolder) -> Iterator[Client]:
    with serve(run.path, 0, QUIET) as url:
        yield Client(url)


def test_live_server_knows_three_paths(client: Client) -> None:
    status, headers, text = client.ask("/")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"
    assert "Python" not in headers["Server"]
    assert "connect-src" in text
    assert json.loads(client.ask("/content.json")[2])["live"] is True
    assert json.loads(client.ask("/progress.json")[2])["finished"] is True
    for path in (
        "/config.json",
        "/../config.json",
        "/static/page.css",
        "/?x",
        "/%2e%2e/config.json",
        "/progress.json/",
    ):
        assert client.ask(path)[0] == 404


def test_live_server_only_reads(client: Client) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert client.ask("/", method)[0] == 501
    status, headers, text = client.ask("/progress.json", "HEAD")
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize("host", ["evil.example", "evil.example:PORT", "127.0.0.1", "127.0.0.1:1", "127.0.0.2:PORT"])
def test_live_server_refuses_strangers_names(client: Client, host: str) -> None:
    status, _, text = client.ask("/content.json", host=host.replace("PORT", str(client.port)))
    assert status == 421
    assert "identity" not in text
    assert client.ask("/progress.json", host=f"localhost:{client.port}")[0] == 200


def test_live_server_listens_on_loopback_only_and_ends_with_the_block(run: RunFolder) -> None:
    with serve(run.path, 0, QUIET) as url:
        port = Client(url).port
        assert url == f"http://127.0.0.1:{port}/"
        with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.2", port), timeout=5):
            pass
        with pytest.raises(ValueError, match=rf"cannot serve on 127.0.0.1:{port}"), serve(run.path, port, QUIET):
            pass
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", port), timeout=5):
        pass


def test_live_server_survives_a_damaged_file(run: RunFolder, client: Client) -> None:
    before = run.result.read_bytes()
    run.result.write_bytes(b"{")
    try:
        status, _, text = client.ask("/progress.json")
    finally:
        run.result.write_bytes(before)
    assert status == 503
    assert "cannot read" in text
    assert client.ask("/progress.json")[0] == 200


def record(step: int) -> Record:
    return Record(
        step=step, epoch=step, stage="explore", kind="evolution", surprise=0.1 * step, orderliness=1.0, agreement=0.5,
        surprising=1, active=2, views=10, seconds=0.5,
    )  # fmt: skip


def test_event_files_hold_every_record(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    steps: list[Record] = [record(step) for step in range(3)]
    with event_files(tmp_path) as reader:
        for one in steps:
            reader(one)
    found = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    scalars = found.Scalars("run/surprise")
    assert [(event.step, event.value) for event in scalars] == [
        (one.step, pytest.approx(one.surprise)) for one in steps
    ]
    assert [event.value for event in found.Scalars("clusters/active")] == [2, 2, 2]


def test_event_files_without_the_package_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("torch.utils.tensorboard"):
            raise ModuleNotFoundError("No module named 'tensorboard'")
        return genuine(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"pip install 'converge-to-surprise\[tensorboard\]'"), event_files(tmp_path):
        pass
