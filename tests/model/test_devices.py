"""What runs on a GPU, as far as it can be tried without one; on a machine that has one, it is tried."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from support.elsewhere import DEVICE, simulated
from torch import Tensor

from converge_to_surprise import SurpriseClustering
from converge_to_surprise.config import Config, Evolution, Merge, Network, Precision, Relaxed, Stage, Views
from converge_to_surprise.data import datasets
from converge_to_surprise.model import devices
from converge_to_surprise.model.network import ResNet9, flatten
from converge_to_surprise.runs import session
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.search import evolution, population
from converge_to_surprise.search import threads as workers
from converge_to_surprise.search.record import Record
from converge_to_surprise.search.trainer import Trainer

REAL = [name for name in ("cuda", "mps") if devices.here(name) == name]
SEARCH = Config(
    threads=1,
    schedule=(Stage("search", "relaxed", 3), Stage("merge", "merge", 1), Stage("refine", "refine", 1)),
    views=Views(fill_masked=True, upsample=2),
    max_clusters=16,
    network=Network(width=4, space_to_depth=True),
    relaxed=Relaxed(heads=2, batch_size=60, learning_rate=0.01, diversity_floor=(4.0, 6.0)),
    merge=Merge(augmented_pairs=200, neighbor_pairs=200, clusters=3, min_cluster_fraction=0.0),
)


def machine(monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("cuda", "mps", "found"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_is_the_first_that_is_there(cuda: bool, mps: bool, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cuda, mps)
    assert devices.chosen("auto") == found
    assert devices.chosen("cuda:1") == "cuda:1"


def test_a_device_that_is_not_there_is_refused_and_a_model_used_without_it() -> None:
    with pytest.raises(ValueError, match="device is 'abacus', which cannot be used here"):
        devices.check("abacus")
    assert devices.here("abacus") == "cpu"
    assert devices.here("auto") != "auto"


def test_nothing_is_left_to_choose(bars: Tensor, small: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cuda=False, mps=False)
    config = devices.effective(small, bars)
    assert (config.device, config.evolution.chunk) == ("cpu", 50)
    assert devices.effective(config, bars) == config
    assert replace(config, device="auto", evolution=small.evolution) == small
    assert Trainer(bars, small).config == config
    own = replace(small, evolution=replace(small.evolution, chunk=7))
    assert devices.effective(own, bars).evolution.chunk == 7


def test_a_precision_that_is_not_there_is_refused_before_anything_is_done(bars: Tensor, small: Config) -> None:
    with pytest.raises(ValueError, match="precision is 'tf32', which needs device cuda; the device is 'cpu'"):
        Trainer(bars, replace(small, device="cpu", precision="tf32"))


def test_a_run_says_where_it_ran(tmp_path: Path, small: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cuda=False, mps=False)
    np.savez(tmp_path / "images.npz", images=np.random.default_rng(0).integers(0, 255, (70, 8, 8), dtype=np.uint8))
    dataset = datasets.load(str(tmp_path / "images.npz"))
    run = RunFolder(tmp_path / "run")
    session.train(run, session.begin(run, dataset, "images.npz", None, "fast", small), dataset, [])
    saved = json.loads(run.config.read_text(encoding="utf-8"))["config"]
    assert (saved["device"], saved["evolution"]["chunk"], saved["precision"]) == ("cpu", 50, "float32")


def test_a_run_of_an_earlier_version_is_the_same_run(tmp_path: Path, small: Config) -> None:
    """Without the setting, as earlier versions wrote it, a run keeps its identity: its checkpoints are its own."""
    np.savez(tmp_path / "images.npz", images=np.zeros((70, 8, 8), dtype=np.uint8))
    dataset = datasets.load(str(tmp_path / "images.npz"))
    run = RunFolder(tmp_path / "run")
    session.begin(run, dataset, "images.npz", None, "fast", replace(small, device="cpu"))
    now = run.description()
    data = json.loads(run.config.read_text(encoding="utf-8"))
    del data["config"]["precision"]
    run.config.write_text(json.dumps(data), encoding="utf-8")
    assert run.description() == now
    lower = replace(now, config=replace(now.config, precision="bfloat16"))
    assert lower.identity != now.identity
    # What the version before this setting computed for this very description.
    assert now.identity == "a01d7a8b510627746981892cb136fa5b3b16f0e887707a750b2f119e821e7100"


def test_the_estimator_keeps_what_it_was_given_and_says_where_it_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cuda=False, mps=False)
    images = np.random.default_rng(0).integers(0, 255, (40, 8, 8), dtype=np.uint8)
    quick = {"schedule": ["search=relaxed:1", "merge=merge:1"], "precision": "bfloat16", "views": {"upsample": 1}}
    model = clone(SurpriseClustering(settings=quick, random_state=0)).fit(images)
    assert model.get_params()["device"] == "auto"
    assert (model.model_.config.device, model.model_.config.precision) == ("cpu", "bfloat16")


def test_one_worker_is_enough_for_a_gpu() -> None:
    for device, count in (("cpu", 3), ("cuda", 1), ("mps", 1)):
        with workers.pool(3, torch.device(device)) as pool:
            assert pool._max_workers == count  # type: ignore[attr-defined]


class TestOnASimulatedDevice:
    """Whole runs where doubles, mixing with the CPU's tensors and its generators are refused."""

    def test_it_refuses_what_a_gpu_refuses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with simulated(monkeypatch):
            there = torch.zeros(3, device=DEVICE)
            assert there.device == torch.device(DEVICE)
            with pytest.raises(TypeError, match="no doubles"):
                there.double()
            with pytest.raises(TypeError, match="no doubles"):
                there.copy_(torch.zeros(3, dtype=torch.double))
            with pytest.raises(TypeError, match="no doubles"):
                torch.zeros(3, dtype=torch.double, device=DEVICE)
            with pytest.raises(RuntimeError, match="one on the CPU"):
                there + torch.ones(3)
            with pytest.raises(RuntimeError, match="cannot draw"):
                torch.rand(3, generator=torch.Generator(), device=DEVICE)
            with pytest.raises(RuntimeError):
                there.numpy()
            assert torch.equal((there + 1).cpu(), torch.ones(3))

    @pytest.mark.parametrize("kind", ["evolution", "relaxed"])
    def test_runs_end_as_on_the_processor(
        self, kind: str, bars: Tensor, small: Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = replace(small if kind == "evolution" else SEARCH, device="cpu")
        expected, labels = _run(Trainer(bars, config))
        with simulated(monkeypatch):
            trainer = Trainer(bars, replace(config, device=DEVICE))
            assert trainer.config.evolution.chunk == (60 if kind == "evolution" else 120)
            found, there = _run(trainer)
            assert next(trainer.network.parameters()).device == torch.device(DEVICE)
        assert [record.surprise for record in found] == pytest.approx([record.surprise for record in expected])
        assert torch.equal(there, labels)

    def test_a_run_is_continued_there(self, bars: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
        config = replace(SEARCH, device=DEVICE, schedule=(Stage("search", "relaxed", 2),))
        with simulated(monkeypatch):
            trainer = Trainer(bars, config)
            steps = trainer.run()
            next(steps)
            broken_off = trainer.snapshot()
            twin = Trainer(bars, config)
            twin.restore(broken_off._replace(tensors={name: value.cpu() for name, value in broken_off.tensors.items()}))
            assert [_told(record) for record in twin.run()] == [_told(record) for record in steps]


def _told(record: Record) -> Record:
    return replace(record, seconds=0.0)


def _run(trainer: Trainer) -> tuple[list[Record], Tensor]:
    return list(trainer.run()), session.finish(trainer).reading.output


@pytest.mark.skipif(not REAL, reason="there is no GPU here")
class TestOnARealDevice:
    """Run these where there is a GPU: `pytest tests/test_devices.py -k Real`."""

    @pytest.mark.parametrize("device", REAL)
    def test_members_get_the_labels_that_the_processor_gives(self, device: str) -> None:
        torch.manual_seed(0)
        network = ResNet9(1, 16, width=8)
        views = population.Views(torch.rand(300, 1, 28, 28), torch.rand(300, 1, 28, 28))
        generation = evolution.Generation(0, 0, 1.0, Evolution(population=4, sigma=0.05))
        for theta in evolution.ask(flatten(network), generation, range(4)):
            here = population.member_labels(network, theta, views, 50)
            there = population.member_labels(
                network.to(device), theta.to(device), population.Views(*(view.to(device) for view in views)), 128
            )
            network.cpu()
            assert here is not None
            assert there is not None
            for one, other in zip(here, there, strict=True):
                assert (one == other.cpu()).float().mean() > 0.99

    @pytest.mark.parametrize("device", REAL)
    @pytest.mark.parametrize("wanted", ["float32", "tf32", "bfloat16", "float16"])
    @pytest.mark.parametrize("kind", ["evolution", "relaxed"])
    def test_short_runs_end_and_repeat(
        self, device: str, wanted: Precision, kind: str, bars: Tensor, small: Config
    ) -> None:
        if device == "mps" and wanted != "float32":
            pytest.skip("CUDA only")
        config = replace(small if kind == "evolution" else SEARCH, device=device, precision=wanted)
        first, labels = _run(Trainer(bars, config))
        again, same = _run(Trainer(bars, config))
        assert [_told(record) for record in first] == [_told(record) for record in again]
        assert torch.equal(labels, same)
