from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from converge_to_surprise.config import Config, Network
from converge_to_surprise.model import network as net
from converge_to_surprise.model.backbone import random_network

PADDINGS: tuple[net.Padding, ...] = ("black", "background")


def test_the_network_of_the_paper_has_its_number_of_parameters() -> None:
    assert sum(p.numel() for p in net.ResNet9(1, 64).parameters()) == 107_320


@pytest.mark.parametrize(("channels", "height", "width"), [(1, 1, 1), (1, 2, 7), (3, 28, 28), (3, 33, 17), (1, 8, 8)])
def test_any_image_size_gives_normalized_logits(channels: int, height: int, width: int) -> None:
    network = net.ResNet9(channels, 7, width=2).eval()
    outputs = network(torch.rand(4, channels, height, width))
    assert outputs.shape == (4, 7)
    torch.testing.assert_close(outputs.norm(dim=1), torch.ones(4))


def test_a_hidden_layer_on_pixels_gives_centered_features() -> None:
    network = random_network(Config(network=Network(hidden=5, pixels=3 * 4 * 6), max_clusters=7), 3, heads=2)
    assert isinstance(network, net.PixelNetwork)
    views = torch.rand(40, 3, 4, 6)
    assert network(views).shape == (40, 2, 7)
    features = network.features(views)
    torch.testing.assert_close(features.mean(0), torch.zeros(5), atol=1e-5, rtol=0)
    rectified = torch.relu(network.norm(network.hidden(views.flatten(1))))
    assert torch.equal(features.argmax(0), rectified.argmax(0))


def test_few_outputs_of_a_hidden_layer_never_win() -> None:
    network = random_network(Config(network=Network(hidden=32, pixels=64)), 1, heads=1)
    winners = network(torch.rand(2000, 1, 8, 8)).argmax(1).unique()
    assert len(winners) > 55


@given(st.integers(1, 3), st.integers(2, 9), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=20)
def test_unflatten_undoes_flatten(channels: int, n_outputs: int, width: int, heads: int) -> None:
    network = net.ResNet9(channels, n_outputs, width, heads)
    theta = net.flatten(network)
    for name, value in net.unflatten(theta, network).items():
        assert torch.equal(value, network.get_parameter(name))
    other = net.ResNet9(channels, n_outputs, width, heads)
    net.load_flat(theta, other)
    assert torch.equal(net.flatten(other), theta)


def test_a_vector_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="107320 parameters"):
        net.unflatten(torch.zeros(3), net.ResNet9(1, 64))


def test_each_head_has_its_own_outputs() -> None:
    network = net.ResNet9(1, 5, width=2, heads=3).eval()
    images = torch.rand(4, 1, 8, 8)
    logits = network.logits(images)
    assert logits.shape == (4, 3, 5)
    for head in range(3):
        torch.testing.assert_close(network.select_head(head).logits(images), logits[:, head])


def test_space_to_depth_keeps_every_pixel() -> None:
    images = torch.rand(2, 3, 4, 6)
    rearranged = net.space_to_depth(images)
    assert rearranged.shape == (2, 12, 2, 3)
    assert torch.equal(rearranged.flatten().sort().values, images.flatten().sort().values)
    assert torch.equal(rearranged[:, 0], images[:, 0, ::2, ::2])
    assert torch.equal(net.space_to_depth(torch.ones(1, 1, 3, 5)), torch.ones(1, 4, 2, 3))


@given(st.sampled_from([1, 3]), st.booleans(), st.integers(1, 12), st.integers(1, 12), st.integers(0, 999))
@settings(max_examples=40)
def test_with_background_padding_the_first_unit_cannot_detect_the_edge_of_a_plain_image(
    channels: int, space_to_depth: bool, height: int, width: int, seed: int
) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        black, background = (
            net.ResNet9(channels, 5, 2, space_to_depth=space_to_depth, padding=padding) for padding in PADDINGS
        )
        plain = torch.rand(2, channels, 1, 1).expand(2, channels, height, width)
    with torch.no_grad():
        found, usual = (
            network.get_submodule("units.0.conv")(network.prepare(plain)) for network in (background, black)
        )
    assert found.shape == usual.shape
    torch.testing.assert_close(found, found[..., :1, :1].expand_as(found))


def test_on_a_black_background_both_paddings_are_the_same() -> None:
    images = torch.zeros(3, 3, 12, 9)
    images[..., 2:-2, 2:-2] = torch.rand(3, 3, 8, 5, generator=torch.Generator().manual_seed(0))
    for space_to_depth in (False, True):
        black, background = (
            net.ResNet9(3, 5, 2, space_to_depth=space_to_depth, padding=padding).eval() for padding in PADDINGS
        )
        background.load_state_dict(black.state_dict())
        torch.testing.assert_close(background.logits(images), black.logits(images))


def test_the_network_is_built_as_configured() -> None:
    for padding in PADDINGS:
        config = Config(max_clusters=5, network=Network(width=2, space_to_depth=True, padding=padding))
        network = random_network(config, 3, 2)
        assert isinstance(network, net.ResNet9)
        assert (network.padding, network.space_to_depth) == (padding, True)
        assert (network.channels, network.heads, network.n_outputs) == (3, 2, 5)
        assert network.head.weight.shape == (10, 16)


def test_the_padding_has_the_background_color_of_the_image() -> None:
    image = torch.tensor([[[[0.2, 0.2, 0.9], [0.2, 0.5, 0.4], [0.2, 0.2, 0.4]]]])
    padded = net.pad_with_background(image, 1, 2)
    assert padded.shape == (1, 1, 6, 6)
    torch.testing.assert_close(padded[..., 1:4, 1:4], image)
    torch.testing.assert_close(padded[..., 0, :], torch.full((1, 1, 6), 0.2))
    torch.testing.assert_close(padded[..., :, 4:], torch.full((1, 1, 6, 2), 0.2))


def test_a_network_with_space_to_depth_has_one_unit_less_and_takes_any_size() -> None:
    network = net.ResNet9(1, 7, width=2, space_to_depth=True).eval()
    assert len(network.units) == len(net.ResNet9(1, 7, width=2).units) - 1
    for size in ((1, 1), (9, 16), (28, 28)):
        assert network(torch.rand(4, 1, *size)).shape == (4, 7)


def test_random_weights_are_determined_by_seed_and_attempt_and_the_global_generator_is_not_changed() -> None:
    def weights(seed: int, attempt: int = 0) -> torch.Tensor:
        config = Config(seed=seed, max_clusters=5, network=Network(width=2))
        return net.flatten(random_network(config, 1, 1, attempt))

    before = torch.get_rng_state()
    first = weights(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, weights(3))
    assert not torch.equal(first, weights(4))
    assert not torch.equal(first, weights(3, attempt=1))


def test_the_first_network_with_enough_active_outputs_is_drawn_or_else_the_one_with_most() -> None:
    active = [3, 5, 4, 12, 20]
    drawn = {attempt: net.ResNet9(1, 2, 1) for attempt in range(len(active))}
    position = {id(network): attempt for attempt, network in drawn.items()}

    def count(network: net.ClusterNetwork) -> int:
        return active[position[id(network)]]

    assert net.draw_active_network(drawn.__getitem__, count, wanted=10, attempts=5) is drawn[3]
    assert net.draw_active_network(drawn.__getitem__, count, wanted=99, attempts=5) is drawn[4]
    assert net.draw_active_network(drawn.__getitem__, count, wanted=99, attempts=3) is drawn[1]
