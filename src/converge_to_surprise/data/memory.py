"""How much memory there is, so that a file cannot claim more."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FACTOR = 2
"""Images are held twice for a moment: as they came, and as bytes."""

STARVED = ("allocate memory", "out of memory", "bad_alloc", "start new thread", "create a primitive")
"""What torch says when there is no memory left; it has no error of its own for that."""


def memory_ran_out(error: Exception) -> bool:
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in STARVED)


def free_memory() -> int:
    """Bytes that this process may still take: what the system has available and its container allows."""
    rooms: list[int] = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        rooms += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        used = int((group / "memory.current").read_text(encoding="ascii"))
        rooms.append(int((group / "memory.max").read_text(encoding="ascii")) - used)
    if not rooms and hasattr(os, "sysconf"):
        rooms.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(rooms, default=2**63)


def check_memory(size: int, what: object) -> None:
    """Refuse to read so many bytes if the memory is not there."""
    if size * FACTOR > (free := free_memory()):
        raise ValueError(f"{what} says that it holds {size:,} bytes, too much for the {free:,} bytes of free memory")
