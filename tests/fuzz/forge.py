"""Files that are right in form and checksum: only their content can give them away."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from typing import Any

import safetensors.torch
import torch
from hypothesis import strategies as st

from converge_to_surprise.model import model_file
from converge_to_surprise.runs import checkpoint
from converge_to_surprise.runs.folder import RunFolder
from converge_to_surprise.search.snapshot import Snapshot


def _large(dtype: torch.dtype) -> int:
    """A number that no valid tensor of integers holds."""
    return 1 if dtype == torch.bool else min(2**40, torch.iinfo(dtype).max)


CHANGES: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda tensor: torch.zeros(0),
    lambda tensor: torch.tensor(3.0),
    lambda tensor: tensor.double(),
    lambda tensor: tensor.bool(),
    lambda tensor: tensor.reshape(-1),
    lambda tensor: torch.cat([tensor.reshape(-1), tensor.reshape(-1)]),
    lambda tensor: torch.full_like(tensor, -7),
    lambda tensor: torch.full_like(tensor, math.nan if tensor.is_floating_point() else _large(tensor.dtype)),
]


@st.composite
def forged_tensors(draw: st.DrawFn, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """All tensors, but one is gone or another one."""
    name = draw(st.sampled_from(sorted(tensors)))
    change = draw(st.sampled_from([None, *CHANGES]))
    others = {other: tensor for other, tensor in tensors.items() if other != name}
    return others if change is None else others | {name: change(tensors[name])}


def forged_checkpoint(run: RunFolder, tensors: dict[str, torch.Tensor], data: dict[str, Any]) -> None:
    """Make it the only checkpoint of an unfinished run."""
    run.result.unlink(missing_ok=True)
    shutil.rmtree(run.checkpoints)
    run.checkpoints.mkdir()
    identity = run.description().identity
    path = checkpoint.save(run.checkpoints, Snapshot(tensors, {"step": 0}), identity)
    content = path.with_suffix(".safetensors").read_bytes()
    digest = checkpoint._checksum(content, identity, data)
    about = {"format": checkpoint.FORMAT, "version": checkpoint.VERSION, "run": identity, "sha256": digest}
    path.write_text(json.dumps(about | {"data": data}))
    assert checkpoint.load(path, identity).data == data


def model_data(content: bytes) -> dict[str, Any]:
    """What a model file says besides its tensors."""
    about = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    data: dict[str, Any] = json.loads(json.loads(about[model_file.FORMAT])["data"])
    return data


def forged_model(content: bytes, data: Any) -> bytes:
    """A model file that says something else."""
    tensors, text = safetensors.torch.load(content), json.dumps(data)
    header = {"version": model_file.VERSION, "sha256": model_file._digest(tensors, text), "data": text}
    return safetensors.torch.save(tensors, {model_file.FORMAT: json.dumps(header)})
