"""Try an ONNX file in a process of its own, with limited memory and time, before this process opens it.

A file may crash onnxruntime, need more memory than is free, or never end; then only the trial ends. Run as a module,
this is the process: it reads a ``TrialJob`` as JSON from its input and writes a ``Trial``.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...config.memory import free_memory
from ...config.text import one_line, parse_json
from .backbone_files import read_file, read_onnx
from .identity import Preprocess, PreprocessFlags, triple
from .onnx_session import Signature, choose_output, input_of, open_session, reason
from .onnx_structure import inspect
from .preprocessing import DEFAULT_SIZE, complete, from_flags, from_folder, from_metadata

PATIENCE = 300
"""Seconds for reading a file and running it on two images."""
OTHER_SIZES = (256, 384, 518, 192, 128, 96, 64, 32)
"""Tried if the input size is unknown and 224 pixels do not work."""


@dataclass(frozen=True)
class TrialJob:
    """The file to try, and the user's settings of its input."""

    path: str
    root: str
    """External data must be in this folder, links resolved."""
    preprocessor: str
    """The folder in which a preprocessor file is looked for."""
    flags: PreprocessFlags


@dataclass(frozen=True)
class Trial:
    """The result of a trial."""

    external: tuple[str, ...]
    sha256: str
    preprocess: Preprocess
    signature: Signature


def try_onnx(job: TrialJob) -> Trial:
    """Run a trial in its own process; a ValueError that names the file if it fails there in any way."""
    words = [sys.executable, "-m", __name__]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            words, input=json.dumps(asdict(job)).encode(), capture_output=True, env=environment, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"{job.path}: it did not give features of two images in {PATIENCE} seconds") from None
    try:
        found = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise ValueError(
            f"{job.path}: onnxruntime cannot run it; the trial ended with exit code {done.returncode}"
        ) from None
    if "error" in found:
        raise ValueError(f"{job.path}: {found['error']}")
    return Trial(
        tuple(found["external"]), found["sha256"], Preprocess.from_dict(found["preprocess"]),
        Signature(**found["signature"]),
    )  # fmt: skip


def attempt(job: TrialJob) -> Trial:
    """The trial itself; its error messages do not name the file."""
    path = Path(job.path)
    model = read_file(path)
    structure = inspect(model)
    content = read_onnx(path, model, structure.external, Path(job.root))
    parts = from_folder(Path(job.preprocessor)) | from_metadata(structure.metadata)
    session = open_session(content)
    signature = input_of(session)
    asked = from_flags(job.flags)
    if signature.side is not None and asked.get("size", signature.side) != signature.side:
        raise ValueError(f"it takes images of {signature.side} pixels; the size {asked['size']} does not fit")
    parts |= asked
    if signature.side is not None:
        parts["size"] = signature.side
    sizes = (parts["size"],) if "size" in parts else (DEFAULT_SIZE, *OTHER_SIZES)
    first: Exception | None = None
    for size in sizes:
        preprocess = complete({**parts, "size": size})
        try:
            chosen = choose_output(session, signature, preprocess.size)
        except Exception as error:  # onnxruntime's own have no common class
            first = first or error
            continue
        return Trial(structure.external, content.sha256, preprocess, chosen)
    assert first is not None
    raise first


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        limit = free_memory()
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read_job(text: str) -> TrialJob:
    data: dict[str, Any] = parse_json(text)
    flags = data.pop("flags")
    colors = {name: None if flags[name] is None else triple(flags[name]) for name in ("mean", "std")}
    return TrialJob(**data, flags=PreprocessFlags(flags["size"], **colors))


def main() -> int:
    job = _read_job(sys.stdin.read())
    _limit_memory()
    answer: dict[str, Any]
    try:
        trial = attempt(job)
        answer = {**asdict(trial), "preprocess": trial.preprocess.to_dict()}
    except MemoryError:
        answer = {"error": "it needs more memory than there is"}
    except ImportError as error:
        answer = {"error": f"ONNX files need {error.name}: pip install 'converge-to-surprise[photos]'"}
    except Exception as error:  # onnxruntime's own have no common class
        answer = {"error": str(error) if isinstance(error, ValueError) else reason(error)}
    if "error" in answer:
        answer["error"] = one_line(answer["error"].removeprefix(f"{job.path}: "))
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
