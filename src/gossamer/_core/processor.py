"""The name of the processor."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_UNKNOWN = "unknown processor"


@cache
def processor() -> str:
    """Return the processor's name as the operating system gives it.

    Example:
        >>> processor() != ""
        True
    """
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine() or _UNKNOWN
