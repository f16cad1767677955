from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from support.neighbor_table import nearest_neighbors
from torch import Tensor

from converge_to_surprise.config import Config, Network, Relaxed, Stage
from converge_to_surprise.core import surprise
from converge_to_surprise.core.measures import Measures, measure
from converge_to_surprise.core.views import make_views, to_float
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.model.inference import label_views, view_features
from converge_to_surprise.model.network import ClusterNetwork
from converge_to_surprise.search import neighbors, relaxed, schedule
from converge_to_surprise.search import trainer as trainer_module
from converge_to_surprise.search.trainer import Trainer


def one_hot(labels: Tensor, clusters: int) -> Tensor:
    """(B,) -> (B, 1 head, K)"""
    return torch.nn.functional.one_hot(labels, clusters).double()[:, None]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=4, max_size=60))
def test_hard_assignments_give_the_surprise_score_itself(pairs: list[tuple[int, int]]) -> None:
    first, second = (torch.tensor(side) for side in zip(*pairs, strict=True))
    score, share = relaxed.relaxed_surprise(one_hot(first, 5), one_hot(second, 5))
    counts = surprise.count(first, second, 5)
    assert float(score) == pytest.approx(float(surprise.surprise(counts)), abs=1e-4)
    torch.testing.assert_close(share[0], surprise.marginal(counts))


def test_the_gradient_is_finite_at_collapse_and_for_inactive_outputs() -> None:
    logits = torch.zeros(10, 1, 4, dtype=torch.double)
    logits[..., 0] = 1e4
    logits.requires_grad_()
    soft = torch.softmax(logits, -1)
    score, share = relaxed.relaxed_surprise(soft, soft)
    (score + relaxed.diversity(share, torch.tensor([1.0]), 1.0)).sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


def test_the_gradient_agrees_with_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(12, 1, 3, generator=generator, dtype=torch.double)

    def score(logits: Tensor) -> Tensor:
        first, second = torch.softmax(logits, -1).tensor_split(2)
        return relaxed.relaxed_surprise(first, second)[0].sum()

    assert torch.autograd.gradcheck(score, base.requires_grad_())


def test_the_diversity_penalty_applies_below_the_floor() -> None:
    shares = torch.tensor([[1 / 8] * 8, [0.5, 0.5, 0, 0, 0, 0, 0, 0]])
    penalty = relaxed.diversity(shares, torch.tensor([4.0, 4.0]).log(), 2.0)
    assert penalty.tolist() == pytest.approx([0.0, 2 * (math.log(2) - math.log(4))], abs=1e-6)


def test_the_penalty_ends_with_its_part_of_the_search(small: Config) -> None:
    images, _ = striped_images(40)
    settings = Relaxed(heads=2, batch_size=10, diversity_floor=(4.0, 6.0), diversity_until=0.5)
    trainer = Trainer(images, replace(small, schedule=(Stage("search", "relaxed", 1),), relaxed=settings))
    floors = [trainer._floor(step) for step in schedule.steps(trainer.config, 40)]
    assert [floor is None for floor in floors] == [False, False, True, True]
    assert floors[0] is not None
    assert floors[0].exp().tolist() == pytest.approx([4.0, 6.0])


def test_floors_are_evenly_spaced_over_the_heads() -> None:
    settings = Relaxed(diversity_floor=(4.0, 10.0))
    assert relaxed.floors(settings, 4).exp().tolist() == pytest.approx([4, 6, 8, 10])
    assert relaxed.floors(settings, 1).exp().tolist() == pytest.approx([7])


def test_the_learning_rate_rises_then_falls() -> None:
    rates = [relaxed.learning_rate(2e-3, step, step / 300) for step in range(300)]
    assert rates[0] < rates[10] < rates[29]
    assert np.argmax(rates) < 40
    assert rates[-1] < 0.01 * max(rates)


def test_calibration_activates_the_outputs(small: Config) -> None:
    images, _ = striped_images(200)

    def active_outputs(calibrated: bool) -> int:
        network = random_network(Config(seed=0, max_clusters=32, network=Network(width=4)), 1, 1)
        if calibrated:
            relaxed.calibrate(network, images, small)
        view, _ = make_views(to_float(images), small.views)
        labels = network.train().logits(view).argmax(-1)
        return int((torch.bincount(labels) > 0).sum())

    assert active_outputs(calibrated=True) >= 12
    assert active_outputs(calibrated=True) > 2 * active_outputs(calibrated=False)


def test_calibrated_outputs_have_nearly_the_same_spread(small: Config) -> None:
    """In whitened features every random direction varies as much as every other; in raw ones a few dominate."""
    images, _ = striped_images(200)
    network = random_network(Config(seed=0, max_clusters=32, network=Network(width=4)), 1, 1)
    relaxed.calibrate(network, images, small)
    view, _ = make_views(to_float(images), small.views)
    spread = network.train().logits(view).detach().std(0)
    assert float(spread.max() / spread.min()) < 2.0


def one_step(small: Config, settings: Relaxed, refining: bool) -> Tensor:
    """The change of the head in one step from the same initial network, on the same images."""
    images, _ = striped_images(40)
    network = random_network(Config(seed=0, max_clusters=8, network=Network(width=2)), 1, 1)
    config = replace(small, relaxed=settings)
    relaxed.calibrate(network, images, config)
    before = network.head.weight.detach().clone()
    floor = None if refining else relaxed.floors(settings, 1)
    info = relaxed.StepInfo(number=0, in_stage=100, progress=0.0, refining=refining, floor=floor)
    pairs = relaxed.Pairs(images[:20], images[20:])
    relaxed.relaxed_step(network, relaxed.new_optimizer(network, config), pairs, config, info)
    return network.head.weight.detach() - before


