"""Settings of a whole process. The library never changes those of its host; our own processes may.

Our own processes are the command `gossamer`, the workers of a sweep and the Ray engine's actors.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# mallopt's parameters, from glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_LARGEST_KEPT_BLOCK = 32 << 20  # bytes; the most that glibc accepts
_NEVER_TRIM = 2**31 - 1


def configure_own_process() -> None:
    """Configure a process that belongs to gossamer for speed. Call it before torch is imported.

    Waiting OpenMP threads sleep instead of spinning: beside another busy process, spinning threads
    made a run six times slower. OpenMP reads the setting once, when torch is imported.

    glibc keeps freed memory for the next round instead of returning it to the system. A round
    allocates and frees tensors of the size of the whole state; without this setting a round takes
    up to a tenth longer (softmax regression, 100 to 1000 devices).
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if not sys.platform.startswith("linux"):
        return
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BLOCK)
        libc.mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM)
    except (OSError, AttributeError):  # another C library: slower, not wrong
        return


@contextmanager
def environment_defaults(**values: str) -> Iterator[None]:
    """Set environment variables that are not set yet; remove them again at the end of the block.

    For libraries that read a setting only from the environment.

    Args:
        values: The variables by name. Those that the user has set stay as they are.

    Example:
        >>> with environment_defaults(GOSSAMER_EXAMPLE="1"):
        ...     os.environ["GOSSAMER_EXAMPLE"]
        '1'
        >>> "GOSSAMER_EXAMPLE" in os.environ
        False
    """
    missing = [name for name in values if name not in os.environ]
    for name in missing:
        os.environ[name] = values[name]
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)
