"""Free memory, and checks that files and images fit into it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FACTOR = 2
"""Images are held twice for a moment: as read, and as bytes."""

OUT_OF_MEMORY = ("allocate memory", "out of memory", "bad_alloc", "start new thread", "create a primitive")
"""Parts of torch's error messages when memory runs out; there is no exception type for that."""


def memory_ran_out(error: Exception) -> bool:
    return isinstance(error, MemoryError) or any(message in str(error) for message in OUT_OF_MEMORY)


def free_memory() -> int:
    """Bytes that this process may still take: what the system has available and its container allows."""
    limits: list[int] = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        limits += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        used = int((group / "memory.current").read_text(encoding="ascii"))
        limits.append(int((group / "memory.max").read_text(encoding="ascii")) - used)
    if not limits and hasattr(os, "sysconf"):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=2**63)


def check_memory(size: int, what: object) -> None:
    """Refuse to read ``size`` bytes if there is not enough free memory."""
    if size * FACTOR > (free := free_memory()):
        raise ValueError(f"{what} needs {size:,} bytes, too much for the {free:,} bytes of free memory")


def check_planned(size: int, what: str) -> None:
    """Refuse to create images of ``size`` bytes if there is not enough free memory."""
    if size > (free := free_memory()):
        raise ValueError(
            f"{what} would take {size:,} bytes, too much for the {free:,} bytes of free memory; "
            "give a smaller image_size, or fewer images"
        )
