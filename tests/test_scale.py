"""The formulas behind docs/scale.md, and the sizes of the messages that benchmarks/hosts.py sends."""

from __future__ import annotations

import doctest

import pytest
from scaling import cost, pages, rates
from scaling.cost import Images, Site
from simnet import traffic
from simnet.relay import Counters

from converge_to_surprise.model.network import ResNet9, Unit


def test_macs_equal_a_count_by_hand() -> None:
    """ResNet-9 of width 8 on a 28x28 view: full size, half, quarter and eighth, 9 products per weight pair."""
    convolutions = 9 * (
        28 * 28 * (1 * 8 + 8 * 16) + 14 * 14 * (2 * 16 * 16 + 16 * 32) + 7 * 7 * 32 * 64 + 3 * 3 * 2 * 64 * 64
    )
    assert rates.macs(28) == convolutions + 64 * 64
    assert rates.macs(28, heads=8) - rates.macs(28) == 7 * 64 * 64
    assert rates.macs(64) == 4 * (rates.macs(32) - 64 * 64) + 64 * 64


def test_messages_are_those_of_the_network() -> None:
    network = ResNet9(1, 64, heads=8, folded=True)
    layers = [unit.norm.num_features for unit in network.units if isinstance(unit, Unit)]
    assert tuple(layers) == traffic.LAYERS
    assert sum(p.numel() for p in network.parameters()) == traffic.PARAMETERS
    assert len(traffic.messages("relaxed", 4)) == 2 * len(layers) + 3
    assert traffic.messages("evolution", 8) == [4]


def test_a_ring_gets_longer_with_every_host_and_direct_messages_do_not() -> None:
    assert [traffic.rounds("evolution", "ring", hosts) for hosts in (2, 4, 8)] == [1, 3, 7]
    assert {traffic.rounds("relaxed", "direct", hosts) for hosts in (2, 4, 8)} == {18}
    assert traffic.rounds("relaxed", "ring", 2) == 34


def test_one_host_waits_for_nobody_and_many_share_the_computing() -> None:
    images, site = Images(1_000_000, 32), Site()
    for step in (cost.evolution_step, lambda i, n, s: cost.relaxed_step(i, n, s, 250)):
        alone, eight = step(images, 1, site), step(images, 8, site)
        assert alone.messages == 0 < eight.messages
        assert alone.computing / 8 <= eight.computing < alone.computing
    # 32 members, and the refresh that every host does: 33 parts alone, 4 + 1 on each of eight.
    shares = cost.evolution_step(images, 8, site).computing / cost.evolution_step(images, 1, site).computing
    assert shares == pytest.approx(5 / 33)


def test_the_assumed_gpu_does_the_papers_run_in_the_papers_time() -> None:
    step = 2 * rates.PAPER_BATCH * rates.PAPER_MEMBERS / rates.forward_rate(28)
    assert rates.PAPER_UPDATES * step == pytest.approx(rates.PAPER_SECONDS)


def test_the_bottleneck_is_the_largest_part() -> None:
    slow_network, slow_disk = Site(delay=10.0), Site(disk_reads=1.0)
    images = Images(1_000_000, 32)
    assert cost.relaxed_step(images, 2, slow_network, 250).bottleneck == "messages"
    assert cost.relaxed_step(images, 2, slow_disk, 250).bottleneck == "reading"
    assert cost.Cost(1.0, 2.0, 4.0).times(2).total == 14


def test_counters_are_subtracted_field_by_field() -> None:
    assert Counters(5, 700, 2) - Counters(1, 100, 0) == Counters(4, 600, 2)


@pytest.mark.parametrize("module", [cost, pages])
def test_examples(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.attempted
    assert not found.failed
