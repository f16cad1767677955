"""Which processes a process started, and whether they are still running (Linux)."""

from __future__ import annotations

from pathlib import Path


def children(process: int) -> list[int]:
    """Processes that a process started, and those that they started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has ended meanwhile
        if int(parent) == process and state != "Z":
            found.append(int(entry.parent.name))
    return found + [grandchild for child in found for grandchild in children(child)]


def is_running(process: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
