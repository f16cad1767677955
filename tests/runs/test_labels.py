"""The table of labels is written in pieces; nobody can tell from it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from torch import Tensor

from converge_to_surprise.config import Config, Network
from converge_to_surprise.core.views import make_views, to_float
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.model.cluster_model import CalibratedNetwork, Model
from converge_to_surprise.model.inference import read, run_all
from converge_to_surprise.runs import labels


@pytest.fixture(scope="module")
def model(bars: Tensor) -> Model:
    config = Config(max_clusters=6, network=Network(width=2))
    network = random_network(1, config.network, 1, seed=0)
    return Model(config, (1, 8, 8), CalibratedNetwork(network, 10.0, (20, 30, 10, 5, 55, 0)))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("tree", [False, True])
def test_pieces_are_as_good_as_the_whole(
    tmp_path: Path, model: Model, bars: Tensor, named: bool, tree: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = model.run_all(bars)
    names = [f"ä {number},\udcff.png" for number in range(len(bars))] if named else None
    parts = torch.arange(len(bars)) % 7 if tree else None
    written = []
    for size in (len(bars), 50, 7, 1):
        monkeypatch.setattr(labels, "ROWS", size)
        labels.write_labels(tmp_path / "labels.csv", reading, model, parts, names)
        written.append((tmp_path / "labels.csv").read_bytes())
    assert len(set(written)) == 1
    with (tmp_path / "labels.csv").open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        rows = list(csv.DictReader(file))
    prediction = model.name(reading)
    assert [int(row["cluster"]) for row in rows] == prediction.cluster.tolist()
    assert [int(row["second"]) for row in rows] == prediction.second.tolist()
    assert [row["path" if named else "image"] for row in rows] == (names or [str(n) for n in range(len(bars))])
    assert [int(row["part"]) for row in rows] == ([-1] * len(bars) if parts is None else parts.tolist())


def test_everything_is_read_in_order_and_probabilities_can_be_left_out(model: Model, bars: Tensor) -> None:
    network, views = model.final.network, model.config.views
    images = torch.cat([bars, bars.flip(0), bars.flip(3), bars.flip(2), bars.roll(1, 0)])  # more than one chunk
    whole = run_all(network, images, views, 10.0)
    brief = run_all(network, images, views, 10.0, probabilities=False)
    parts = list(read(network, images, views, 10.0))
    assert len(parts) > 2
    assert torch.equal(whole.probabilities, torch.cat([part.probabilities for part in parts]))
    assert brief.probabilities.shape == (len(images), 0)
    for name in ("view_i", "view_j", "output"):
        assert torch.equal(getattr(whole, name), torch.cat([getattr(part, name) for part in parts]))
        assert torch.equal(getattr(brief, name), getattr(whole, name))


def test_both_views_by_a_slow_loop(bars: Tensor) -> None:
    config = Config()
    network = fresh_network(1, Network(clusters=6, width=2), 1, seed=0)
    with torch.no_grad():  # a head on centered features, so that every output wins somewhere
        for view in make_views(to_float(bars), config.views) * 30:
            features = network.features(view)
        network.head.bias.copy_(-(network.head.weight @ features.mean(0)))
    first, second, both, _, _ = read_whole(network, bars, config.views, 10.0)
    network.eval()
    with torch.no_grad():
        for index, image in enumerate(bars):
            views = make_views(to_float(image[None]), config.views)
            outputs = [network.logits(view)[0] for view in views]
            winners = [int(out.argmax()) for out in outputs]
            mean = sum((out / out.norm() for out in outputs), torch.zeros(6)) / 2
            expected = [*winners, int(mean.argmax())]
            assert [int(first[index]), int(second[index]), int(both[index])] == expected
    assert len({tuple(labels.tolist()) for labels in (first, second, both)}) == 3
