from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import CLIMBING, trained
from torch import Tensor

from converge_to_surprise.config import Config, Evolution, Guided, Network, Stage, Views
from converge_to_surprise.config.stage import StageKind
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model.network import ResNet9, flatten, load_flat
from converge_to_surprise.search import evolution, guided
from converge_to_surprise.search.evolution import Generation, Guide
from converge_to_surprise.search.guided import Memory
from converge_to_surprise.search.population import ViewPair
from converge_to_surprise.search.relaxed import relaxed_surprise
from converge_to_surprise.search.trainer import Trainer

GUIDED = Guided(gradients=2, updates=2, batch_size=40)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def orthonormal(rows: int, size: int, seed: int = 0) -> Tensor:
    columns: Tensor = torch.linalg.qr(normal(size, rows, seed=seed))[0]
    return columns.t().contiguous()


@given(st.integers(2, 12), st.integers(1, 4), st.floats(0, 0.99), st.integers(0, 99))
@settings(max_examples=30)
def test_steered_noise_agrees_with_the_oracle(size: int, rows: int, share: float, seed: int) -> None:
    rows = min(rows, size)
    basis, isotropic, within = orthonormal(rows, size, seed), normal(size, seed=seed + 1), normal(rows, seed=seed + 2)
    steered = Guide(basis, share).steer(isotropic, within)
    expected = reference.guided_noise(isotropic.tolist(), within.tolist(), basis.tolist(), share)
    np.testing.assert_allclose(steered, expected, rtol=1e-4, atol=1e-5)


def generation(population: int, guide: Guide | None, fraction: float = 1.0) -> Generation:
    return Generation(3, 5, fraction, Evolution(population=population, sigma=0.5), guide)


@pytest.mark.parametrize("share", [0.0, 0.6])
def test_the_mean_update_for_a_linear_score_is_the_covariance_times_its_gradient(share: float) -> None:
    """Unbiased in this sense for any subspace: within it the slope counts more, outside it is not lost."""
    size, population, sigma = 8, 8000, 0.5
    guide, slope, theta = Guide(orthonormal(2, size), share), normal(size, seed=7), torch.zeros(size)
    now = generation(population, guide)
    members = torch.stack(list(evolution.ask(theta, now, range(population))))
    found = evolution.weighted_noise(theta, (members @ slope).double(), now) / (population * sigma**2)
    covariance = np.array(reference.guided_covariance(guide.basis.tolist(), share))
    # The terms of the mean have about this deviation; four standard errors.
    error = 4 * np.sqrt(np.diag(covariance) * (slope.numpy() @ covariance @ slope.numpy()) * 2 / (population / 2))
    assert (np.abs(found.numpy() - covariance @ slope.numpy()) < error).all()


def test_members_are_as_far_from_the_center_as_in_plain_evolution() -> None:
    guide = Guide(orthonormal(5, 400), 0.7)
    squares = [float(evolution.noise(generation(2, guide), pair, 400).square().sum()) for pair in range(300)]
    assert np.mean(squares) == pytest.approx(0.5**2 * 400, rel=0.1)


def test_steered_noise_touches_the_perturbed_parameters_only() -> None:
    drawn = evolution.noise(generation(2, Guide(orthonormal(2, 50), 0.5), 0.2), 0, 50)
    assert int((drawn != 0).sum()) == 10


def test_without_directions_the_noise_is_that_of_evolution() -> None:
    alone = evolution.noise(generation(2, None), 0, 20)
    assert torch.equal(evolution.noise(generation(2, Guide(torch.zeros(0, 20), 0.5)), 0, 20), alone)


def test_the_basis_is_orthonormal_and_spans_what_was_remembered() -> None:
    memory = Memory.empty(torch.zeros(30))
    assert memory.basis().shape == (0, 30)
    for number in range(4):
        memory = memory.with_gradient(1e3 * normal(30, seed=number), GUIDED)
        memory = memory.with_update(1e-3 * normal(30, seed=number + 10), GUIDED)
    assert torch.equal(memory.gradients[0], 1e3 * normal(30, seed=3))
    basis = memory.basis()
    torch.testing.assert_close(basis @ basis.t(), torch.eye(4), atol=1e-5, rtol=0)
    for direction in torch.cat(list(memory)):
        torch.testing.assert_close(
            (basis @ direction) @ basis, direction, rtol=1e-3, atol=1e-4 * float(direction.norm())
        )


