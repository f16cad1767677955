"""Models by name: from the hub's cache, from a server that answers like the hub, and without any network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import hub
from support import onnx_models as made

from converge_to_surprise.model.pretrained import open_backbone
from converge_to_surprise.model.pretrained.catalog import CATALOG
from converge_to_surprise.model.pretrained.hub import COMMIT, needed_files, parse_name

pytestmark = pytest.mark.subprocess
PROGRAM = """
import json, sys
import torch
from converge_to_surprise.model.pretrained import open_backbone
from converge_to_surprise.model.pretrained.catalog import CATALOG, CatalogEntry
torch.set_num_threads(1)
source, commit, pinned = sys.argv[1:]
if pinned:
    CATALOG["tiny"] = CatalogEntry("org/tiny", commit, "onnx/model.onnx", pinned, 1, "none", "small", "made by a test")
try:
    backbone = open_backbone(source)
    size = backbone.identity.preprocess.size
    found = backbone(torch.full((1, 3, size, size), 0.25))
    print(json.dumps({"identity": backbone.identity.to_dict(), "features": found.tolist()}))
except ValueError as error:
    print(json.dumps({"error": str(error)}))
"""


def run(source: str, home: Path, pinned: str = "", **environment: str) -> dict[str, Any]:
    """Open a backbone in a new process: huggingface_hub reads its settings when it is imported."""
    settings = {
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, source, hub.COMMIT, pinned], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **settings, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert "\n" not in found.get("error", "")
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with an ONNX file, a quantized one and pickles."""
    place = tmp_path / "files"
    made.save(made.vectors(), place / "onnx" / "model.onnx")
    made.save(made.vectors(seed=1), place / "onnx" / "model_int8.onnx")
    (place / "pytorch_model.bin").write_bytes(b"never fetched")
    (place / "config.json").write_text('{"model_type": "vit"}')
    (place / "preprocessor_config.json").write_text(json.dumps(hub.PREPROCESSOR))
    return place


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.mark.parametrize("source", ["hf:org/tiny", "hf:org/tiny@main", f"hf:org/tiny@{hub.COMMIT}"])
def test_the_cache_serves_without_a_network(folder: Path, home: Path, source: str) -> None:
    snapshot = hub.cache(folder, home)
    found = run(source, home, HF_HUB_OFFLINE="1")
    direct = open_backbone(str(snapshot)).identity
    assert found["identity"] == {**direct.to_dict(), "source": source, "pinned": f"hf:org/tiny@{hub.COMMIT}"}
    assert direct.preprocess.to_dict()["std"] == [0.5, 0.25, 0.5]


def test_external_data_in_the_cache_is_found(tmp_path: Path, home: Path) -> None:
    """The files of a snapshot are links to blobs, outside of the model's own folder."""
    place = tmp_path / "files"
    made.save_external(made.vectors(), place / "onnx" / "model.onnx", "model.onnx_data")
    (place / "onnx" / "model.onnx_data").write_bytes(made.weights().tobytes())
    hub.cache(place, home)
    assert len(run("hf:org/tiny", home, HF_HUB_OFFLINE="1")["features"][0]) == 8


def test_what_is_needed_is_downloaded_once(folder: Path, home: Path) -> None:
    with hub.server(folder) as (address, asked):
        first = run("hf:org/tiny@main", home, HF_ENDPOINT=address)
        assert first["identity"]["pinned"] == f"hf:org/tiny@{hub.COMMIT}"
        fetched = {path.rpartition("main")[2] for path in asked if "/resolve/" in path}
        assert fetched == {"/onnx/model.onnx", "/config.json", "/preprocessor_config.json"}
        asked.clear()
        again = run(first["identity"]["pinned"], home, HF_ENDPOINT=address)
        assert again["features"] == first["features"]
        assert asked == [], "a commit that is in the cache needs no network"
    unreachable = run("hf:org/tiny@main", home, HF_ENDPOINT=address)
    assert unreachable["features"] == first["features"], "the server is gone, the cache is not"


def test_safetensors_are_downloaded_where_there_is_no_onnx(tmp_path: Path, home: Path) -> None:
    place = hub.save(hub.build("vit", **hub.SMALL), tmp_path / "files")
    with hub.server(place) as (address, _):
        found = run("hf:org/tiny", home, HF_ENDPOINT=address)
    assert found["identity"]["features"] == 16
    assert found["identity"]["sha256"] == open_backbone(str(place)).identity.sha256


def test_a_short_name_is_checked_against_its_pin(folder: Path, home: Path) -> None:
    checksum = open_backbone(str(folder)).identity.sha256
    with hub.server(folder) as (address, _):
        found = run("tiny", home, checksum, HF_ENDPOINT=address)
        assert (found["identity"]["source"], found["identity"]["sha256"]) == ("tiny", checksum)
    wrong = run("tiny", home, "ab" * 32, HF_HUB_OFFLINE="1")
    assert f"has the sha256 {checksum}, but tiny is pinned to abab" in wrong["error"]


def test_without_a_network_the_message_tells_what_to_do(home: Path) -> None:
    for settings in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        for source in ("hf:org/tiny", "dinov2-small"):
            error = run(source, home, **settings)["error"]
            assert error.startswith("cannot reach the Hugging Face hub for hf:")
            assert "give an ONNX file with --backbone FILE, or run `hf download" in error


def test_what_the_hub_does_not_have(folder: Path, home: Path) -> None:
    with hub.server(folder) as (address, _):
        assert "has no model hf:org/other" in run("hf:org/other", home, HF_ENDPOINT=address)["error"]
    for file in (*folder.glob("onnx/*"), folder / "config.json"):
        file.unlink()
    with hub.server(folder) as (address, asked):
        assert "neither an ONNX file" in run("hf:org/tiny", home, HF_ENDPOINT=address)["error"]
        assert not any("/resolve/" in path for path in asked), "pickles are not even fetched"


@pytest.mark.parametrize("source", ["hf:", "hf:tiny", "hf:../etc/passwd", "hf:a/b/c", "hf:a/b@", "hf:a b/c", "hf:/tmp"])
def test_wrong_names_are_refused(source: str) -> None:
    with pytest.raises(ValueError, match="must have the form hf:ORG/NAME"):
        parse_name(source)


def test_an_unknown_short_name_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no backbone 'dinov9'; give one of dinov2-small, "):
        open_backbone("dinov9")


def test_names_of_files_are_chosen_and_not_followed() -> None:
    names = ["../../evil.safetensors", "onnx/model.onnx", "onnx/model.onnx_data", "onnx/model.onnx_data/../x", "a.bin"]
    assert needed_files(names, "x") == ("onnx/model.onnx", "onnx/model.onnx_data")


def test_short_names_are_pinned() -> None:
    for entry in CATALOG.values():
        assert COMMIT.fullmatch(entry.revision)
        assert entry.sha256 is None or len(entry.sha256) == 64
        assert entry.file in needed_files([entry.file, "config.json"], "x", entry.file)
