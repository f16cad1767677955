"""Whole searches on a simulated device, and on a real GPU where there is one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.configs import timeless
from support.elsewhere import DEVICE, simulated
from torch import Tensor

from converge_to_surprise.config import Config, Evolution, Merge, Network, Precision, Relaxed, Stage, Views
from converge_to_surprise.model import devices
from converge_to_surprise.model.network import ResNet9, flatten
from converge_to_surprise.search import evolution, population
from converge_to_surprise.search.population import BatchLabeler, ViewPair
from converge_to_surprise.search.record import Record
from converge_to_surprise.search.restarts import Restarts
from converge_to_surprise.search.trainer import Trainer

REAL = [name for name in ("cuda", "mps") if devices.resolve_or_cpu(name) == name]
SEARCH = Config(
    threads=1,
    schedule=(Stage("search", "relaxed", 3), Stage("merge", "merge", 1), Stage("refine", "refine", 1)),
    views=Views(fill_masked=True, upsample=2),
    max_clusters=16,
    n_clusters=3,
    network=Network(width=4, space_to_depth=True),
    relaxed=Relaxed(heads=2, batch_size=60, learning_rate=0.01, diversity_floor=(4.0, 6.0)),
    merge=Merge(min_cluster_fraction=0.0),
)


def searched(images: Tensor, config: Config) -> tuple[Restarts, list[Record], Tensor]:
    """A finished search, its records and the winning outputs."""
    search = Restarts(images, config)
    records = list(search.run())
    return search, records, search.finish().outputs.winner


class TestOnASimulatedDevice:
    """Doubles, tensors of both devices in one operation and generators of the CPU are refused."""

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["evolution", "relaxed"])
    def test_searches_end_as_on_the_cpu(
        self, kind: str, bars: Tensor, small: Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = replace(small if kind == "evolution" else SEARCH, device="cpu")
        _, expected, labels = searched(bars, config)
        with simulated(monkeypatch):
            search, records, found = searched(bars, replace(config, device=DEVICE))
            assert search.config.evolution.chunk_size == (60 if kind == "evolution" else 120)
            assert next(search.trainer.network.parameters()).device == torch.device(DEVICE)
        assert [record.surprise for record in records] == pytest.approx([record.surprise for record in expected])
        assert torch.equal(found, labels)

    def test_a_search_is_resumed_there(self, bars: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
        config = replace(SEARCH, device=DEVICE, schedule=(Stage("search", "relaxed", 2),))
        with simulated(monkeypatch):
            trainer = Trainer(bars, config)
            steps = trainer.run()
            next(steps)
            saved = trainer.snapshot()
            twin = Trainer(bars, config)
            twin.restore(saved._replace(tensors={name: value.cpu() for name, value in saved.tensors.items()}))
            remaining = [timeless(record) for record in twin.run()]
            assert len(remaining) == 3
            assert remaining == [timeless(record) for record in steps]


@pytest.mark.skipif(not REAL, reason="there is no GPU here")
class TestOnARealDevice:
    """Run these where there is a GPU: `pytest tests/search/test_gpu_runs.py -k Real`."""

    @pytest.mark.parametrize("device", REAL)
    def test_members_get_the_labels_of_the_cpu(self, device: str) -> None:
        torch.manual_seed(0)
        network = ResNet9(1, 16, width=8)
        views = ViewPair(torch.rand(300, 1, 28, 28), torch.rand(300, 1, 28, 28))
        generation = evolution.Generation(0, 0, 1.0, Evolution(population=4, sigma=0.05))
        for theta in evolution.ask(flatten(network), generation, range(4)):
            here = population.member_labels(BatchLabeler(network, views, 50), theta)
            moved = ViewPair(*(view.to(device) for view in views))
            there = population.member_labels(BatchLabeler(network.to(device), moved, 128), theta.to(device))
            network.cpu()
            assert here is not None
            assert there is not None
            for one, other in zip(here, there, strict=True):
                assert (one == other.cpu()).float().mean() > 0.99

    @pytest.mark.parametrize("device", REAL)
    @pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16", "float16"])
    @pytest.mark.parametrize("kind", ["evolution", "relaxed"])
    def test_short_searches_are_reproducible(
        self, device: str, precision: Precision, kind: str, bars: Tensor, small: Config
    ) -> None:
        if device == "mps" and precision != "float32":
            pytest.skip("CUDA only")
        config = replace(small if kind == "evolution" else SEARCH, device=device, precision=precision)
        _, first, labels = searched(bars, config)
        _, again, same = searched(bars, config)
        assert [timeless(record) for record in first] == [timeless(record) for record in again]
        assert torch.equal(labels, same)