def test_refining_has_no_diversity_penalty_and_its_own_learning_rate(small: Config) -> None:
    without, penalized = Relaxed(diversity=0.0), Relaxed(diversity=50.0)
    assert not torch.equal(one_step(small, without, False), one_step(small, penalized, False))
    assert torch.equal(one_step(small, without, True), one_step(small, penalized, True))
    slow, fast = (one_step(small, Relaxed(refine_learning_rate=rate), True).abs().max() for rate in (1e-3, 1e-2))
    assert float(fast) > 5 * float(slow) > 0


def test_each_stage_has_its_own_temperature(small: Config) -> None:
    cold, warm, both = Relaxed(), Relaxed(refine_temperature=0.1), Relaxed(temperature=0.1, refine_temperature=0.1)
    assert torch.equal(one_step(small, cold, False), one_step(small, warm, False))
    assert not torch.equal(one_step(small, cold, True), one_step(small, warm, True))
    assert torch.equal(one_step(small, warm, True), one_step(small, both, True))


def test_at_a_higher_temperature_confident_views_still_receive_gradient() -> None:
    """Outputs far from every boundary: at low T the softmax is nearly one-hot and its gradient vanishes."""

    def slope(temperature: float) -> float:
        outputs = F.normalize(torch.eye(4).repeat(6, 1) + 0.1, dim=1).requires_grad_()
        soft = torch.softmax(outputs / temperature, -1)[:, None]
        score, _ = relaxed.relaxed_surprise(soft[:12], soft[12:])
        (gradient,) = torch.autograd.grad(score.sum(), outputs)
        return float(gradient.abs().max())

    assert slope(0.1) > 1000 * slope(0.025) > 0


def test_neighbors_are_found_by_pixels_at_first_and_by_features_when_refining(small: Config) -> None:
    images, _ = striped_images(80)
    stages = (Stage("search", "relaxed", 1), Stage("merge", "merge", 1), Stage("refine", "refine", 1))
    config = replace(small, schedule=stages, relaxed=Relaxed(heads=2, batch_size=40))
    trainer = Trainer(images, config)
    kinds = []
    tables = {}
    for record in trainer.run():
        kinds.append(record.kind)
        assert trainer.neighbors is not None
        tables[record.kind] = trainer.neighbors.clone()
    assert kinds == ["relaxed", "relaxed", "merge", "refine", "refine"]
    assert torch.equal(tables["relaxed"], nearest_neighbors(images, config, 1))
    assert torch.equal(tables["merge"], tables["relaxed"])
    assert not torch.equal(tables["refine"], tables["relaxed"])


@pytest.mark.parametrize("between", [(), (Stage("consolidate", "consolidate", 1),)])
def test_the_features_of_the_merge_are_used_only_while_the_backbone_is_the_same(
    between: tuple[Stage, ...], small: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refining right after the merge computes no features again; after a training step it must."""
    images, _ = striped_images(80)
    stages = (Stage("search", "relaxed", 1), Stage("merge", "merge", 1), *between, Stage("refine", "refine", 1))
    config = replace(small, schedule=stages, relaxed=Relaxed(heads=2, batch_size=40))
    computed: list[int] = []

    def counted(network: ClusterNetwork, pixels: Tensor, *rest: Any) -> Tensor:
        computed.append(len(pixels))
        return view_features(network, pixels, *rest)

    for module in (neighbors, trainer_module):
        monkeypatch.setattr(module, "view_features", counted)
    trainer = Trainer(images, config)
    expected = None
    for record in trainer.run():
        if record.kind == "refine":
            break
        if trainer.network.heads == 1:
            expected = nearest_neighbors(images, config, 1, trainer.network)
        computed.clear()
    assert expected is not None
    assert trainer.neighbors is not None
    assert torch.equal(trainer.neighbors, expected)
    assert computed == ([80] if between else [])


def test_the_record_of_a_merge_measures_the_fused_network(small: Config) -> None:
    images, _ = striped_images(80)
    stages = (Stage("search", "relaxed", 2), Stage("merge", "merge", 1))
    trainer = Trainer(images, replace(small, schedule=stages, relaxed=Relaxed(heads=2, batch_size=40)))
    *_, last = trainer.run()
    labels = label_views(trainer.network, images, small.views)
    assert Measures(**{name: getattr(last, name) for name in Measures._fields}) == measure(
        *labels, trainer.network.n_outputs, small.consolidation.tau
    )


def test_the_search_finds_the_classes_of_striped_images(small: Config) -> None:
    """Search, merge, refine and label, all without classes."""
    images, classes = striped_images(400)
    stages = (Stage("search", "relaxed", 20), Stage("merge", "merge", 1), Stage("refine", "refine", 5))
    settings = Relaxed(heads=4, batch_size=100, diversity_floor=(3, 6))
    network = replace(small.network, width=4)
    config = replace(small, schedule=stages, relaxed=settings, network=network, max_clusters=16)
    trainer = Trainer(images, config)
    records = list(trainer.run())
    assert records[79].surprise > records[0].surprise + 0.3
    assert trainer.network.heads == 1
    assert trainer.networks.merge_result is not None
    assert trainer.network.n_outputs == trainer.networks.merge_result.n_clusters
    labels, _ = label_views(trainer.network, images, config.views)
    found = labels.numpy()
    purity = sum(np.bincount(classes[found == k]).max() for k in np.unique(found)) / len(found)
    assert purity > 0.95
    assert len(np.unique(found)) <= 12
