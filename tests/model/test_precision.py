from __future__ import annotations

import contextlib

import pytest
import torch
from torch import Tensor

from converge_to_surprise.config import Precision, Views
from converge_to_surprise.model import inference, precision
from converge_to_surprise.model.network import ResNet9

CPU, CUDA, MPS = (torch.device(name) for name in ("cpu", "cuda", "mps"))


@pytest.mark.parametrize(
    ("wanted", "device"),
    [("tf32", CPU), ("tf32", MPS), ("float16", CPU), ("float16", MPS), ("bfloat16", MPS)],
)
def test_a_precision_that_the_device_does_not_support_is_refused(wanted: Precision, device: torch.device) -> None:
    with pytest.raises(ValueError, match=f"precision is '{wanted}', which needs device .*; the device is '{device}'"):
        precision.check(wanted, device)


@pytest.mark.parametrize("device", [CPU, CUDA, MPS, torch.device("meta")])
def test_every_device_supports_float32(device: torch.device) -> None:
    precision.check("float32", device)


@pytest.mark.parametrize("instruction", ["avx512_bf16", "amx_bf16"])
def test_auto_is_bfloat16_only_on_a_cpu_that_computes_with_it(
    instruction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True, instruction: True}, raising=False)
    assert [precision.resolve("auto", device) for device in (CPU, CUDA, MPS)] == ["bfloat16", "float32", "float32"]
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True, instruction: False})
    assert precision.resolve("auto", CPU) == "float32"
    assert precision.resolve("bfloat16", CPU) == "bfloat16", "what is asked for is not replaced"
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert precision.resolve("auto", CPU) == "float32", "an older torch cannot tell"


@pytest.mark.parametrize("wanted", ["tf32", "bfloat16", "float16"])
def test_cuda_supports_every_precision(wanted: Precision) -> None:
    precision.check(wanted, CUDA)


def cuda_settings() -> tuple[str, str, bool]:
    cudnn = torch.backends.cudnn
    return torch.backends.cuda.matmul.fp32_precision, cudnn.conv.fp32_precision, cudnn.deterministic  # type: ignore[attr-defined]


@pytest.mark.parametrize(("wanted", "found"), [("float32", "ieee"), ("bfloat16", "ieee"), ("tf32", "tf32")])
def test_the_precision_of_cuda_is_set_within_the_block_and_restored_after_it(wanted: Precision, found: str) -> None:
    before = cuda_settings()
    with contextlib.suppress(KeyError), precision.multiplying(wanted, CUDA):
        assert cuda_settings() == (found, found, True)
        with precision.exact(CUDA):
            assert cuda_settings() == ("ieee", "ieee", True)
        assert cuda_settings() == (found, found, True)
        raise KeyError
    assert cuda_settings() == before


class Recording(ResNet9):
    """Records the types in which its heads compute."""

    types: list[torch.dtype]

    def outputs(self, features: Tensor) -> Tensor:
        found = super().outputs(features)
        self.types = [*getattr(self, "types", []), features.dtype, found.dtype]
        return found


def test_only_the_backbone_computes_in_16_bits() -> None:
    network = Recording(1, 8, width=4, heads=2)
    inside: list[torch.dtype] = []
    unit = network.units[2]
    unit.register_forward_hook(lambda module, given, found: inside.append(found.dtype))
    with precision.lowered("bfloat16", CPU):
        outputs = network(torch.rand(20, 1, 8, 8))
    assert inside == [torch.bfloat16]
    assert network.types == [torch.float32] * 2
    assert outputs.dtype == torch.float32
    torch.testing.assert_close(outputs.norm(dim=-1), torch.ones(20, 2))
    outputs.square().sum().backward()
    assert {value.dtype for value in network.state_dict().values()} == {torch.float32, torch.int64}
    assert {parameter.grad.dtype for parameter in network.parameters() if parameter.grad is not None} == {torch.float32}


def test_inference_is_in_float32_also_within_autocast(bars: Tensor) -> None:
    network = ResNet9(1, 8, width=4)
    types: list[torch.dtype] = []
    network.units[0].register_forward_hook(lambda module, given, found: types.append(found.dtype))
    expected = inference.label_views(network, bars, Views())
    with precision.lowered("bfloat16", CPU):
        found = inference.label_views(network, bars, Views())
    assert set(types) == {torch.float32}
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
