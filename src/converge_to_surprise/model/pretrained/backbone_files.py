"""Read the files of a backbone into memory, none from outside of its folder, and identify them by one checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ...config.memory import check_memory


@dataclass(frozen=True)
class OnnxBytes:
    """The content of a model file and of the files with its external data, by their names in the model."""

    model: bytes
    external: dict[str, bytes]
    sha256: str


def check_file(path: Path) -> None:
    """Refuse what is not a regular file that fits into memory."""
    if not path.is_file():
        raise ValueError(f"{path}: " + ("it is not a file" if path.exists() else "there is no such file"))
    check_memory(path.stat().st_size, path)


def read_file(path: Path) -> bytes:
    check_file(path)
    return path.read_bytes()


def read_onnx(path: Path, model: bytes, locations: Iterable[str], root: Path) -> OnnxBytes:
    """Read the external data of a model. Only these bytes are used: the files are not opened again."""
    external = {name: read_file(external_path(path, name, root)) for name in sorted(set(locations))}
    return OnnxBytes(model, external, checksum({path.name: model, **external}))


def external_path(path: Path, location: str, root: Path) -> Path:
    """The file of a model's external data, which must be below the model's folder and, links resolved, in ``root``."""
    inner = PurePosixPath(location)
    wrong = not location or inner.is_absolute() or ".." in inner.parts or any(c in location for c in "\\:\0")
    target = path.parent / inner
    if wrong or not target.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"{path}: its external data {location!r} is outside of its folder, which is refused")
    if inner == PurePosixPath(path.name):
        raise ValueError(f"{path}: its external data is the model file itself, which is refused")
    return target


def link_root(folder: Path) -> Path:
    """The folder into which links may point: in the hub's cache, files are links to ``blobs`` beside ``snapshots``."""
    cache = folder.resolve().parent.parent
    cached = folder.resolve().parent.name == "snapshots" and (cache / "blobs").is_dir()
    return cache if cached else folder.resolve()


def checksum(contents: Mapping[str, bytes]) -> str:
    """SHA-256 of one file's bytes; of several files, that of their lines ``SHA256  NAME``, sorted by name.

    So `sha256sum FILE` checks a single file and `sha256sum FILES | sha256sum` several of them.
    """
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    if len(sums) == 1:
        return next(iter(sums.values()))
    lines = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))
    return hashlib.sha256(lines.encode()).hexdigest()


def check_expected(source: str, found: str, expected: str | None) -> None:
    """Refuse a backbone that is not the one whose checksum was recorded."""
    if expected is not None and found != expected:
        raise ValueError(
            f"the model was fitted with a backbone that has the sha256 {expected}, but {source} has {found}; "
            "give the file of that fit"
        )