def test_directions_that_add_nothing_are_left_out() -> None:
    memory = Memory.empty(torch.zeros(9)).with_gradient(normal(9), GUIDED)
    same = memory.with_gradient(2 * normal(9), GUIDED).with_update(torch.zeros(9), GUIDED)
    assert len(same.basis()) == 1
    assert len(memory.with_gradient(torch.full((9,), torch.nan), GUIDED).gradients) == 1


def test_the_surrogate_gradient_is_the_slope_of_the_relaxed_surprise() -> None:
    torch.manual_seed(0)
    network = ResNet9(1, 5, width=2).double()
    views = ViewPair(*(torch.rand(60, 1, 6, 6, generator=torch.Generator().manual_seed(n)).double() for n in (1, 2)))
    config = Config(guided=GUIDED)
    before = copy.deepcopy(network.state_dict())
    gradient = guided.surrogate_gradient(network, views, config)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(p.grad is None for p in network.parameters())

    def score(theta: Tensor) -> float:
        twin = copy.deepcopy(network)
        load_flat(theta, twin)
        soft_i, soft_j = (torch.softmax(twin(view[:40])[:, None] / config.guided.temperature, -1) for view in views)
        return float(relaxed_surprise(soft_i, soft_j)[0].detach())

    theta, direction = flatten(network), normal(len(gradient)).double()
    slope = (score(theta + 1e-6 * direction) - score(theta - 1e-6 * direction)) / 2e-6
    assert float(gradient @ direction) == pytest.approx(slope, rel=1e-3)


def test_guided_evolution_climbs_faster_than_plain_evolution() -> None:
    images = striped_images(200)[0]
    few = Stage("search", "evolution", 4)
    config = replace(CLIMBING, schedule=(few,), guided=Guided(batch_size=100))

    def reached(kind: Stage) -> float:
        ends = [list(Trainer(images, replace(config, seed=s, schedule=(kind,))).run())[-1].surprise for s in range(2)]
        return float(np.mean(ends))

    assert reached(replace(few, kind="guided")) > 1.5 * reached(few)


def test_guided_evolution_works_on_stored_features_and_with_any_score() -> None:
    """The score without a gradient decides, although the gradient is that of the relaxed surprise."""
    centers = 3 * normal(4, 12)
    items = (centers.repeat_interleave(30, 0)[:, None, None] + 0.3 * normal(120, 2, 3, 12, seed=1)).half()
    config = Config(
        threads=1,
        max_clusters=8,
        schedule=(Stage("search", "guided", 15, passes=1, every=5),),
        views=Views(stored=True),
        network=Network(inputs=12, min_active_outputs=2),
        evolution=Evolution(population=8, batch_size=120, ramp_epochs=1, sigma=0.1, learning_rate=0.2),
        guided=GUIDED,
    )
    agreeing = trained(items, config, lambda i, j: float((i == j).sum()) * len(set(i.tolist())))
    records = list(Trainer(items, config).run())
    assert records[-1].surprise > records[0].surprise + 0.2
    assert not torch.equal(flatten(agreeing.network), flatten(trained(items, config).network))


@pytest.mark.parametrize("kind", ["evolution", "guided"])
def test_views_of_neighbors_are_pairs_of_evolution_too(kind: StageKind) -> None:
    """An item with a single view always agrees with itself, with its neighbors only if the labels are good."""
    items = (3 * normal(4, 12).repeat_interleave(30, 0) + normal(120, 12, seed=1)).half()[:, None, None]
    config = Config(
        threads=1,
        max_clusters=8,
        schedule=(Stage("search", kind, 20),),
        views=Views(stored=True),
        network=Network(inputs=12, min_active_outputs=2),
        evolution=Evolution(population=8, batch_size=120, ramp_epochs=1, sigma=0.1, learning_rate=0.2),
        guided=GUIDED,
    )
    own = list(Trainer(items, config).run())
    assert {record.agreement for record in own} == {1.0}
    near = list(Trainer(items, replace(config, evolution=replace(config.evolution, neighbor_prob=1.0))).run())
    assert near[0].agreement < 0.95
    assert near[-1].agreement > near[0].agreement + 0.05
    assert near[-1].surprise > near[0].surprise
