"""One checksum for the files of a backbone, and the check against the one that a run recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping


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
