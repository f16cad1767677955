"""Calibrated confidence: the probability that an augmented view gets the same cluster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import centered

from converge_to_surprise.config import Augmentation, Config, Network
from converge_to_surprise.core.augment import augment
from converge_to_surprise.core.views import make_views, to_float
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.model.calibration import MAX_SHARPNESS, calibrate, sharpness_of
from converge_to_surprise.model.inference import run_all


@settings(max_examples=20, deadline=None)
@given(true=st.floats(1, 40), seed=st.integers(0, 1000))
def test_the_sharpness_that_generated_the_labels_is_recovered(true: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.nn.functional.normalize(torch.randn(4000, 5, generator=generator), dim=1)
    chances = torch.softmax(true * outputs, 1)
    seen = torch.multinomial(chances, 1, generator=generator)[:, 0]
    # The labels of sharp outputs carry little information: the tolerance is six standard errors.
    information = ((chances * outputs**2).sum(1) - (chances * outputs).sum(1) ** 2).sum()
    error = 6 * float(information) ** -0.5
    assert error < true / 2
    assert sharpness_of(outputs, seen) == pytest.approx(true, rel=0.01, abs=error)


def test_labels_that_always_agree_give_a_confidence_of_1() -> None:
    outputs = torch.eye(3).repeat(50, 1)
    sharpness = sharpness_of(outputs, outputs.argmax(1))
    assert sharpness <= MAX_SHARPNESS
    assert torch.softmax(sharpness * outputs, 1).max(1).values.min() > 0.9999


def test_labels_that_never_agree_give_the_smallest_sharpness() -> None:
    outputs = torch.eye(3).repeat(50, 1)
    assert sharpness_of(outputs, (outputs.argmax(1) + 1) % 3) == pytest.approx(1, abs=0.01)


def test_confidence_is_the_frequency_with_which_augmented_views_agree() -> None:
    """Calibration: among images with confidence c, augmented views get the same cluster with frequency c."""
    images, _ = striped_images(600)
    config = Config(augmentation=Augmentation(rotation=40, crop=2, brightness=0.3))
    network = random_network(Config(seed=1, max_clusters=4, network=Network(width=4)), 1, 1)
    with torch.no_grad():  # features are centered, so that several outputs win
        for view in make_views(to_float(images), config.views) * 30:
            features = network.features(view)
        network.head.bias.copy_(-(network.head.weight @ features.mean(0)))
    calibration = calibrate(network, images, config)
    assert 1 < calibration.sharpness < MAX_SHARPNESS
    outputs = run_all(network, images, config.views, calibration, keep=("probabilities",))
    confidences = outputs.probabilities.max(1).values
    generator = torch.Generator().manual_seed(9)
    network.eval()
    agreed = torch.zeros(len(images))
    for _ in range(10):
        for view in make_views(to_float(images), config.views, generator):
            with torch.no_grad():
                changed = augment(view, config.augmentation, generator, signed=False)
                agreed += (network(changed).argmax(1) == outputs.winner) / 20
    assert abs(float(confidences.mean() - agreed.mean())) < 0.05
    order = np.argsort(confidences.numpy())
    least, most = order[:200], order[-200:]
    assert agreed[least].mean() < agreed[most].mean()
    assert abs(float(confidences[most].mean() - agreed[most].mean())) < 0.12


def test_the_sharpness_is_determined_by_the_seed_and_the_network_is_not_changed() -> None:
    images, _ = striped_images(50)
    config = Config(augmentation=Augmentation(rotation=40))
    network = random_network(Config(seed=1, max_clusters=4, network=Network(width=2)), 1, 1)
    centered(network, images).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    first, again, other = (calibrate(network, images, replace(config, seed=s)).sharpness for s in (0, 0, 1))
    assert first == again != other
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
