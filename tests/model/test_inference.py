"""Outputs of a network for images: the same by chunks, at once, and from known features."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from converge_to_surprise.config import Config, Network, Views
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model import inference
from converge_to_surprise.model.backbone import random_network
from converge_to_surprise.model.inference import CHUNK, Calibration, Known, Outputs
from converge_to_surprise.model.network import ClusterNetwork
from converge_to_surprise.model.novelty import descriptors, fit_novelty, image_statistics

VIEWS = Views(fill_masked=True)


@pytest.fixture(scope="module")
def images() -> Tensor:
    """Two whole chunks, and one so small that it is filled up by repetition."""
    return striped_images(2 * CHUNK + 10)[0]


@pytest.fixture(scope="module")
def network(images: Tensor) -> ClusterNetwork:
    """Two heads whose outputs are active, with running statistics that differ from the initial ones."""
    network = random_network(Config(seed=1, max_clusters=6, network=Network(width=4)), 1, 2).train()
    with torch.no_grad():
        for _ in range(20):
            features = network.features(images.float() / 255)
        network.head.bias.copy_(-(network.head.weight @ features.mean(0)))
    return network


@pytest.fixture(scope="module")
def calibration(network: ClusterNetwork, images: Tensor) -> Calibration:
    features = inference.view_features(network, images, VIEWS)
    values = descriptors(features[:, 0], features[:, 1], image_statistics(images))
    return Calibration(7.0, fit_novelty(values, features.shape[2]))


def joined(chunks: list[Outputs]) -> Outputs:
    return Outputs(*(torch.cat(values) for values in zip(*chunks, strict=True)))


def equal(found: Outputs, expected: Outputs) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_outputs_are_those_of_both_views(network: ClusterNetwork, images: Tensor, calibration: Calibration) -> None:
    single = network.single()
    outputs = joined(list(inference.run(single, images, VIEWS, calibration)))
    labels_i, labels_j = inference.label_views(single, images, VIEWS)
    assert len(set(labels_i.tolist())) > 1, "several outputs must win for this to show anything"
    assert torch.equal(outputs.view_i, labels_i)
    assert torch.equal(outputs.view_j, labels_j)
    assert torch.equal(outputs.winner, outputs.probabilities.argmax(1))
    torch.testing.assert_close(outputs.probabilities.sum(1), torch.ones(len(images)))
    assert torch.equal(outputs.features, inference.view_features(single, images, VIEWS).mean(1))


def test_outputs_from_known_features_are_those_from_the_images_bit_for_bit(
    network: ClusterNetwork, images: Tensor, calibration: Calibration
) -> None:
    single, keep = network.single(), ("probabilities", "features")
    features = inference.view_features(single, images, VIEWS)
    expected = inference.run_all(single, images, VIEWS, calibration, keep)
    assert equal(inference.run_all(single, images, VIEWS, calibration, keep, Known(features)), expected)
    chunks = joined(list(inference.run(single, images, VIEWS, calibration)))
    assert equal(expected, chunks._replace(features=chunks.features.half()))


def test_outputs_do_not_depend_on_the_number_of_threads(
    network: ClusterNetwork, images: Tensor, calibration: Calibration
) -> None:
    single, before = network.single(), torch.get_num_threads()
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        found.append(inference.run_all(single, images, VIEWS, calibration, ("probabilities", "features")))
    torch.set_num_threads(before)
    assert equal(found[0], found[1])


def test_only_the_named_columns_are_kept(network: ClusterNetwork, images: Tensor, calibration: Calibration) -> None:
    single = network.single()
    labels_only = inference.run_all(single, images, VIEWS, calibration)
    with_probabilities = inference.run_all(single, images, VIEWS, calibration, ("probabilities",))
    assert [value.shape for value in labels_only[3:5]] == [(len(images), 0), (len(images), 0)]
    assert [value.shape for value in with_probabilities[3:5]] == [(len(images), 6), (len(images), 0)]
    assert equal(labels_only, with_probabilities._replace(probabilities=labels_only.probabilities))


def test_logits_of_features_are_those_of_every_head(network: ClusterNetwork, images: Tensor) -> None:
    features = inference.view_features(network, images, VIEWS)
    labels = inference.logits_of(network, features[:, 0]).argmax(-1)
    assert labels.shape == (len(images), 2)
    assert torch.equal(labels, inference.label_views(network, images, VIEWS)[0])


def test_features_of_some_positions_are_rows_of_those_of_all_images(network: ClusterNetwork, images: Tensor) -> None:
    positions = torch.arange(len(images)).flip(0)[: CHUNK + 30]
    features = inference.view_features(network, images, VIEWS)
    torch.testing.assert_close(inference.view_features(network, images, VIEWS, positions), features[positions])


def test_few_images_are_filled_up_and_cut_again(network: ClusterNetwork, images: Tensor) -> None:
    few, many = (list(inference.map_views(network, images[:n], VIEWS, network.forward)) for n in (3, 40))
    assert [len(view) for pair in few for view in pair] == [3, 3]
    for found, expected in zip(few[0], many[0], strict=True):
        torch.testing.assert_close(found, expected[:3])


@pytest.mark.parametrize("training", [False, True])
def test_the_mode_and_the_state_of_the_network_are_not_changed(
    training: bool, network: ClusterNetwork, images: Tensor
) -> None:
    network.train(training)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    inference.label_views(network, images[:40], VIEWS)
    inference.view_features(network, images[:40], VIEWS)
    inference.map_augmented_views(network, images[:40], Config(), generator, network.features)
    assert network.training == training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_no_images_are_refused(network: ClusterNetwork, images: Tensor, calibration: Calibration) -> None:
    with pytest.raises(ValueError, match="there are no images to label"):
        inference.run_all(network.single(), images[:0], VIEWS, calibration)
