"""Which device is used."""

from __future__ import annotations

import pytest
import torch
from support.elsewhere import DEVICE, simulated

from converge_to_surprise.model import devices


@pytest.mark.parametrize(
    ("cuda", "mps", "found"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_is_the_first_available_device(cuda: bool, mps: bool, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert devices.resolve("auto") == found
    assert devices.resolve("cuda:1") == "cuda:1"


def test_an_unknown_device_is_refused_and_a_model_runs_on_the_cpu_instead() -> None:
    with pytest.raises(ValueError, match="device is 'abacus', which cannot be used here"):
        devices.check("abacus")
    assert devices.resolve_or_cpu("abacus") == "cpu"
    assert devices.resolve_or_cpu("auto") == devices.resolve("auto") != "auto"


def test_the_simulated_device_refuses_what_a_gpu_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated(monkeypatch):
        there = torch.zeros(3, device=DEVICE)
        assert there.device == torch.device(DEVICE)
        with pytest.raises(TypeError, match="no doubles"):
            there.double()
        with pytest.raises(TypeError, match="no doubles"):
            there.copy_(torch.zeros(3, dtype=torch.double))
        with pytest.raises(TypeError, match="no doubles"):
            torch.zeros(3, dtype=torch.double, device=DEVICE)
        with pytest.raises(RuntimeError, match="one on the CPU"):
            there + torch.ones(3)
        with pytest.raises(RuntimeError, match="cannot draw"):
            torch.rand(3, generator=torch.Generator(), device=DEVICE)
        with pytest.raises(RuntimeError):
            there.numpy()
        assert torch.equal((there + 1).cpu(), torch.ones(3))
