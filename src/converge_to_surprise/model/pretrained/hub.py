"""Which files of a Hugging Face repository are used, and how they are fetched from the hub or its local cache."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable
from pathlib import Path

from ...config.text import one_line
from .preprocessing import PREPROCESSOR

PREFIX = "hf:"
NAME = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
COMMIT = re.compile(r"[0-9a-f]{40}")
PATIENCE = 20.0
"""Seconds for the first answer of the hub."""
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
ONNX_FILES = ("onnx/vision_model.onnx", "vision_model.onnx", "onnx/model.onnx", "model.onnx")
"""Best first: the image part of a model of images and text, then whole models, in float32."""
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


def weight_files(names: Iterable[str], where: str, only: str | None = None) -> tuple[str, ...]:
    """The weights to use out of a repository's files: an ONNX file with its data, or safetensors; never pickles.

    >>> weight_files(["config.json", "pytorch_model.bin", "model.safetensors"], "ORG/NAME")
    ('model.safetensors',)
    >>> weight_files(["model.safetensors", "onnx/model.onnx", "onnx/model.onnx_data", "onnx/model_int8.onnx"], "X/Y")
    ('onnx/model.onnx', 'onnx/model.onnx_data')
    """
    held = sorted(names)
    for name in (only,) if only else ONNX_FILES:
        if name in held and name.endswith(".onnx"):
            data = re.compile(re.escape(name) + r"(_data(_\d+)?|\.data)")
            return (name, *(other for other in held if data.fullmatch(other)))
    if CONFIG in held and WEIGHTS in held:
        return (WEIGHTS,)
    if CONFIG in held and INDEX in held:
        return tuple(name for name in held if SHARD.fullmatch(name))
    raise ValueError(
        f"{where} has neither an ONNX file nor a config.json with safetensors; other formats, such as "
        "pytorch_model.bin, can hold code and are never read: give an ONNX file"
    )


def needed_files(names: Iterable[str], where: str, only: str | None = None) -> tuple[str, ...]:
    """The weights and, where they are there, the small files that describe a model."""
    held = set(names)
    return (*weight_files(held, where, only), *(name for name in (CONFIG, PREPROCESSOR) if name in held))


def files_in(folder: Path) -> list[str]:
    """The files of a folder in the form of a repository: its own and those of its folder ``onnx``."""
    return [
        path.relative_to(folder).as_posix() for path in (*folder.glob("*"), *folder.glob("onnx/*")) if path.is_file()
    ]


def parse_name(source: str) -> tuple[str, str | None]:
    """Repository and revision of ``hf:ORG/NAME[@REVISION]``.

    >>> parse_name("hf:facebook/dinov2-small@main")
    ('facebook/dinov2-small', 'main')
    """
    found = NAME.fullmatch(source.removeprefix(PREFIX))
    if found is None:
        raise ValueError(f"the backbone {source!r} must have the form hf:ORG/NAME or hf:ORG/NAME@REVISION")
    return found["repository"], found["revision"]


def fetch(repository: str, revision: str | None, only: str | None = None) -> tuple[Path, str]:
    """The folder with the needed files of a repository, and its commit. A cached commit needs no network."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ValueError("models of the hub need huggingface_hub: pip install 'converge-to-surprise[photos]'")
    if revision is not None and COMMIT.fullmatch(revision):
        folder = _cached(repository, revision, only)
        if folder is not None:
            return folder, folder.name
    from huggingface_hub import errors

    try:
        return _download(repository, revision, only)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.HFValidationError) as error:
        text = one_line(str(error).strip().splitlines()[0], longest=200)
        raise ValueError(f"the Hugging Face hub has no model {_written(repository, revision)}: {text}") from None
    except ValueError:
        raise
    except Exception as error:  # its own, those of its HTTP library, and OSError
        folder = _cached(repository, revision or "main", only)
        if folder is not None:
            return folder, folder.name
        raise ValueError(_unreachable(repository, revision, error)) from None


def _download(repository: str, revision: str | None, only: str | None) -> tuple[Path, str]:
    from huggingface_hub import HfApi, hf_hub_download

    described = HfApi().model_info(repository, revision=revision, timeout=PATIENCE)
    commit = described.sha
    if commit is None or not COMMIT.fullmatch(commit):
        raise ValueError(f"the Hugging Face hub named no commit of {_written(repository, revision)}")
    names = [sibling.rfilename for sibling in described.siblings or []]
    folders = set()
    for name in needed_files(names, _written(repository, revision), only):
        # By the name of the branch, so that the cache knows later which commit it was.
        path = Path(hf_hub_download(repository, name, revision=revision))
        folders.add(path.parents[name.count("/")])
    (folder,) = folders if len(folders) == 1 else (None,)
    if folder is None or folder.name != commit:
        raise ValueError(f"{_written(repository, revision)} was changed on the hub while it was fetched; try again")
    return folder, commit


def _cached(repository: str, revision: str, only: str | None) -> Path | None:
    """The folder of a revision in the hub's cache, if the files that are needed are there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(repository, revision=revision, local_files_only=True))
        needed_files(files_in(folder), repository, only)
    except (LocalEntryNotFoundError, ValueError):
        return None
    return folder


def _written(repository: str, revision: str | None) -> str:
    return PREFIX + repository + (f"@{revision}" if revision else "")


def _unreachable(repository: str, revision: str | None, error: Exception) -> str:
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON")
    reason = "HF_HUB_OFFLINE is set" if offline else one_line(str(error).strip() or type(error).__name__, longest=200)
    return (
        f"cannot reach the Hugging Face hub for {_written(repository, revision)} ({reason}); give an ONNX file with "
        f"--backbone FILE, or run `hf download {repository}` on another machine and give the folder"
    )
