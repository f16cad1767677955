"""Spoiled ONNX files: hundreds of them, opened for real in one process that must not end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import onnx_models as made

from converge_to_surprise.model.pretrained import open_backbone

PROGRAM = """
import json, sys
from pathlib import Path
from converge_to_surprise.model.pretrained.identity import PreprocessFlags
from converge_to_surprise.model.pretrained.onnx_trial import TrialJob, attempt
outcome = {"accepted": 0, "refused": 0}
for path in sorted(Path(sys.argv[1]).glob("*.onnx")):
    print(path.name, file=sys.stderr, flush=True)
    try:
        attempt(TrialJob(str(path), str(path.parent), str(path.parent), PreprocessFlags(size=16)))
        outcome["accepted"] += 1
    except Exception as error:
        outcome["refused"] += 1
print(json.dumps(outcome))
"""
CASES = 300


def spoiled(case: int) -> bytes:
    """A small model with a few bytes changed, cut, doubled or exchanged, or with a field of its structure changed."""
    random = np.random.default_rng(case)
    proto = made.tokens() if case % 2 else made.vectors()
    if case % 3 == 0:
        _change_structure(proto, random)
    content = bytearray(proto.SerializeToString())
    kind = case % 5
    start = int(random.integers(len(content)))
    length = int(random.integers(1, 32))
    if kind == 0:
        return bytes(content[:start])
    if kind == 1:
        content[start : start + length] = random.bytes(length)
    elif kind == 2:
        del content[start : start + length]
    elif kind == 3:
        content[start:start] = content[max(0, start - length) : start]
    else:
        content[start] ^= 1 << int(random.integers(8))
    return bytes(content)


def _change_structure(proto: onnx.ModelProto, random: np.random.Generator) -> None:
    node = proto.graph.node[int(random.integers(len(proto.graph.node)))]
    tensor = proto.graph.initializer[int(random.integers(len(proto.graph.initializer)))]
    others = ["Gather", "Loop", "If", "Resize", "Tile", "NonZero", "Einsum", "LSTM", "QLinearConv", "Scan", "Split"]
    change = int(random.integers(6))
    if change == 0:
        node.op_type = others[int(random.integers(len(others)))]
    elif change == 1:
        node.input[0] = node.output[0]
    elif change == 2 and tensor.dims:
        tensor.dims[0] = int(random.choice([-1, 0, 1, 2**31, 2**63 - 1]))
    elif change == 3:
        tensor.data_type = int(random.integers(30))
    elif change == 4:
        tensor.raw_data = random.bytes(int(random.integers(200)))
    else:
        for attribute in node.attribute:
            attribute.ints[:] = [int(random.choice([-1, 0, 2**31, 2**62])) for _ in attribute.ints]


@pytest.mark.slow
@pytest.mark.subprocess
def test_spoiled_files_end_in_an_error(tmp_path: Path) -> None:
    """They are tried without a process around each, so that a crash of a library is seen."""
    for case in range(CASES):
        (tmp_path / f"{case:04}.onnx").write_bytes(spoiled(case))
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{done.stderr.splitlines()[-1]} ends the process with {done.returncode}"
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["accepted"] + outcome["refused"] == CASES
    assert outcome["refused"] > CASES / 2
    assert outcome["accepted"] > 0, "some changes are harmless"


@pytest.mark.subprocess
@pytest.mark.parametrize("case", [0, 3, 5, 10])
def test_spoiled_files_are_refused_in_one_line(tmp_path: Path, case: int) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(spoiled(case))
    with pytest.raises(ValueError, match=r"model\.onnx: ") as caught:
        open_backbone(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.subprocess
def test_a_crash_of_the_trial_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = tmp_path / "python"
    crash.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crash.chmod(0o755)
    path = made.save(made.vectors(), tmp_path / "model.onnx")
    monkeypatch.setattr(sys, "executable", str(crash))
    with pytest.raises(ValueError, match=r"model.onnx: onnxruntime cannot run it; the trial ended with exit code -11"):
        open_backbone(str(path))
