"""Files that were not read, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .listing import Listing


class SkippedFile(NamedTuple):
    """A file that was not read, and why."""

    name: str
    reason: str
    kind: str = "damaged"
    """Files of one kind are counted together."""


def nothing_readable(listing: Listing, quarantine: Sequence[SkippedFile]) -> str:
    return f"none of the {len(listing):,} files of {listing.source} can be read: {first_reasons(quarantine)}"


def first_reasons(quarantine: Sequence[SkippedFile]) -> str:
    """The three most common reasons, each with a file that it holds for, in one line."""
    counts = Counter(skipped.reason for skipped in quarantine)
    example = {skipped.reason: skipped.name for skipped in reversed(quarantine)}
    shown = []
    for reason, count in counts.most_common(3):
        others = f" and {count - 1:,} more" if count > 1 else ""
        shown.append(f"{example[reason]!r}{others}: {reason}")
    rest = len(quarantine) - sum(count for _, count in counts.most_common(3))
    return "; ".join(shown) + (f"; and {rest:,} more files" if rest else "")


def files_line(read: int, skipped: Mapping[str, int], quarantine: Path | None = None) -> str:
    """How many files were read and how many of each kind were skipped; ``quarantine`` is the list of those."""
    total = read + sum(skipped.values())
    if total == read:
        return f"read {read:,} {'file' if read == 1 else 'files'}"
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(skipped.items(), key=lambda item: -item[1]))
    see = "" if quarantine is None else f"; see {quarantine}"
    return f"read {read:,} of {total:,} files; skipped {total - read:,}: {kinds}{see}"


def count_kinds(quarantine: Iterable[SkippedFile]) -> Counter[str]:
    """How many files of each kind were skipped."""
    return Counter(skipped.kind for skipped in quarantine)
