"""How much memory this process can still allocate, and what does not fit it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from gossamer.errors import InputError

_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")  # limits of a container


def refuse_too_large(field: str, value: object, needed: float, accepted: str) -> None:
    """Refuse what does not fit the memory, before it is allocated.

    Args:
        field: Name of the argument that determines the size.
        value: The argument.
        needed: Bytes that it takes at least.
        accepted: What is accepted instead, and what takes the memory: "a smaller batch: its samples
            take".

    Raises:
        InputError: If more is needed than is available.

    Example:
        >>> refuse_too_large("batch", 10, 320, "a smaller batch: its samples take")
    """
    available = available_memory()
    if available is not None and needed > available:
        raise InputError(
            field,
            value,
            f"{accepted} {needed / 2**30:,.1f} GiB, and {available / 2**30:.1f} GiB are available",
        )


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
