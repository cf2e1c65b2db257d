"""How much memory this process can still allocate."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")  # limits of a container


def available_memory() -> int | None:
    """Return the bytes that can be allocated without swapping, or None if that is not known.

    Example:
        >>> available_memory() != 0
        True
    """
    found = []
    with suppress(OSError, ValueError, IndexError):
        line = next(line for line in _MEMINFO.read_text().splitlines() if "MemAvailable" in line)
        found.append(int(line.split()[1]) << 10)
    with suppress(OSError, ValueError):  # "max": no limit
        limit = int((_GROUP / "memory.max").read_text())
        found.append(max(0, limit - int((_GROUP / "memory.current").read_text())))
    if not found:
        with suppress(OSError, ValueError, AttributeError):  # not Linux: all memory
            found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(found, default=None)
