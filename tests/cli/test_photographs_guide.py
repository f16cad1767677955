"""The commands of the guide "Cluster your photographs", with a small model under the name that they use."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support import hub, onnx_models
from support.color_photos import write_colors
from support.doc_commands import command_lines
from support.picture_run import table

from converge_to_surprise.model.pretrained import open_backbone

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "photographs.md"
PROGRAM = """
import json, sys
from converge_to_surprise import cli
from converge_to_surprise.model.pretrained.catalog import CATALOG, CatalogEntry
commit, checksum, commands = sys.argv[1:]
CATALOG["dinov2-small"] = CatalogEntry(
    "org/tiny", commit, "onnx/model.onnx", checksum, 1, "none", "small", "made by a test"
)
for words in json.loads(commands):
    print("$", *words, flush=True)
    if cli.main(words):
        sys.exit(f"{words} failed")
"""


@pytest.mark.slow
@pytest.mark.subprocess
def test_the_commands_of_the_guide_work(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    write_colors(tmp_path / "photos")
    write_colors(tmp_path / "more-photos", 6)
    place = tmp_path / "files"
    onnx_models.save(onnx_models.vectors(), place / "onnx" / "model.onnx", size="16")
    checksum = open_backbone(str(place / "onnx" / "model.onnx")).identity.sha256
    hub.cache(place, tmp_path / "home")
    commands = [shlex.split(line) for line in command_lines(GUIDE.read_text(encoding="utf-8"))]
    assert {words[0] for words in commands} >= {"backbones", "fit", "report", "predict", "sort", "export"}
    (tmp_path / "runs").mkdir()
    settings = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, hub.COMMIT, checksum, json.dumps(commands)],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **settings},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "verdict" in done.stdout
    assert (tmp_path / "runs" / "photos" / "report.html").is_file()
    assert len(table(tmp_path / "clusters.csv")) == 6
    assert sum(path.suffix == ".png" for path in (tmp_path / "sorted").rglob("*")) == 6
    assert onnxruntime.InferenceSession(tmp_path / "photos.onnx").get_inputs()[0].shape[1:] == [3, 16, 16]
