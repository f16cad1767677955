from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
import torch
from support.configs import CLIMBING
from torch import Tensor, nn

from converge_to_surprise.config import Config, Network, Precision, Relaxed, Stage
from converge_to_surprise.data.synthetic import striped_images
from converge_to_surprise.model import inference as labeling
from converge_to_surprise.model import precision
from converge_to_surprise.model.backbone import Backbone, BackboneNetwork
from converge_to_surprise.model.network import ClusterNetwork, ResNet9, flatten
from converge_to_surprise.search import population
from converge_to_surprise.search.trainer import Trainer

CPU, CUDA, MPS = (torch.device(name) for name in ("cpu", "cuda", "mps"))
SEARCH = Config(
    threads=1,
    schedule=(Stage("search", "relaxed", 30),),
    max_clusters=8,
    network=Network(width=4),
    relaxed=Relaxed(heads=1, batch_size=60, learning_rate=0.01, temperature=0.05, diversity_floor=(4.0, 4.0)),
)


@pytest.mark.parametrize(
    ("wanted", "device"),
    [("tf32", CPU), ("tf32", MPS), ("float16", CPU), ("float16", MPS), ("bfloat16", MPS)],
)
def test_a_precision_that_the_device_lacks_is_refused(wanted: Precision, device: torch.device) -> None:
    with pytest.raises(ValueError, match=f"precision is '{wanted}', which needs device .*; the device is '{device}'"):
        precision.check(wanted, device)


@pytest.mark.parametrize("device", [CPU, CUDA, MPS, torch.device("meta")])
def test_float32_is_everywhere(device: torch.device) -> None:
    precision.check("float32", device)


@pytest.mark.parametrize("wanted", ["tf32", "bfloat16", "float16"])
def test_cuda_has_them_all(wanted: Precision) -> None:
    precision.check(wanted, CUDA)


def multiplications() -> tuple[str, str, bool]:
    cudnn = torch.backends.cudnn
    return torch.backends.cuda.matmul.fp32_precision, cudnn.conv.fp32_precision, cudnn.deterministic  # type: ignore[attr-defined]


@pytest.mark.parametrize(("wanted", "found"), [("float32", "ieee"), ("bfloat16", "ieee"), ("tf32", "tf32")])
def test_cuda_multiplies_as_wanted_and_as_before_afterwards(wanted: Precision, found: str) -> None:
    before = multiplications()
    with contextlib.suppress(KeyError), precision.multiplying(wanted, CUDA):
        assert multiplications() == (found, found, True)
        with precision.exact(CUDA):
            assert multiplications() == ("ieee", "ieee", True)
        assert multiplications() == (found, found, True)
        raise KeyError
    assert multiplications() == before


class Watched(ResNet9):
    """Remembers in what it computed."""

    seen: list[torch.dtype]

    def outputs(self, features: Tensor) -> Tensor:
        found = super().outputs(features)
        self.seen = [*getattr(self, "seen", []), features.dtype, found.dtype]
        return found


def test_only_the_trunk_is_lowered() -> None:
    network = Watched(1, 8, width=4, heads=2)
    inside: list[torch.dtype] = []
    unit = network.units[2]
    unit.register_forward_hook(lambda module, given, found: inside.append(found.dtype))
    with precision.lowered("bfloat16", CPU):
        outputs = network(torch.rand(20, 1, 8, 8))
    assert inside == [torch.bfloat16]
    assert network.seen == [torch.float32] * 2
    assert outputs.dtype == torch.float32
    torch.testing.assert_close(outputs.norm(dim=-1), torch.ones(20, 2))
    outputs.square().sum().backward()
    assert {value.dtype for value in network.state_dict().values()} == {torch.float32, torch.int64}
    assert {parameter.grad.dtype for parameter in network.parameters() if parameter.grad is not None} == {torch.float32}


