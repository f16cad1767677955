from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from converge_to_surprise.learn import network as net


def test_the_network_of_the_paper_has_its_number_of_parameters() -> None:
    assert sum(p.numel() for p in net.ResNet9(1, 64).parameters()) == 107_320


@pytest.mark.parametrize(("channels", "height", "width"), [(1, 1, 1), (1, 2, 7), (3, 28, 28), (3, 33, 17), (1, 8, 8)])
def test_any_image_size_gives_normalised_logits(channels: int, height: int, width: int) -> None:
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
    assert torch.equal(network.label(logits), logits.argmax(-1))


def test_merged_outputs_share_a_label() -> None:
    network = net.ResNet9(1, 3, width=2)
    network.groups[0] = torch.tensor([0, 0, 2])
    logits = torch.eye(3)
    assert network.label(logits).tolist() == [0, 0, 2]
    heads = net.ResNet9(1, 3, width=2, heads=2)
    heads.groups[1] = torch.tensor([2, 1, 2])
    assert heads.label(logits[:, None].expand(3, 2, 3)).tolist() == [[0, 2], [1, 1], [2, 2]]


def test_a_start_is_drawn_from_its_seed_and_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    first = net.flatten(net.fresh_network(1, 5, 2, 1, seed=3))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, net.flatten(net.fresh_network(1, 5, 2, 1, seed=3)))
    assert not torch.equal(first, net.flatten(net.fresh_network(1, 5, 2, 1, seed=4)))
    assert not torch.equal(first, net.flatten(net.fresh_network(1, 5, 2, 1, seed=3, attempt=1)))


def test_the_first_start_that_is_lively_enough_is_taken_or_else_the_liveliest() -> None:
    alive = [3, 5, 4, 12, 20]
    drawn = {attempt: net.ResNet9(1, 2, 1) for attempt in range(len(alive))}
    position = {id(network): attempt for attempt, network in drawn.items()}

    def count(network: net.ResNet9) -> int:
        return alive[position[id(network)]]

    assert net.lively_network(drawn.__getitem__, count, wanted=10, attempts=5) is drawn[3]
    assert net.lively_network(drawn.__getitem__, count, wanted=99, attempts=5) is drawn[4]
    assert net.lively_network(drawn.__getitem__, count, wanted=99, attempts=3) is drawn[1]
