"""Settings of a run as a flat list of names and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..config.files import to_dict
from ..runs.folder import Description


def flat_settings(description: Description) -> dict[str, str]:
    """Every setting by its name on the command line, and what else determines the run."""
    about = {
        "source": description.source,
        "images": f"{description.images:,} of {'x'.join(map(str, description.shape))}",
        "preset": description.preset,
        "program": description.program,
    }
    return {**about, **dict(_flat(to_dict(description.config), ""))}


def _flat(tree: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, " ".join(map(str, value)) if isinstance(value, list) else str(value)