def test_images_are_labeled_in_float32_whatever_is_set_outside(bars: Tensor) -> None:
    network = ResNet9(1, 8, width=4)
    seen: list[torch.dtype] = []
    network.units[0].register_forward_hook(lambda module, given, found: seen.append(found.dtype))
    expected = labeling.label_views(network, bars, SEARCH.views)
    with precision.lowered("bfloat16", CPU):
        found = labeling.label_views(network, bars, SEARCH.views)
    assert set(seen) == {torch.float32}
    assert torch.equal(found[0], expected[0])


@pytest.mark.parametrize("own", [False, True])
def test_members_are_scored_with_16_bits_and_gathered_with_32(own: bool, bars: Tensor) -> None:
    torch.manual_seed(0)
    network: ClusterNetwork = ResNet9(1, 6, width=4)
    if own:
        network = _with_backbone()
    views = population.Views(*(torch.rand(60, 1, 8, 8) for _ in range(2)))
    theta = flatten(network)
    full, low = (population.member_labels(network, theta, views, 20, how) for how in ("float32", "bfloat16"))
    assert full is not None
    assert low is not None
    assert (full[0] == low[0]).float().mean() > 0.8
    if isinstance(network, ResNet9):
        parameters = dict(network.named_parameters())
        exact, _ = population.batch_logits(network, parameters, views.first, 20)
        rough, statistics = population.batch_logits(network, parameters, views.first, 20, "bfloat16")
        assert not torch.equal(exact, rough)
        torch.testing.assert_close(exact, rough, rtol=0.1, atol=0.05)
        assert {part.dtype for layer in statistics for part in layer[:2]} == {torch.float32}


def _with_backbone() -> ClusterNetwork:
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 12))
    return BackboneNetwork(Backbone.probe(module, False, (1, 8, 8)), 1, 6)


@pytest.mark.parametrize("config", [SEARCH, CLIMBING], ids=["relaxed", "evolution"])
def test_a_search_with_bfloat16_finds_structure_and_repeats(config: Config) -> None:
    images = striped_images(200)[0]
    scores = [record.surprise for record in Trainer(images, replace(config, precision="bfloat16")).run()]
    start, end = sum(scores[:4]) / 4, sum(scores[-4:]) / 4
    assert end > start + 0.1
    assert end > 3 * start
    again = Trainer(images, replace(config, precision="bfloat16")).run()
    assert [record.surprise for _, record in zip(range(20), again, strict=False)] == scores[:20]
    exact = Trainer(images, config).run()
    assert [record.surprise for _, record in zip(range(20), exact, strict=False)] != scores[:20]


def problem() -> tuple[nn.Parameter, torch.optim.Adam]:
    parameter = nn.Parameter(torch.tensor([3.0, -2.0]))
    return parameter, torch.optim.Adam([parameter], lr=0.1)


def test_scaled_steps_are_the_steps_without_scaling() -> None:
    plain, scaled = problem(), problem()
    for _ in range(5):
        for (parameter, descent), how in ((plain, "float32"), (scaled, "float16")):
            precision.descend(parameter.square().sum(), descent, how)  # type: ignore[arg-type]
    torch.testing.assert_close(plain[0], scaled[0])
    assert scaled[1].param_groups[0][precision.STEADY] == 5
    assert precision.SCALE not in plain[1].param_groups[0]


def test_a_step_that_overflows_is_left_out_and_the_scale_halved() -> None:
    parameter, descent = problem()
    before = parameter.detach().clone()
    precision.descend((parameter * 1e38).sum(), descent, "float16")
    assert torch.equal(parameter, before)
    assert descent.param_groups[0][precision.SCALE] == 2.0**15
    precision.descend(parameter.square().sum(), descent, "float16")
    assert not torch.equal(parameter, before)


def test_the_scale_is_continued_with_the_optimizer() -> None:
    parameter, descent = problem()
    descent.param_groups[0] |= {precision.SCALE: 64.0, precision.STEADY: 1999}
    twin = torch.optim.Adam([nn.Parameter(parameter.detach().clone())])
    twin.load_state_dict(descent.state_dict())
    for one in (descent, twin):
        precision.descend(one.param_groups[0]["params"][0].square().sum(), one, "float16")
    assert [one.param_groups[0][precision.SCALE] for one in (descent, twin)] == [128.0, 128.0]
