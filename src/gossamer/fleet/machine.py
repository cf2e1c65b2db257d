"""What a node needs of its machine: clock, disk, and a signal to stop. A simulation replaces all.

The fourth seam is `transport.base.Transport`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from gossamer._core.disk import SYSTEM_DISK, Disk


class Clock(Protocol):
    """The clocks of a machine."""

    def time(self) -> float:
        """Return seconds since 1970; this clock may jump."""

    def monotonic(self) -> float:
        """Return seconds since any moment; this clock never goes back."""


class StopSignal(Protocol):
    """A signal for a node to stop: `threading.Event` is one. Every wait of a node ends with it."""

    def is_set(self) -> bool:
        """Return True if the node is to stop."""

    def wait(self, timeout: float) -> bool:
        """Wait until the node is to stop, or for a number of seconds; return `is_set()`."""


class SystemClock:
    """The clocks of this machine."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


SYSTEM_CLOCK = SystemClock()


@dataclass(frozen=True)
class Machine:
    """The machine that a node runs on; by default this one.

    Args:
        clock: Its clocks.
        disk: Its disk.
    """

    clock: Clock = SYSTEM_CLOCK
    disk: Disk = SYSTEM_DISK


THIS_MACHINE = Machine()
