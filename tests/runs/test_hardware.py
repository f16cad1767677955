"""The hardware settings with which a run is computed belong to its description."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from converge_to_surprise.config import Config
from converge_to_surprise.data import datasets
from converge_to_surprise.data.datasets import Dataset
from converge_to_surprise.runs import session
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.search.chunking import best_chunk_size


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    path = tmp_path / "images.npz"
    np.savez(path, images=np.random.default_rng(0).integers(0, 255, (70, 8, 8), dtype=np.uint8))
    return datasets.load(str(path))


def test_the_resolved_device_and_chunk_size_are_saved(
    dataset: Dataset, small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert (small.device, small.evolution.chunk_size) == ("auto", 0)
    run = RunFolder(tmp_path / "run")
    session.begin(run, dataset, session.Origin("images.npz", "fast"), small)
    saved = json.loads(run.config.read_text(encoding="utf-8"))["config"]
    chunk = best_chunk_size(torch.device("cpu"), dataset.train.images.shape, small)
    assert (saved["device"], saved["evolution"]["chunk_size"], saved["precision"]) == ("cpu", chunk, "float32")


def test_a_setting_that_is_missing_in_the_description_has_its_default(
    dataset: Dataset, small: Config, tmp_path: Path
) -> None:
    """A run of a version before the setting existed keeps its identity, and with it its checkpoints."""
    run = RunFolder(tmp_path / "run")
    session.begin(run, dataset, session.Origin("images.npz", "fast"), replace(small, device="cpu"))
    written = run.description()
    data = json.loads(run.config.read_text(encoding="utf-8"))
    del data["config"]["precision"]
    run.config.write_text(json.dumps(data), encoding="utf-8")
    assert run.description() == written
    assert run.description().identity == written.identity
    other = replace(written, config=replace(written.config, precision="bfloat16"))
    assert other.identity != written.identity
