"""Memory that is taken once.

A round makes tensors of the size of the whole state and lets them go again. glibc gives blocks of that size back to the
system at once, and taking them anew costs more than the arithmetic done in them. Told to keep them, it hands the same pages
out round after round, so that algorithms can be written as equations, without buffers.

Above 32 MB, the most that glibc lets one choose, blocks are taken anew all the same: of thousands of devices that costs up to
a tenth of a round's time, and holes that no block fits into would cost half of the memory.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@cache
def keep_freed_memory() -> None:
    """Have glibc keep freed memory for the next round (elsewhere: nothing)."""
    if not sys.platform.startswith("linux"):
        return
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    except (OSError, AttributeError):  # another C library: slower, not wrong
        return
