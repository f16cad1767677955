"""Adam with loss scaling, and its state."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from converge_to_surprise.config import Config, Precision, Relaxed, Stage
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model.network import ClusterNetwork, ResNet9, flatten
from converge_to_surprise.search import relaxed
from converge_to_surprise.search.optimizer import EPS, REFINE_EPS, Optimizer
from converge_to_surprise.search.trainer import Trainer

INITIAL_SCALE = 2.0**16


@pytest.fixture
def network() -> ClusterNetwork:
    torch.manual_seed(0)
    return ResNet9(1, 4, width=1)


def loss_of(network: ClusterNetwork, step: int = 0) -> Tensor:
    """A loss that differs from step to step."""
    images = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(step))
    loss: Tensor = network(images)[:, 0].square().mean()
    return loss


def overflowing_loss(network: ClusterNetwork) -> Tensor:
    """A loss whose scaled gradient exceeds the range of float32."""
    return torch.stack([(1e38 * parameter).sum() for parameter in network.parameters()]).sum()


def scale(optimizer: Optimizer) -> float:
    return float(optimizer.data()["scaler"]["scale"])


def test_scaled_steps_equal_steps_without_scaling(network: ClusterNetwork) -> None:
    before, twin = flatten(network), copy.deepcopy(network)
    plain, scaled = Optimizer(network, "float32", 0.01), Optimizer(twin, "float16", 0.01)
    for step in range(5):
        plain.minimize(loss_of(network, step))
        scaled.minimize(loss_of(twin, step))
    assert not torch.allclose(flatten(network), before)
    torch.testing.assert_close(flatten(twin), flatten(network))
    assert plain.data()["scaler"] == {}
    assert scale(scaled) == INITIAL_SCALE


def test_a_step_that_overflows_is_skipped_and_the_scale_halved(network: ClusterNetwork) -> None:
    optimizer, before = Optimizer(network, "float16"), flatten(network)
    optimizer.minimize(overflowing_loss(network))
    assert torch.equal(flatten(network), before)
    assert scale(optimizer) == INITIAL_SCALE / 2
    optimizer.minimize(loss_of(network))
    assert not torch.equal(flatten(network), before)
    assert scale(optimizer) == INITIAL_SCALE / 2


def test_the_gradients_can_be_completed_before_the_step(network: ClusterNetwork) -> None:
    """As the processes of a group do: without the gradients of the others the step would be another one."""
    optimizer, before = Optimizer(network, "float32"), flatten(network)

    def remove_gradients() -> None:
        gradients = [parameter.grad for parameter in network.parameters()]
        assert any(gradient is not None and bool(gradient.any()) for gradient in gradients)
        for gradient in gradients:
            assert gradient is not None
            gradient.zero_()

    optimizer.minimize(loss_of(network), remove_gradients)
    assert torch.equal(flatten(network), before)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_loaded_optimizer_continues_bit_for_bit(precision: Precision, network: ClusterNetwork) -> None:
    optimizer = Optimizer(network, precision)
    optimizer.set_learning_rate(0.03)
    optimizer.minimize(overflowing_loss(network) if precision == "float16" else loss_of(network))
    for step in range(3):
        optimizer.minimize(loss_of(network, step))
    tensors, data = optimizer.tensors(), json.loads(json.dumps(optimizer.data()))
    twin, fresh = copy.deepcopy(network), copy.deepcopy(network)
    loaded, without_state = Optimizer(twin, precision), Optimizer(fresh, precision, 0.03)
    loaded.load({"network.head.bias": torch.zeros(4)} | tensors, data)
    for step in range(3, 6):
        for one, which in ((optimizer, network), (loaded, twin), (without_state, fresh)):
            one.minimize(loss_of(which, step))
    assert torch.equal(flatten(twin), flatten(network))
    assert not torch.equal(flatten(fresh), flatten(network)), "the state must matter for this to show anything"
    assert json.dumps(loaded.data()) == json.dumps(optimizer.data())
    assert loaded.tensors().keys() == optimizer.tensors().keys() != set()
    assert all(torch.equal(value, optimizer.tensors()[name]) for name, value in loaded.tensors().items())


def test_the_saved_tensors_are_copies(network: ClusterNetwork) -> None:
    optimizer = Optimizer(network, "float32")
    optimizer.minimize(loss_of(network))
    saved = optimizer.tensors()
    before = {name: value.clone() for name, value in saved.items()}
    optimizer.minimize(loss_of(network, 1))
    assert len(saved) == 3 * len(list(network.parameters()))
    assert all(torch.equal(value, before[name]) for name, value in saved.items())
    assert not torch.equal(optimizer.tensors()["optimizer.0.exp_avg"], before["optimizer.0.exp_avg"])


def test_the_scale_grows_after_many_steps_without_overflow(network: ClusterNetwork) -> None:
    optimizer = Optimizer(network, "float16")
    optimizer.minimize(loss_of(network))
    data = optimizer.data()
    data["scaler"] |= {"scale": 64.0, "_growth_tracker": data["scaler"]["growth_interval"] - 1}
    optimizer.load(optimizer.tensors(), data)
    optimizer.minimize(loss_of(network, 1))
    assert scale(optimizer) == 128.0


def test_refining_does_not_follow_a_gradient_of_rounding_errors(network: ClusterNetwork) -> None:
    """Where clusters are clearly apart there is hardly a gradient; a step of the size of the learning rate would be a
    step at random.
    """
    config = Config()
    changes = []
    for refining in (False, True):
        twin = copy.deepcopy(network)
        optimizer = relaxed.new_optimizer(twin, config, refining)
        optimizer.minimize(1e-8 * torch.stack([parameter.sum() for parameter in twin.parameters()]).sum())
        changes.append(float((flatten(twin) - flatten(network)).abs().max()))
    assert changes[0] > 0.3 * config.relaxed.learning_rate
    assert changes[1] < 0.01 * config.relaxed.learning_rate


def test_only_the_refining_stage_is_careful(small: Config) -> None:
    images, _ = striped_images(40)
    stages = (Stage("search", "relaxed", 1), Stage("merge", "merge", 1), Stage("refine", "refine", 1))
    trainer = Trainer(images, replace(small, schedule=stages, relaxed=Relaxed(heads=2, batch_size=20)))
    found = {}
    for record in trainer.run():
        if trainer.optimizer is not None:
            found[record.kind] = trainer.optimizer.adam.param_groups[0]["eps"]
    assert found == {"relaxed": EPS, "refine": REFINE_EPS}
