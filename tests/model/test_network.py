from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from converge_to_surprise.config import Network
from converge_to_surprise.model import network as net
from converge_to_surprise.model.backbone import random_network

FIVE = Network(clusters=5, width=2)
BORDERS: tuple[net.Border, ...] = ("black", "background")


def test_the_network_of_the_paper_has_its_number_of_parameters() -> None:
    assert sum(p.numel() for p in net.ResNet9(1, 64).parameters()) == 107_320


@pytest.mark.parametrize(("channels", "height", "width"), [(1, 1, 1), (1, 2, 7), (3, 28, 28), (3, 33, 17), (1, 8, 8)])
def test_any_image_size_gives_normalized_logits(channels: int, height: int, width: int) -> None:
    network = net.ResNet9(channels, 7, width=2).eval()
    outputs = network(torch.rand(4, channels, height, width))
    assert outputs.shape == (4, 7)
    torch.testing.assert_close(outputs.norm(dim=1), torch.ones(4))


@given(st.integers(1, 3), st.integers(2, 9), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=20)
def test_unflatten_undoes_flatten(channels: int, clusters: int, width: int, heads: int) -> None:
    network = net.ResNet9(channels, clusters, width, heads)
    theta = net.flatten(network)
    for name, value in net.unflatten(theta, network).items():
        assert torch.equal(value, network.get_parameter(name))
    other = net.ResNet9(channels, clusters, width, heads)
    net.load_flat(theta, other)
    assert torch.equal(net.flatten(other), theta)


def test_a_vector_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="107320 parameters"):
        net.unflatten(torch.zeros(3), net.ResNet9(1, 64))


def test_several_heads_share_the_trunk() -> None:
    network = net.ResNet9(1, 5, width=2, heads=3).eval()
    logits = network.logits(torch.rand(4, 1, 8, 8))
    assert logits.shape == (4, 3, 5)


def test_folding_loses_no_pixel() -> None:
    images = torch.rand(2, 3, 4, 6)
    folded = net.fold(images)
    assert folded.shape == (2, 12, 2, 3)
    assert torch.equal(folded.flatten().sort().values, images.flatten().sort().values)
    assert torch.equal(folded[:, 0], images[:, 0, ::2, ::2])
    assert torch.equal(net.fold(torch.ones(1, 1, 3, 5)), torch.ones(1, 4, 2, 3))


@given(st.sampled_from([1, 3]), st.booleans(), st.integers(1, 12), st.integers(1, 12), st.integers(0, 999))
@settings(max_examples=40)
def test_the_first_unit_cannot_see_where_a_plain_ground_ends(
    channels: int, folded: bool, height: int, width: int, seed: int
) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        black, background = (net.ResNet9(channels, 5, 2, folded=folded, boundary=boundary) for boundary in BORDERS)
        plain = torch.rand(2, channels, 1, 1).expand(2, channels, height, width)
    with torch.no_grad():
        seen, usual = (network.get_submodule("units.0.conv")(network.prepare(plain)) for network in (background, black))
    assert seen.shape == usual.shape
    torch.testing.assert_close(seen, seen[..., :1, :1].expand_as(seen))


def test_on_black_ground_both_borders_are_the_same() -> None:
    images = torch.zeros(3, 3, 12, 9)
    images[..., 2:-2, 2:-2] = torch.rand(3, 3, 8, 5, generator=torch.Generator().manual_seed(0))
    for folded in (False, True):
        black, background = (net.ResNet9(3, 5, 2, folded=folded, boundary=boundary).eval() for boundary in BORDERS)
        background.load_state_dict(black.state_dict())
        torch.testing.assert_close(background.logits(images), black.logits(images))


def test_the_border_of_the_settings_is_the_network_s() -> None:
    for boundary in BORDERS:
        network = random_network(Config(seed=0, max_clusters=5, network=Network(width=2, padding=boundary)), 3, 1)
        assert isinstance(network, net.ResNet9)
        assert network.boundary == boundary


def test_the_margin_has_the_color_of_the_image_s_own_rim() -> None:
    image = torch.tensor([[[[0.2, 0.2, 0.9], [0.2, 0.5, 0.4], [0.2, 0.2, 0.4]]]])
    framed = net.pad_with_background(image, 1, 2)
    assert framed.shape == (1, 1, 6, 6)
    torch.testing.assert_close(framed[..., 1:4, 1:4], image)
    torch.testing.assert_close(framed[..., 0, :], torch.full((1, 1, 6), 0.2))
    torch.testing.assert_close(framed[..., :, 4:], torch.full((1, 1, 6, 2), 0.2))


def test_a_folded_network_takes_any_size_and_does_less_work() -> None:
    network = net.ResNet9(1, 7, width=2, folded=True).eval()
    assert len(network.units) == len(net.ResNet9(1, 7, width=2).units) - 1
    for size in ((1, 1), (9, 16), (28, 28)):
        assert network(torch.rand(4, 1, *size)).shape == (4, 7)


def test_a_start_is_drawn_from_its_seed_and_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    first = net.flatten(random_network(1, FIVE, 1, seed=3))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, net.flatten(random_network(1, FIVE, 1, seed=3)))
    assert not torch.equal(first, net.flatten(random_network(1, FIVE, 1, seed=4)))
    assert not torch.equal(first, net.flatten(random_network(1, FIVE, 1, seed=3, attempt=1)))


def test_the_first_start_that_is_lively_enough_is_taken_or_else_the_liveliest() -> None:
    alive = [3, 5, 4, 12, 20]
    drawn = {attempt: net.ResNet9(1, 2, 1) for attempt in range(len(alive))}
    position = {id(network): attempt for attempt, network in drawn.items()}

    def count(network: net.ClusterNetwork) -> int:
        return alive[position[id(network)]]

    assert net.draw_active_network(drawn.__getitem__, count, wanted=10, attempts=5) is drawn[3]
    assert net.draw_active_network(drawn.__getitem__, count, wanted=99, attempts=5) is drawn[4]
    assert net.draw_active_network(drawn.__getitem__, count, wanted=99, attempts=3) is drawn[1]
